"""Each rule of the election by itself."""

import dataclasses
import math

import pytest

from torchctl.runtime.kinds import Lease, LeaseSpec, ObjectMeta
from torchctl.runtime.leaderelection.core import Elector, Read, Wait, Write
from torchctl.runtime.settings import ElectionSettings

SETTINGS = ElectionSettings()
LEASE_S, DEADLINE_S, RETRY_S = 15.0, 10.0, 2.0


def lease(holder: str, version: int, *, transitions: int = 0, duration_s: int = 15) -> Lease:
    spec = LeaseSpec(
        holder_identity=holder,
        lease_duration_seconds=duration_s,
        acquire_time="earlier",
        renew_time=f"at {version}",
        lease_transitions=transitions,
    )
    return Lease(ObjectMeta(name="l", resource_version=str(version)), spec)


def answer(write: Write, version: int) -> Lease:
    return Lease(ObjectMeta(name="l", resource_version=str(version)), write.spec)


def follower_of(holder: str, *, version: int = 5, seen_at: float = 100.0) -> Elector:
    elector = Elector("me", SETTINGS)
    elector.saw(lease(holder, version), seen_at, live=True)
    elector.polled(seen_at, 0.0)
    return elector


def leader(*, sent_at: float = 100.0, version: int = 7) -> Elector:
    elector = Elector("me", SETTINGS)
    elector.missing()
    write = elector.next(sent_at, "now", watching=True)
    assert isinstance(write, Write)
    elector.wrote(answer(write, version), sent_at, sent_at + 0.01)
    return elector


def test_the_first_thing_is_to_read() -> None:
    assert Elector("me", SETTINGS).next(0, "now", watching=True) == Read()


def test_a_lease_that_is_missing_is_created() -> None:
    elector = Elector("me", SETTINGS)
    elector.missing()
    assert elector.next(0, "now", watching=True) == Write(
        LeaseSpec(
            holder_identity="me",
            lease_duration_seconds=15,
            acquire_time="now",
            renew_time="now",
            lease_transitions=0,
        ),
        "",
    )


def test_lease_of_another_is_left_alone_until_it_expires() -> None:
    elector = follower_of("other")
    assert elector.next(100, "now", watching=True) == Wait(100 + LEASE_S)
    assert elector.next(114.9, "now", watching=True) == Wait(100 + LEASE_S)
    write = elector.next(115, "now", watching=True)
    assert isinstance(write, Write)
    assert (write.resource_version, write.spec.holder_identity) == ("5", "me")
    assert (write.spec.lease_transitions, write.spec.acquire_time) == (1, "now")


def test_a_renewal_by_the_other_starts_the_wait_anew() -> None:
    elector = follower_of("other")
    elector.saw(lease("other", 6), 114, live=False)
    assert elector.next(115, "now", watching=True) == Wait(114 + LEASE_S)


def test_a_renewal_that_is_known_already_does_not() -> None:
    elector = follower_of("other")
    elector.saw(lease("other", 5), 114, live=True)
    assert isinstance(elector.next(115, "now", watching=True), Write)


def test_older_lease_from_the_watch_changes_nothing() -> None:
    elector = leader(version=7)
    elector.saw(lease("other", 6), 101, live=False)
    assert elector.leads(101)


def test_a_read_after_the_servers_data_were_restored_is_believed() -> None:
    elector = follower_of("other", version=500)
    elector.saw(lease("third", 20), 101, live=True)
    assert elector.holder == "third"


def test_a_released_lease_is_taken_at_once() -> None:
    elector = follower_of("other")
    elector.saw(lease("", 6, duration_s=1), 101, live=False)
    assert isinstance(elector.next(101, "now", watching=True), Write)


def test_deleted_lease_stays_reserved_for_its_holder() -> None:
    elector = follower_of("other")
    elector.missing("6")
    assert elector.next(101, "now", watching=True) == Wait(100 + LEASE_S)
    assert isinstance(elector.next(115, "now", watching=True), Write)


def test_older_deletion_of_the_lease_changes_nothing() -> None:
    elector = follower_of("other", version=9)
    elector.missing("8")
    assert elector.holder == "other"


def test_without_a_watch_the_lease_is_polled() -> None:
    """A poll follows each retry period, with jitter."""
    elector = Elector("me", SETTINGS)
    elector.saw(lease("other", 5), 100, live=True)
    elector.polled(100, 1.0)
    due = 100 + RETRY_S * 2.2
    assert elector.next(100.1, "now", watching=False) == Wait(due)
    assert elector.next(due, "now", watching=False) == Read()


def test_leader_renews_each_retry_period_and_keeps_its_acquire_time() -> None:
    elector = leader(sent_at=100)
    assert elector.next(100.5, "later", watching=True) == Wait(102)
    write = elector.next(102, "later", watching=True)
    assert isinstance(write, Write)
    assert write.resource_version == "7"
    assert (write.spec.acquire_time, write.spec.renew_time) == ("now", "later")
    assert write.spec.lease_transitions == 0


def test_leadership_counts_from_when_the_renewal_was_sent() -> None:
    elector = leader(sent_at=100)
    write = elector.next(102, "later", watching=True)
    assert isinstance(write, Write)
    elector.wrote(answer(write, 8), sent_at=102, now=106)
    assert elector.leads_until == 102 + DEADLINE_S


def test_an_answer_that_comes_after_its_deadline_makes_no_leader() -> None:
    elector = Elector("me", SETTINGS)
    elector.missing()
    write = elector.next(100, "now", watching=True)
    assert isinstance(write, Write)
    elector.wrote(answer(write, 7), sent_at=100, now=111)
    assert not elector.leads(111)


def test_leader_that_cannot_renew_stops_at_the_deadline() -> None:
    """The leader tries again in each retry period."""
    elector = leader(sent_at=100)
    elector.failed(102, 0.5)
    assert elector.next(102, "later", watching=False) == Wait(104)
    elector.failed(108.5, 0.5)
    assert elector.next(108.5, "later", watching=False) == Wait(110)
    assert elector.leads(109.99)
    assert not elector.leads(110)


def test_a_leader_that_meets_a_conflict_reads_at_once() -> None:
    elector = leader(sent_at=100)
    elector.conflicted(102, 0.5)
    assert elector.next(102.1, "later", watching=True) == Read()
    elector.saw(lease("me", 8), 102.2, live=True)
    assert isinstance(elector.next(102.2, "later", watching=True), Write)


def test_a_second_conflict_in_a_row_waits() -> None:
    elector = leader(sent_at=100)
    elector.conflicted(102, 0.0)
    elector.saw(lease("me", 7), 102.1, live=True)
    elector.conflicted(102.2, 0.0)
    assert elector.next(102.3, "later", watching=True) == Wait(102.2 + RETRY_S)


def test_a_leader_that_sees_another_holder_stops_at_once() -> None:
    elector = leader(sent_at=100)
    elector.saw(lease("other", 8), 101, live=False)
    assert not elector.leads(101)
    assert elector.next(101, "later", watching=True) == Wait(101 + LEASE_S)


def test_an_answer_that_another_holder_has_overtaken_makes_no_leader() -> None:
    elector = Elector("me", SETTINGS)
    elector.missing()
    write = elector.next(100, "now", watching=True)
    assert isinstance(write, Write)
    elector.saw(lease("other", 9), 100.1, live=False)
    elector.wrote(answer(write, 7), 100, 100.2)
    assert not elector.leads(100.2)


def test_a_leader_whose_lease_was_deleted_creates_it_at_once() -> None:
    elector = leader(sent_at=100)
    elector.missing("8")
    write = elector.next(101, "later", watching=True)
    assert isinstance(write, Write)
    assert write.resource_version == ""


def test_one_that_fails_to_acquire_waits_a_jittered_retry_period() -> None:
    elector = Elector("me", SETTINGS)
    elector.failed(100, 0.5)
    assert elector.next(100, "now", watching=True) == Wait(100 + RETRY_S * 1.6)


def test_one_whose_leadership_ran_out_reads_before_it_writes() -> None:
    elector = leader(sent_at=100)
    elector.resign()
    assert elector.next(130, "later", watching=True) == Read()


def test_release_names_no_holder_and_ends_the_leadership() -> None:
    elector = leader(sent_at=100)
    write = elector.release("end")
    assert write is not None
    assert (write.spec.holder_identity, write.spec.lease_duration_seconds) == ("", 1)
    assert write.resource_version == "7"
    assert not elector.leads(100)


@pytest.mark.parametrize("elector", [Elector("me", SETTINGS), follower_of("other")])
def test_only_the_holder_releases(elector: Elector) -> None:
    assert elector.release("end") is None


def test_the_holders_own_duration_counts() -> None:
    elector = Elector("me", SETTINGS)
    elector.saw(lease("other", 5, duration_s=40), 100, live=True)
    assert elector.next(116, "now", watching=True) == Wait(140)


def test_a_fraction_of_a_second_is_rounded_up() -> None:
    elector = Elector("me", dataclasses.replace(SETTINGS, lease_duration_s=14.2))
    elector.missing()
    write = elector.next(0, "now", watching=True)
    assert isinstance(write, Write)
    assert write.spec.lease_duration_seconds == 15


def test_an_elector_needs_an_identity() -> None:
    with pytest.raises(ValueError, match="identity"):
        Elector("", SETTINGS)


def test_nobody_leads_before_anything_is_known() -> None:
    assert Elector("me", SETTINGS).leads_until == -math.inf
