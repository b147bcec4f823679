"""Settings and clusters that make no sense: each gang hears what to do next, and no half gang comes of it."""

from dataclasses import replace

import pytest
from gangs_waiting import NOW_S, after, gang, holding, let_in, node, nodes, state

from torchctl.controllers.coordinator.core import decide
from torchctl.controllers.coordinator.decision import TakeBack, Why
from torchctl.controllers.coordinator.values import Demand, Limits, Preemption, Queue, Taint

BUSY = Taint("pool", "other", "NoSchedule")


def test_a_cluster_without_nodes_says_so() -> None:
    (told,) = decide(state([gang("a")])).told
    assert (told.why, told.message) == (
        Why.NEVER_FITS,
        "the cluster has no nodes: the job is let in once there are enough",
    )


def test_a_queue_whose_nodes_do_not_exist_names_the_label() -> None:
    asked = gang("a", shape=replace(gang("a").shape, selector=(("pool", "h100"),)))
    there = [node("n0", labels={"pool": "a100"})]
    (told,) = decide(state([asked], there)).told
    assert (told.why, told.message) == (
        Why.NEVER_FITS,
        "no node has label pool=h100, it is a100 there: correct nodeSelector, or label nodes",
    )


def test_nodes_that_are_all_tainted_name_the_taint() -> None:
    (told,) = decide(state([gang("a")], [node("n0", taints=(BUSY,))])).told
    assert told.why is Why.NEVER_FITS
    assert told.message == (
        "1 node would do if the pods tolerated taints (scheduling.tolerations): pool=other:NoSchedule"
    )


def test_tainted_nodes_are_named_beside_those_that_match() -> None:
    """Else a job without the toleration of GPU nodes is told that the cluster has no GPUs."""
    taint = Taint("nvidia.com/gpu", "present", "NoSchedule")
    there = [
        node("cpu", 0),
        node("gpu-0", taints=(taint,)),
        node("gpu-1", taints=(taint,)),
        node("small", 4, taints=(BUSY,)),
    ]
    why = "2 nodes would do if the pods tolerated taints (scheduling.tolerations): nvidia.com/gpu=present:NoSchedule"
    (told,) = decide(state([gang("a")], there)).told
    assert (told.why, told.message.split("; ")[1:]) == (Why.NEVER_FITS, [why])
    (told,) = decide(state([gang("a", 2)], [*there, node("free")])).told
    assert (told.why, told.message.split("; ")[1:]) == (Why.NEVER_FITS, [why])
    assert "numNodes 1 would fit" in told.message


def test_tainted_nodes_that_are_too_small_name_the_size() -> None:
    (told,) = decide(state([gang("a")], [node("n0", 4, taints=(BUSY,))])).told
    assert told.message == (
        "no node that matches has 8 nvidia.com/gpu (the nearest node has 4 nvidia.com/gpu): "
        "pods with 4 nvidia.com/gpu would fit"
    )


@pytest.mark.parametrize("cohort", ["", "c"])
@pytest.mark.parametrize(
    ("quota", "field"),
    [(Limits(gpus=0), "gpus"), (Limits(cpus=1), "cpus"), (Limits(memory=1), "memory"), (Limits(jobs=0), "jobs")],
)
def test_a_quota_below_a_single_job_names_the_field(quota: Limits, field: str, cohort: str) -> None:
    """Also in a cohort that owns no more than that."""
    asked = replace(gang("a"), demand=Demand(gpus=8, cpus=4000, memory=2**30))
    (told,) = decide(state([asked], nodes(4), queues=[Queue(key="q", quota=quota, cohort=cohort)])).told
    assert told.why is Why.NEVER_FITS
    assert told.message.endswith(f"ask for less, or raise quota.{field}")


@pytest.mark.parametrize("preemption", [*Preemption])
def test_a_queue_that_is_its_own_cohort_lends_itself_nothing(preemption: Preemption) -> None:
    """A cohort is a name and not another queue, so nothing can go round in circles."""
    queue = Queue(key="q", quota=Limits(gpus=8), cohort="q", preemption=preemption)
    running = holding(gang("r"), [("n0", 1)])
    there = [node("n0", used=8), *nodes(3)[1:]]
    decision = decide(state([gang("a", since_s=0)], there, [running], [queue]))
    assert (decision.let_in, decision.preempt) == ((), ())
    assert decision.told[0].message == "the job takes 8 GPUs, and cohort q has 0 GPUs of its quota left"


def test_nodes_that_vanish_before_the_start_cost_the_place() -> None:
    """Whoever was let in for them loses its place after a while, and hears what would fit now."""
    before = state([gang("a", 2)], nodes(2))
    late = replace(after(before, decide(before)), nodes=nodes(1), now_s=NOW_S + 300)
    assert decide(late).take_back == (TakeBack("a", 2),)
    (told,) = decide(state([gang("a", 2)], nodes(1), now_s=NOW_S + 300)).told
    assert told.why is Why.NEVER_FITS
    assert told.message == (
        "the nodes take 1 pod with 8 nvidia.com/gpu each even if nothing else runs, and the job has 2: "
        "numNodes 1 would fit"
    )


def test_nothing_starts_on_room_of_a_gang_whose_node_vanished() -> None:
    """Its lost pod comes back and wants the room that is left."""
    hurt = replace(holding(gang("a", 2), [("n0", 1)]), has_run=True)
    decision = decide(state([gang("b")], [node("n0", used=8), node("n1")], [hurt]))
    assert let_in(decision) == []
    assert decision.told[0].why is Why.NODES


def test_another_scheduler_on_the_nodes_never_makes_half_a_gang() -> None:
    """It takes a node after the gang was let in: the gang loses its place as a whole, and nobody gets in before."""
    before = state([gang("a", 2)], nodes(2))
    taken = replace(after(before, decide(before)), nodes=(node("n0", used=8), node("n1")))
    soon = replace(taken, waiting=(gang("b"),), now_s=NOW_S + 10)
    assert (let_in(decide(soon)), decide(soon).take_back) == ([], ())
    late = replace(taken, now_s=NOW_S + 300)
    assert decide(late).take_back == (TakeBack("a", 2),)
    (told,) = decide(state([gang("a", 2)], taken.nodes)).told
    assert (told.why, told.message) == (
        Why.NODES,
        "1 of 2 pods with 8 nvidia.com/gpu each finds a node now, 1 short",
    )
