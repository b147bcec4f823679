"""A gang that has run and lacks pods again: others neither take its room, nor wait for room that there is not."""

from dataclasses import replace

import pytest
from gangobjects import QUEUED, a_job, a_node, a_pod, record, seen
from gangs_waiting import gang, holding, let_in, node, nodes, shape, state

from torchctl.controllers.coordinator.core import decide
from torchctl.controllers.coordinator.decision import Preempt
from torchctl.controllers.coordinator.values import PodShape, Preemption, Queue, State


@pytest.mark.parametrize(
    ("counts", "has_run"),
    [
        ({"pending": 2}, False),
        ({"running": 1, "pending": 1}, False),
        ({"running": 2}, True),
        ({"running": 1, "succeeded": 1}, True),
        ({"pending": 1, "failed": 3}, False),  # one worker of an elastic gang, again and again
    ],
)
def test_a_gang_has_run_if_each_of_its_pods_has(counts: dict[str, int], has_run: bool) -> None:
    """A worker may end before the last one is ready: once its pod is gone, it must not look like one without a node."""
    mine = {"torchrun.ai/job-uid": "job", "torchrun.ai/attempt": "0", "torchrun.ai/role": "worker"}
    status = QUEUED | {"phase": "Starting", "admission": record(letInTime="2026-03-01T07:00:00Z"), "workers": counts}
    state = seen(a_job(status=status), nodes=(a_node(),), pods=(a_pod("n0", mine),))
    assert (state.holdings[0].has_run, decide(state).take_back == ()) == (has_run, has_run)


def lacking(free: int, *, has_run: bool) -> State:
    """Returns a cluster whose elastic gang lacks one of three nodes, with so many GPUs left on the last one."""
    runs = holding(gang("runs", 3), [("n0", 1), ("n1", 1)], has_run=has_run)
    there = [node("n0", used=8), node("n1", used=8), node("n2", used=8 - free)]
    return state([gang("small", gpus=1)], there, [runs])


@pytest.mark.parametrize(("free", "has_run", "lets_in"), [(4, True, True), (8, True, False), (4, False, False)])
def test_nobody_waits_for_a_pod_that_has_no_room_anyway(free: int, has_run: bool, lets_in: bool) -> None:
    """A gang that has run may lack it for ever. One that is being placed loses its place soon."""
    assert bool(let_in(decide(lacking(free, has_run=has_run)))) is lets_in


@pytest.mark.parametrize(("reason", "lets_in"), [("PodsNotCreated", True), ("WorkersReady", False)])
def test_no_node_is_left_to_pods_that_are_refused(reason: str, lets_in: bool) -> None:
    """A ResourceQuota or a webhook may refuse them for ever."""
    mine = {"torchrun.ai/job-uid": "job", "torchrun.ai/attempt": "0", "torchrun.ai/role": "worker"}
    ready = {"type": "WorkersReady", "status": "True", "reason": reason, "lastTransitionTime": "2026-03-01T07:50:00Z"}
    runs = {"admission": record(), "attemptReadyTime": "2026-03-01T07:40:00Z", "workers": {"running": 1}}
    job = a_job(status=QUEUED | runs | {"phase": "Running", "conditions": [ready]})
    after = seen(
        job, a_job("next", numNodes=1), nodes=(a_node("n0"), a_node("n1"), a_node("n2")), pods=(a_pod("n0", mine),)
    )
    assert bool(let_in(decide(after))) is lets_in


@pytest.mark.parametrize("has_run", [True, False])
def test_a_gang_that_starts_waits_for_pods_that_are_refused(has_run: bool) -> None:
    """It loses its place soon, unless they come."""
    runs = holding(gang("runs", 2), [("n0", 1)], has_run=has_run, refused=1)
    there = [node("n0", used=8), node("n1")]
    assert bool(let_in(decide(state([gang("next")], there, [runs])))) is has_run


ODD = shape(8, unmodelled=("volumes",))


@pytest.mark.parametrize(("lacks", "wants"), [(ODD, shape(8)), (shape(8), ODD), (ODD, ODD)])
@pytest.mark.parametrize("has_run", [True, False])
def test_only_gangs_that_have_never_run_are_waited_for(lacks: PodShape, wants: PodShape, has_run: bool) -> None:
    """A volume may bind the missing pod to a node that is gone, and nothing ever takes the gang's room back."""
    runs = holding(gang("runs", 2, shape=lacks), [("n9", 1)], has_run=has_run)
    there = [*nodes(3), node("n9", used=8)]
    assert let_in(decide(state([gang("next", shape=wants)], there, [runs]))) == (["next"] if has_run else [])


def test_places_beside_its_own_pods_are_no_room() -> None:
    """Its pods exclude each other, so that the missing one finds none, and others need not leave one for it."""
    runs = holding(gang("runs", 3, shape=shape(4, one_per_node=True)), [("n0", 1), ("n1", 1)])
    there = [node("n0", used=4), node("n1", used=4)]
    assert let_in(decide(state([gang("next", 2, 4)], there, [runs]))) == ["next"]


def test_gangs_that_lack_pods_share_the_room_there_is() -> None:
    """One node is free: not two of them come to take it, so that one further gang has to leave and no more."""
    lacking = [holding(gang(name, 2, priority=9), [(f"{name}0", 1)]) for name in "ab"]
    low = [holding(gang(f"low{at}"), [(f"l{at}", 1)], let_in_s=float(at)) for at in range(2)]
    there = [node("free"), *(node(name, used=8) for name in ("a0", "b0", "l0", "l1"))]
    queue = Queue(key="q", preemption=Preemption.WITHIN_QUEUE)
    urgent = gang("urgent", priority=5)
    assert decide(state([urgent], there, [*lacking, *low], [queue])).preempt == (Preempt("low1", "urgent"),)


@pytest.mark.parametrize("turned", [False, True])
def test_the_order_of_gangs_that_lack_pods_means_nothing(turned: bool) -> None:
    """One place is free, which one of both may take; a careful gang, for which nodes come, waits for who starts."""
    runs = holding(gang("runs", 2), [("n9", 1)])
    starts = replace(holding(gang("starts", 2), [("n8", 1)], has_run=False), autoscaled=True)
    there = [node("n0"), node("n8", used=8), node("n9", used=8)]
    careful = replace(gang("careful", shape=shape(16, unmodelled=("volumes",))), autoscaled=True)
    assert let_in(decide(state([careful], there, [starts, runs] if turned else [runs, starts]))) == []
