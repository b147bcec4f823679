"""Statuses of running jobs that are removed or set back: the days, their rules, and defects that break them."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from torchctl.api.job import TORCHRUN_JOB
from torchctl.controllers import ownership
from torchctl.controllers.job.attempts import recovery
from torchctl.testing.fake.objects import Changed
from torchctl.testing.fake.served import Served
from torchctl.testing.sim.days.actions import Day, Fate, LoseStatus, Submit
from torchctl.testing.sim.days.living import live
from torchctl.testing.sim.days.losses import Losses
from torchctl.testing.sim.kinds import cluster_kinds

Patch = pytest.MonkeyPatch
Statuses = tuple[LoseStatus, ...]

REMOVED = (LoseStatus(260, "job"),)
SECOND_ATTEMPT = (LoseStatus(280, "job", 235),)
INCIDENT = (LoseStatus(280, "job", 219.5),)
AGAIN_AND_AGAIN = (LoseStatus(260, "job"), LoseStatus(280, "job", 200), LoseStatus(285, "job"))
"""The third attempt has run for three minutes then, and the second one failed after the first minute."""


def day(losses: Statuses, kind: str = "plain") -> Day:
    submit = Submit(1.0, "job", kind, 2, Fate(300, failing_attempts=2, after_s=20))
    return Day(1, 0.12, (submit, *losses), coordinated=kind == "modest")


@pytest.mark.parametrize(
    ("losses", "kind"),
    [
        (REMOVED, "elastic"),
        (REMOVED, "modest"),
        (SECOND_ATTEMPT, "elastic"),
        (INCIDENT, "elastic"),
        (AGAIN_AND_AGAIN, "elastic"),
        (AGAIN_AND_AGAIN, "modest"),
    ],
)
def test_a_job_goes_on_without_its_status(losses: Statuses, kind: str) -> None:
    told = live(day(losses, kind))
    assert (told.broken, dict(told.ends)) == ((), {"Succeeded": 1})


def ended(failing_attempts: int) -> Day:
    """The status of a job is removed after its end, once and again."""
    submit = Submit(1.0, "job", "plain", 2, Fate(60, failing_attempts=failing_attempts, after_s=5))
    return Day(1, 0.3, (submit, LoseStatus(700, "job"), LoseStatus(900, "job")))


@pytest.mark.parametrize(("failing_attempts", "end"), [(0, "Succeeded"), (1, "Succeeded"), (9, "Failed")])
def test_a_job_that_has_ended_does_not_train_again(failing_attempts: int, end: str) -> None:
    told = live(ended(failing_attempts))
    assert (told.broken, {name: count for name, count in told.ends.items() if count}) == ((), {end: 1})


def test_a_job_that_trains_again_after_its_end_is_noticed(monkeypatch: Patch) -> None:
    recovers_nothing(monkeypatch)
    assert live(ended(1)).broken


TAKEN_UP = recovery.recovered


def recovers_nothing(patch: Patch) -> None:
    patch.setattr(recovery, "recovered", lambda *_: None)


def believes_an_older_status(patch: Patch) -> None:
    patch.setattr(recovery, "recovered", lambda observed, now: _if_removed(observed, now))


def _if_removed(observed: Any, now: Any) -> Any:
    return None if observed.job.status.conditions else TAKEN_UP(observed, now)


def takes_up(patch: Patch, fields: Callable[[Any, Any], dict[str, Any]]) -> None:
    """Lets the operator write other fields than it should."""

    def wrong(observed: Any, now: Any) -> Any:
        found = TAKEN_UP(observed, now)
        return found and msgspec.structs.replace(found, **fields(observed.job.status, found))

    patch.setattr(recovery, "recovered", wrong)


def begins_again(patch: Patch) -> None:
    takes_up(patch, lambda _, found: {"attempt": 0})


def takes_the_next_attempt(patch: Patch) -> None:
    takes_up(patch, lambda _, found: {"attempt": found.attempt + 1})


def keeps_the_incident(patch: Patch) -> None:
    takes_up(patch, lambda status, _: {"incident": status.incident})


def keeps_the_host(patch: Patch) -> None:
    takes_up(patch, lambda status, _: {"host_uid": status.host_uid})


def leaves_what_came_back(patch: Patch) -> None:
    patch.setattr(ownership, "surplus", lambda *_: {})


@pytest.mark.parametrize(
    ("defect", "losses", "kind"),
    [
        (recovers_nothing, REMOVED, "plain"),
        (believes_an_older_status, SECOND_ATTEMPT, "plain"),
        (begins_again, REMOVED, "plain"),
        (takes_the_next_attempt, REMOVED, "plain"),
        (keeps_the_incident, INCIDENT, "elastic"),
        (keeps_the_host, SECOND_ATTEMPT, "elastic"),
        (leaves_what_came_back, SECOND_ATTEMPT, "elastic"),
    ],
)
def test_defects_break_a_rule(defect: Callable[[Patch], None], losses: Statuses, kind: str, monkeypatch: Patch) -> None:
    defect(monkeypatch)
    assert live(day(losses, kind)).broken


@pytest.mark.parametrize(
    ("until_s", "written"), [(None, {}), (5.0, {}), (10.0, {"attempt": 0}), (99.0, {"attempt": 1})]
)
def test_a_status_is_set_back_to_what_it_was(until_s: float | None, written: dict[str, int]) -> None:
    losses, found = Losses(), list[Any]()
    served = next(one for one in cluster_kinds() if one.kind == TORCHRUN_JOB)
    for attempt, since_s in enumerate((10.0, 20.0)):
        losses.on_change(is_in(served, attempt), since_s)
    losses.lose("uid", until_s, lambda status: found.append((status, losses.concerns("uid"), losses.concerns("other"))))
    assert (found, losses.concerns("uid")) == ([(written, True, False)], False)


def is_in(served: Served, attempt: int) -> Changed:
    return Changed(attempt, served, "MODIFIED", None, {"metadata": {"uid": "uid"}, "status": {"attempt": attempt}})
