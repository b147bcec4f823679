"""Why a gang waits, in Volcano's words, and in ours where Volcano says nothing."""

from typing import Any

import pytest
from gangjobs import TRAIN, group_in, queued
from world import World

from torchctl.api.volcano import VolcanoPodGroup
from torchctl.controllers.gangs.scheduler import Said
from torchctl.controllers.gangs.volcano import FrozenVolcano
from torchctl.runtime.kinds import ObjectMeta

FITS_NOT = "2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable"


def condition(type_: str, at: str, message: str = "", reason: str = "") -> dict[str, Any]:
    return {
        "type": type_,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": f"2026-01-01T00:00:{at}Z",
        "transitionID": "changes-with-every-session",
    }


UNSCHEDULABLE = condition("Unschedulable", "10", FITS_NOT, "NotEnoughResources")
SCHEDULED = condition("Scheduled", "20", "tasks in gang are ready to be scheduled")


def test_volcanos_words_are_the_admitted_message(world: type[World]) -> None:
    w = queued(world)
    w.volcano_says("Inqueue", UNSCHEDULABLE)
    w.settle()
    name = group_in(w)["metadata"]["name"]
    assert w.condition("Admitted") == ("False", "WaitingForAdmission", f"PodGroup {name}: {FITS_NOT}")
    assert w.phase == "Queued"


def test_gang_that_volcano_has_not_seen_waits_in_its_queue(world: type[World]) -> None:
    assert queued(world).condition("Admitted")[2] == "waits for 16 GPUs in Volcano's Queue train"


@pytest.mark.parametrize(
    ("phase", "conditions", "words"),
    [
        ("Pending", [UNSCHEDULABLE], FITS_NOT),
        ("Inqueue", [UNSCHEDULABLE], FITS_NOT),
        ("Unknown", [SCHEDULED, condition("Unschedulable", "30", "1 Pending, 1 Running")], "1 Pending, 1 Running"),
        ("Inqueue", [UNSCHEDULABLE, SCHEDULED], ""),
        ("Inqueue", [condition("Unschedulable", "20", FITS_NOT), SCHEDULED], FITS_NOT),
        ("Inqueue", [SCHEDULED, condition("Unschedulable", "20", FITS_NOT)], FITS_NOT),
        ("Inqueue", [condition("Unschedulable", "10", "", "NotEnoughResources")], "NotEnoughResources"),
        ("Running", [UNSCHEDULABLE], ""),
        ("Completed", [UNSCHEDULABLE, SCHEDULED], ""),
        ("Inqueue", [], ""),
        ("", [], ""),
    ],
)
def test_youngest_condition_of_a_waiting_pod_group_counts(
    world: type[World], phase: str, conditions: list[dict[str, Any]], words: str
) -> None:
    """Volcano turns no condition False, so that an old wait is still True on a gang that runs."""
    w = queued(world)
    w.volcano_says(phase, *conditions)
    assert w.seen.podgroup is not None
    assert TRAIN.said(w.seen.podgroup, "Open") == Said(words)


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("", "its Queue train does not exist; create it, or name another in"),
        ("Closed", "its Queue train is Closed and takes in no more pods; open it"),
        ("Closing", "its Queue train is Closing"),
    ],
)
def test_queue_that_takes_no_pods_is_named(world: type[World], state: str, says: str) -> None:
    """Of a missing Queue the PodGroup says nothing for ever, of a closed one something about 0 tasks."""
    w = queued(world)
    w.volcano_says("Pending" if state else "", *([UNSCHEDULABLE] if state else []))
    w.volcano_queue_is(state)
    w.settle()
    status, reason, message = w.condition("Admitted")
    assert (status, reason) == ("False", "WaitingForAdmission")
    assert says in message


SINGLY = "{image: a:1, scheduling: {volcanoQueue: train, gang: false}}"


@pytest.mark.parametrize("state", ["", "Closed", "Closing"])
def test_pods_without_a_gang_wait_for_their_queue_too(world: type[World], state: str) -> None:
    w = queued(world, queue=SINGLY)
    w.volcano_queue_is(state)
    w.settle()
    status, reason, message = w.condition("Admitted")
    assert (status, reason, "its Queue train" in message) == ("False", "WaitingForAdmission", True)
    w.volcano_queue_is("Open")
    w.settle()
    assert w.condition("Admitted")[:2] == ("True", "NoGang")


def test_queue_that_closes_later_says_nothing_of_placed_pods(world: type[World]) -> None:
    w = queued(world, queue=SINGLY).runs()
    w.volcano_queue_is("Closed")
    w.settle()
    assert w.condition("Admitted") == (
        "True",
        "NoGang",
        "no gang: the pods are placed one by one in Volcano's Queue train",
    )


def test_queue_that_volcano_chose_is_the_one_that_is_named() -> None:
    """Its webhook moves a PodGroup that names none to the Queue of the namespace."""
    group = VolcanoPodGroup(ObjectMeta(name="pg"), {"minMember": 2, "queue": "of-the-team"})
    said = FrozenVolcano(gang=True).said(group, "Closed")
    assert said.words == "its Queue of-the-team is Closed and takes in no more pods"


def test_queue_of_unknown_state_hides_nothing() -> None:
    group = VolcanoPodGroup(ObjectMeta(name="pg"))
    assert [TRAIN.said(group, state) for state in (None, "Open", "Unknown")] == [Said()] * 3


def test_gang_whose_pods_are_placed_is_admitted_whatever_conditions_say(world: type[World]) -> None:
    w = queued(world)
    w.volcano_says("Inqueue", UNSCHEDULABLE)
    w.runs()
    assert w.condition("Admitted")[:2] == ("True", "Admitted")
    w.volcano_says("Unknown", UNSCHEDULABLE)
    w.volcano_queue_is("Closed")
    w.settle()
    assert w.condition("Admitted")[:2] == ("True", "Admitted")


def test_smaller_pod_group_is_reported(world: type[World]) -> None:
    """Somebody has made the PodGroup smaller, and pods say that they are in it."""
    w = queued(world)
    w.volcano_says("Inqueue", UNSCHEDULABLE)
    group = w.seen.podgroup
    assert group is not None
    smaller = VolcanoPodGroup(group.metadata, {**group.spec, "minMember": 1})
    w.is_in({smaller.metadata.name: smaller}, 0, 1)
    w.settle()
    status, reason, message = w.condition("Admitted")
    assert (status, reason) == ("False", "GangTooSmall")
    assert "whose minMember is 1 and not 2" in message
    assert "scheduling.k8s.io/group-name" in message


def test_pod_that_would_fit_is_no_problem_of_the_gang(world: type[World]) -> None:
    """Volcano marks pods that fit as not scheduled too, with reason Schedulable."""
    w = queued(world)
    scheduled = {"type": "PodScheduled", "status": "False"}
    w.worker(0, "Pending", node="", conditions=[scheduled | {"reason": "Schedulable", "message": "can be assigned"}])
    w.worker(1, "Pending", node="", conditions=[scheduled | {"reason": "Unschedulable", "message": "no GPUs"}])
    w.settle()
    _, reason, message = w.condition("WorkersReady")
    assert (reason, message.partition(";")[0]) == ("Unschedulable", "pod demo-1-x: no GPUs")
