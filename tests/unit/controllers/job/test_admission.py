"""Admission is judged from the PodGroups that the pods are really in, and told in KAI's own words."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import KAI_PODGROUP, POD, KaiPodGroup, Pod, SchedulingGroup
from torchctl.controllers.finding import Finding
from torchctl.controllers.gangs.groups import groups_of
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.steps import admission
from torchctl.controllers.job.template.frozen import (
    FrozenElastic,
    FrozenKai,
    FrozenRendezvous,
    FrozenTemplate,
    FrozenTopology,
)
from torchctl.runtime.kinds import Kind

OURS, THEIRS = "pg-demo-0c5f", "pg-demo-4711"
QUEUED = FrozenKai(queue="gpus", gang=True)


def assess(observed: Observed, frozen: FrozenTemplate, groups: Mapping[str, KaiPodGroup] | None = None) -> Finding:
    """With the PodGroups that the pods are in and that exist."""
    return admission.assess(replace(observed, groups=groups or {}), frozen, coordinator=False)


def decoded(kind: Kind[Any], body: Any) -> Any:
    return msgspec.convert(body, kind.type, dec_hook=kind.dec_hook)


def template(*, kai: FrozenKai = QUEUED, nodes: int = 3, elastic: FrozenElastic | None = None) -> FrozenTemplate:
    return FrozenTemplate(
        queue="research",
        nodes=nodes,
        elastic=elastic,
        gpus_per_node=8,
        nproc_per_node=8,
        backend="nccl",
        rendezvous=FrozenRendezvous(backend="c10d", port=29500),
        cluster_domain="cluster.local",
        operator_image="torchctl:test",
        kai=kai,
        pod={"metadata": {}, "spec": {}},
    )


def pod(index: int, group: str = OURS, node: str = "") -> Pod:
    annotations = {"batch.kubernetes.io/job-completion-index": str(index)}
    meta = {"name": f"demo-{index}-x", "annotations": annotations | ({"pod-group-name": group} if group else {})}
    found: Pod = decoded(POD, {"metadata": meta, "spec": {"nodeName": node}})
    return found


def group(name: str = OURS, least: int | None = 3, *said: str, reason: str = "PodSchedulingErrors") -> KaiPodGroup:
    """A PodGroup as KAI leaves it, with its reasons for not placing it."""
    reasons = [{"reason": reason, "message": text} for text in said]
    condition = {"type": "UnschedulableOnNodePool", "status": "True", "reason": "Unschedulable", "reasons": reasons}
    spec = {"minMember": least} if least is not None else {}
    status = {"schedulingConditions": [condition]} if said else None
    found: KaiPodGroup = decoded(KAI_PODGROUP, {"metadata": {"name": name}, "spec": spec, "status": status})
    return found


def seen(*pods: Pod, own: KaiPodGroup | None = None, absent: frozenset[Kind[Any]] = frozenset()) -> Observed:
    spec = {"jobQueue": "research", "numNodes": 3, "command": "python train.py"}
    job = decoded(TORCHRUN_JOB, {"metadata": {"name": "demo", "namespace": "team", "uid": "0c5f"}, "spec": spec})
    return Observed(job=job, pods=pods, podgroup=own, absent=absent)


def waiting(name: str = OURS) -> tuple[Pod, ...]:
    return tuple(pod(index, name) for index in range(3))


def test_the_pod_groups_of_pods_are_those_that_they_name() -> None:
    assert groups_of((pod(0), pod(1, THEIRS), pod(2, ""))) == {OURS, THEIRS}


def test_group_of_kubernetes_own_is_no_news_of_kais_gang() -> None:
    """With the gate WorkloadWithJob the Job controller puts every fixed job's pods into one."""
    both = SchedulingGroup(pod_group_name="workloads")
    pods = (
        msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, scheduling_group=both)) for one in waiting()
    )
    found = assess(seen(*pods), template(), {OURS: group(OURS, 3), "workloads": group("workloads", 1)})
    assert (found.ok, found.reason) == (False, "WaitingForAdmission")


def test_a_waiting_gang_lists_kais_reasons_in_stable_order() -> None:
    said = ("queue gpus is over its limit", "no node has 8 GPUs")
    for reasons in (said, said[::-1]):
        found = assess(seen(*waiting()), template(), {OURS: group(OURS, 3, *reasons)})
        assert (found.ok, found.reason, found.warn) == (False, "WaitingForAdmission", True)
        assert found.message == f"PodGroup {OURS}: no node has 8 GPUs; queue gpus is over its limit"


@pytest.mark.parametrize(
    ("reason", "step"),
    [
        ("OverLimit", "; raise the limit of the KAI Queue, or wait for its other jobs"),
        ("NonPreemptibleOverQuota", "; raise the quota of the KAI Queue, or take a priority class below 100"),
        ("QueueDoesNotExist", "; create the KAI Queue and those that are its parents"),
        ("PodSchedulingErrors", ""),
        ("ReasonOfALaterKai", ""),
    ],
)
def test_what_a_person_can_do_about_kais_reason_follows_it(reason: str, step: str) -> None:
    found = assess(seen(*waiting()), template(), {OURS: group(OURS, 3, "no", reason=reason)})
    assert found.message == f"PodGroup {OURS}: no{step}"


def test_a_missing_topology_level_is_suspected_without_kais_reason() -> None:
    """KAI 0.17 says no more than this of a level that it does not find."""
    said = {"type": "UnschedulableOnNodePool", "status": "True", "message": "Unable to schedule podgroup"}
    status = {"schedulingConditions": [said]}
    there = {OURS: decoded(KAI_PODGROUP, {"metadata": {"name": OURS}, "spec": {"minMember": 3}, "status": status})}
    placed = template(kai=FrozenKai(queue="gpus", gang=True, topology=FrozenTopology(name="net", required="rack")))
    assert assess(seen(*waiting()), template(), there).message == f"PodGroup {OURS}: Unable to schedule podgroup"
    assert "; see whether KAI's Topology net has the levels" in assess(seen(*waiting()), placed, there).message


def test_a_gang_without_kais_answer_waits_in_its_queue() -> None:
    for groups in ({}, {OURS: group()}):
        found = assess(seen(*waiting()), template(), groups)
        assert (found.reason, found.message) == ("WaitingForAdmission", "waits for 24 GPUs in KAI queue gpus")
        assert not found.warn


def test_the_jobs_own_pod_group_counts_without_others() -> None:
    found = assess(seen(*waiting(), own=group(OURS, 3, "no room")), template())
    assert found.message == f"PodGroup {OURS}: no room"


@pytest.mark.parametrize("least", [1, 2, None])
def test_pods_in_a_foreign_smaller_gang_get_a_next_step(least: int | None) -> None:
    """Somebody else put the pods into a smaller gang; the message says what to do."""
    found = assess(seen(*waiting(THEIRS)), template(), {THEIRS: group(THEIRS, least)})
    assert (found.ok, found.reason, found.warn) == (False, "GangTooSmall", True)
    assert f"the pods are in PodGroup {THEIRS}, whose minMember is {least or 1} and not 3" in found.message
    assert "skip-podgrouper (KAI-Scheduler 0.15 and later do)" in found.message


def test_a_foreign_gang_of_the_right_size_is_good_enough() -> None:
    found = assess(seen(*waiting(THEIRS)), template(), {THEIRS: group(THEIRS, 3, "no room")})
    assert (found.reason, found.message) == ("WaitingForAdmission", f"PodGroup {THEIRS}: no room")


def test_an_unseen_pod_group_is_not_the_requested_one() -> None:
    found = assess(seen(*waiting(THEIRS), own=group()), template())
    assert (found.reason, f"the pods are in PodGroup {THEIRS} and not in {OURS}" in found.message) == (
        "GangTooSmall",
        True,
    )


def test_pods_in_several_pod_groups_are_no_gang() -> None:
    """The size of each group does not matter."""
    groups = {OURS: group(), THEIRS: group(THEIRS)}
    found = assess(seen(pod(0), pod(1), pod(2, THEIRS)), template(), groups)
    assert (found.reason, "in 2 PodGroups" in found.message) == ("GangTooSmall", True)


def test_a_single_pod_is_a_gang_in_any_group() -> None:
    found = assess(seen(pod(0, THEIRS)), template(nodes=1), {THEIRS: group(THEIRS, 1)})
    assert found.reason == "WaitingForAdmission"


def test_kai_makes_the_gang_of_its_default_queue() -> None:
    """The operator reads that gang back."""
    kais = template(kai=FrozenKai(gang=True))
    assert assess(seen(*waiting(THEIRS)), kais, {}).message == "waits for 24 GPUs in KAI's default queue"
    assert assess(seen(*waiting(THEIRS)), kais, {THEIRS: group(THEIRS, 1)}).reason == "GangTooSmall"
    assert assess(seen(*waiting(THEIRS)), kais, {THEIRS: group(THEIRS, 3)}).reason == "WaitingForAdmission"


def test_a_gang_is_admitted_once_all_pods_are_placed() -> None:
    """A gang in another's PodGroup is admitted in the same way."""
    placed = tuple(pod(index, THEIRS, f"node-{index}") for index in range(3))
    found = assess(seen(*placed), template(), {THEIRS: group(THEIRS, 1)})
    assert (found.ok, found.reason, found.message) == (True, "Admitted", "all 3 pods are placed")
    assert not assess(seen(*placed[:2]), template(), {THEIRS: group(THEIRS, 1)}).ok


def test_an_elastic_gang_without_worker_0_is_not_admitted() -> None:
    """The others wait for it: its store is where they meet."""
    elastic = FrozenElastic(min_nodes=2, max_nodes=3)
    placed = seen(pod(0), pod(1, OURS, "node-1"), pod(2, OURS, "node-2"))
    found = assess(placed, template(elastic=elastic))
    assert (found.ok, found.reason) == (False, "WaitingForAdmission")
    assert "not worker 0" in found.message
    apart = FrozenRendezvous(backend="c10d", port=29500, endpoint="store.test:29500")
    assert assess(placed, msgspec.structs.replace(template(elastic=elastic), rendezvous=apart)).ok


def test_an_elastic_gang_is_admitted_with_the_fewest_pods() -> None:
    elastic = template(elastic=FrozenElastic(min_nodes=2, max_nodes=8))
    pods = (pod(0, OURS, "node-0"), pod(1, OURS, "node-1"), pod(2))
    found = assess(seen(*pods), elastic, {OURS: group(OURS, 2)})
    assert (found.ok, found.message) == (True, "placed pods: 2, of 2 that are enough")
    assert not assess(seen(*pods[1:]), elastic, {OURS: group(OURS, 2)}).ok


def test_without_kai_the_condition_says_what_to_install() -> None:
    found = assess(seen(absent=frozenset({KAI_PODGROUP})), template())
    assert (found.reason, "install KAI-Scheduler" in found.message) == ("KaiNotInstalled", True)
