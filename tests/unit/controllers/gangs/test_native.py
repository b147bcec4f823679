"""The gangs of Kubernetes itself: for jobs of fixed size, where they are served, and read back since they are alpha."""

from collections.abc import Callable
from typing import Any

import gangjobs
import msgspec
import pytest
from gangjobs import ELASTIC, TWO, group_in
from specs import decoded
from world import World

from torchctl.api.kube import POD, Pod, PodCondition
from torchctl.api.nativegangs import NATIVE_PODGROUP, NativePodGroup
from torchctl.controllers.gangs.groups import groups_of, kind_of, least_of
from torchctl.controllers.gangs.native import FrozenNative
from torchctl.controllers.gangs.scheduler import Gang, Said
from torchctl.controllers.job.template.frozen import FrozenTemplate

QUEUE = "{image: a:1, scheduling: {scheduler: kubernetes}}"
NATIVE = FrozenNative(gang=True)


def queued(world: type[World], job: str = TWO, queue: str = QUEUE) -> World:
    """A job that was started and waits for kube-scheduler."""
    return gangjobs.queued(world, job, queue)


def waiting(index: int, group: str) -> Pod:
    """A pod as the API server gives it back; without the field if the feature gates are off."""
    meta = {"name": f"demo-{index}-x", "annotations": {"batch.kubernetes.io/job-completion-index": str(index)}}
    spec = {"schedulingGroup": {"podGroupName": group}} if group else {}
    return decoded(POD, {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}})


def placed(status: str, message: str = "pod group is unschedulable") -> dict[str, Any]:
    condition = {"type": "PodGroupScheduled", "status": status, "reason": "Unschedulable", "message": message}
    return {"metadata": {"name": "pg"}, "status": {"conditions": [condition]}}


def test_gang_of_kubernetes_is_all_pods_of_the_job(world: type[World]) -> None:
    w = queued(world)
    group, pod = group_in(w), w.spec("Job", "demo")["template"]
    assert group["apiVersion"] == "scheduling.k8s.io/v1alpha2"
    assert group["spec"] == {"schedulingPolicy": {"gang": {"minCount": 2}}}
    assert pod["spec"]["schedulingGroup"] == {"podGroupName": group["metadata"]["name"]}
    assert "schedulerName" not in pod["spec"]


def test_frozen_template_reads_the_native_gang_back(world: type[World]) -> None:
    assert FrozenTemplate.load(queued(world).revision.data).gang_scheduler == NATIVE


def test_pod_group_names_no_priority_class() -> None:
    """That takes the feature gate WorkloadAwarePreemption, without which the API server refuses it."""
    gang = Gang(group="pg", least=2, most=2, priority_class="high")
    assert set(NATIVE.spec(gang)) == {"schedulingPolicy"}


def test_elastic_job_cannot_be_a_native_gang(world: type[World]) -> None:
    w = queued(world, ELASTIC)
    _, reason, message = w.condition("Accepted")
    assert (reason, "cannot change their size" in message) == ("InvalidSpec", True)
    assert not w.objects


def test_without_a_gang_kubernetes_is_asked_for_nothing(world: type[World]) -> None:
    w = queued(world, ELASTIC, "{image: a:1, scheduling: {scheduler: kubernetes, gang: false}}")
    assert "schedulingGroup" not in w.spec("Job", "demo")["template"]["spec"]
    assert not [kind for kind, _ in w.objects if kind == "PodGroup"]
    assert w.condition("Admitted")[:2] == ("True", "NoGang")


def test_gang_waits_until_the_api_server_serves_it(world: type[World]) -> None:
    w = world(TWO, QUEUE)
    w.lacks(NATIVE_PODGROUP)
    w.settle()
    status, reason, message = w.condition("Admitted")
    assert (status, reason) == ("False", "NativeGangsOff")
    assert "--runtime-config=scheduling.k8s.io/v1alpha2=true" in message
    assert ("Job", "demo") not in w.objects
    w.lacks()
    w.settle()
    assert ("Job", "demo") in w.objects


def test_membership_that_the_api_server_dropped_is_reported(world: type[World]) -> None:
    """It drops the field without an error, and pods are then placed one by one."""
    w = queued(world)
    name = group_in(w)["metadata"]["name"]
    for index in (0, 1):
        w.pod(waiting(index, name if index else ""))
    w.settle()
    status, reason, message = w.condition("Admitted")
    assert (status, reason) == ("False", "GangTooSmall")
    assert "pod demo-0-x is in no PodGroup" in message
    assert "GangScheduling" in message


def bound(index: int, group: str) -> Pod:
    pod = waiting(index, group)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="node-1"))


def without_a_node(index: int, group: str) -> Pod:
    """A pod that kube-scheduler finds no node for."""
    pod = waiting(index, group)
    lacks = PodCondition("PodScheduled", "False", "Unschedulable", "0/2 nodes are available")
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=(lacks,)))


@pytest.mark.parametrize(
    ("status", "others", "reason"),
    [
        (None, (bound, without_a_node), "GangTooSmall"),
        (None, (bound, waiting), "WaitingForAdmission"),
        (None, (without_a_node, without_a_node), "WaitingForAdmission"),
        ("False", (bound, without_a_node), "WaitingForAdmission"),
        ("True", (bound, without_a_node), "WaitingForAdmission"),
    ],
    ids=["half a gang", "just being bound", "no room", "about to be bound", "being bound"],
)
def test_scheduler_that_binds_half_a_gang_knows_none(
    world: type[World], status: str | None, others: tuple[Callable[[int, str], Pod], ...], reason: str
) -> None:
    """It is one that says nothing of the PodGroup: with gangs switched on it says that before any pod finds no node."""
    w = queued(world)
    name = group_in(w)["metadata"]["name"]
    for index, pod in enumerate(others):
        w.pod(pod(index, name))
    said = placed(status) if status else {}
    gang = {"metadata": {"name": name}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    w.group_is(NATIVE_PODGROUP, said | gang)
    w.settle()
    assert w.condition("Admitted")[:2] == ("False", reason)


def test_schedulers_words_are_the_admitted_message(world: type[World]) -> None:
    w = queued(world)
    name = group_in(w)["metadata"]["name"]
    for index in (0, 1):
        w.pod(waiting(index, name))
    w.settle()
    assert w.condition("Admitted") == ("False", "WaitingForAdmission", "waits for 2 nodes in the cluster")
    w.group_is(NATIVE_PODGROUP, placed("False") | {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}})
    w.settle()
    assert w.condition("Admitted")[2] == "PodGroup pg: pod group is unschedulable"
    w.runs()
    assert w.condition("Admitted")[:2] == ("True", "Admitted")


@pytest.mark.parametrize(("status", "words"), [("False", "pod group is unschedulable"), ("True", ""), ("Unknown", "")])
def test_condition_of_a_placed_gang_says_nothing(status: str, words: str) -> None:
    """It stays True when a member is lost later."""
    group: NativePodGroup = decoded(NATIVE_PODGROUP, placed(status))
    assert NATIVE.said(group, None) == Said(words)
    assert (kind_of(group), least_of(group)) == (NATIVE_PODGROUP, 1)


def test_pod_group_that_kube_scheduler_has_not_seen_says_nothing() -> None:
    group: NativePodGroup = decoded(NATIVE_PODGROUP, {"metadata": {"name": "pg"}})
    assert NATIVE.said(group, None) == Said()


def test_pods_say_in_their_spec_which_gang_is_theirs() -> None:
    assert groups_of([waiting(0, "pg"), waiting(1, "")]) == {"pg"}


def test_preempted_pod_of_a_native_gang_ends_the_attempt(world: type[World]) -> None:
    """Without the gate WorkloadAwarePreemption kube-scheduler takes single pods of a gang."""
    preempted = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    w = queued(world).runs()
    w.told_to_stop(1, conditions=[preempted])
    w.incident_settles()
    assert (w.attempt, dict(w.status.restarts.by_cause)) == (1, {"Preempted": 1})
