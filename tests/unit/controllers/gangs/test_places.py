"""The places in Kueue's queues that waiting jobs are told: exact near the front, and seldom written."""

from hypothesis import given
from hypothesis import strategies as st

from torchctl.api.kueue import KueuePendingWorkload, KueueWorkload, KueueWorkloadSpec
from torchctl.controllers.gangs.places import EXACT, LIMIT, Places
from torchctl.runtime.kinds import Key, ObjectMeta

QUEUE = Key("team", "train")


def workload(name: str, *, active: bool = True, queue: str = "train") -> KueueWorkload:
    return KueueWorkload(ObjectMeta(name=name, namespace="team"), KueueWorkloadSpec(active=active, queue_name=queue))


def job(name: str) -> Key:
    return Key("team", name)


def listed(*names: str, before: int = 0) -> list[KueuePendingWorkload]:
    """The first thousand of a LocalQueue, as Kueue lists them."""
    places = enumerate(names[:LIMIT], before)
    return [KueuePendingWorkload(ObjectMeta(name=name), place) for place, name in places]


def test_place_is_told_once_it_was_read() -> None:
    places = Places()
    assert places.words(job("a"), workload("a")) == ""
    assert places.learn(QUEUE, listed("b", "a")) == [job("a")]
    assert places.words(job("a"), workload("a")) == "place 2 of its ClusterQueue"


def test_unchanged_place_wakes_nobody() -> None:
    places = Places()
    places.words(job("a"), workload("a"))
    places.learn(QUEUE, listed("b", "a"))
    assert places.learn(QUEUE, listed("c", "a")) == []


def test_place_far_back_is_a_round_number() -> None:
    places = Places()
    places.words(job("a"), workload("a"))
    places.learn(QUEUE, listed("a", before=73))
    assert places.words(job("a"), workload("a")) == "50 or more before it in its ClusterQueue"


def test_workload_behind_all_that_are_listed_is_counted() -> None:
    places = Places()
    places.words(job("a"), workload("a"))
    assert places.learn(QUEUE, listed(*map(str, range(LIMIT + 5)))) == [job("a")]
    assert places.words(job("a"), workload("a")) == "1000 or more before it in its ClusterQueue"


def test_workload_that_kueue_does_not_list_has_no_place() -> None:
    places = Places()
    places.words(job("a"), workload("a"))
    assert places.learn(QUEUE, listed("b")) == []


def test_queue_in_which_nobody_waits_is_not_read() -> None:
    places = Places()
    places.words(job("a"), workload("a"))
    assert list(places.queues) == [QUEUE]
    places.words(job("a"), workload("a", active=False))
    assert list(places.queues) == []


def test_job_that_changes_its_queue_leaves_the_first() -> None:
    places = Places()
    places.words(job("a"), workload("a"))
    places.words(job("a"), workload("a", queue="other"))
    assert places.queues == (Key("team", "other"),)


def test_places_are_forgotten_if_kueue_answers_no_more() -> None:
    places = Places()
    places.words(job("a"), workload("a"))
    places.learn(QUEUE, listed("a"))
    places.lose()
    assert places.words(job("a"), workload("a")) == ""


@given(st.integers(1, 1500), st.integers(1, 40))
def test_job_is_woken_few_times_on_its_way(length: int, leave: int) -> None:
    """However long the queue is, and however many leave between two looks."""
    places, names, woken = Places(), [str(number) for number in range(length)], 0
    last = names[-1]
    places.words(job(last), workload(last))
    while names:
        woken += len(places.learn(QUEUE, listed(*names)))
        names = names[leave:]
    assert woken <= EXACT + 7
