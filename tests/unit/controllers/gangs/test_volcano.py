"""What Volcano is told of a job, and what becomes of what it does: preemption, absence, a Queue that closes."""

import json

import pytest
from gangjobs import ELASTIC, PREEMPTED, QUEUE, TRAIN, TWO, group_in, queued
from world import World

from torchctl.api.kube import KaiPodGroup
from torchctl.api.volcano import VOLCANO_PODGROUP, VolcanoPodGroup
from torchctl.controllers.gangs.groups import groups_of, kind_of
from torchctl.controllers.gangs.none import NoGangScheduler
from torchctl.controllers.gangs.scheduler import Gang, PodGroupScheduler, Said
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.runtime.kinds import ObjectMeta

# What Volcano is told.


@pytest.mark.proves("TorchrunQueue.spec.scheduling.scheduler", "TorchrunQueue.spec.scheduling.volcanoQueue")
def test_each_attempt_has_a_pod_group_in_volcanos_queue(world: type[World]) -> None:
    w = queued(world)
    group, job = group_in(w), w.objects["Job", "demo"]
    assert group["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert group["spec"] == {"minMember": 2, "queue": "train"}
    assert job["spec"]["template"]["spec"]["schedulerName"] == "volcano"
    annotations = job["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {"scheduling.k8s.io/group-name": group["metadata"]["name"]}


def test_pod_group_is_made_before_its_pods(world: type[World]) -> None:
    """If Volcano's webhook refuses it, no pod waits for a PodGroup that never comes."""
    made = list(queued(world).objects)
    assert [kind for kind, _ in made].index("PodGroup") < made.index(("Job", "demo"))


def test_scheduler_volcano_alone_means_its_default_queue(world: type[World]) -> None:
    w = queued(world, queue="{image: a:1, scheduling: {scheduler: volcano}}")
    assert group_in(w)["spec"] == {"minMember": 2}
    assert w.condition("Admitted")[2].endswith("Volcano's Queue default")


def test_least_of_an_elastic_gang_keeps_worker_0(world: type[World]) -> None:
    """Volcano takes any of the pods, and the others meet at worker 0."""
    spec = group_in(queued(world, ELASTIC))["spec"]
    (policy,) = spec["subGroupPolicy"]
    assert (spec["minMember"], policy["subGroupSize"], policy["minSubGroups"]) == (2, 1, 1)
    index = "batch.kubernetes.io/job-completion-index"
    assert (policy["labelSelector"], policy["matchLabelKeys"]) == ({"matchLabels": {index: "0"}}, [index])


def test_scaled_gang_has_the_same_pod_group(world: type[World]) -> None:
    w = queued(world, ELASTIC)
    before = group_in(w)
    w.edit(num_nodes=2)
    w.settle()
    assert group_in(w) == before


def test_priority_class_is_also_the_pod_groups(world: type[World]) -> None:
    """Volcano orders waiting gangs by that of the PodGroup alone."""
    w = queued(world, queue="{image: a:1, scheduling: {scheduler: volcano, priorityClassName: high}}")
    assert group_in(w)["spec"]["priorityClassName"] == "high"
    assert w.spec("Job", "demo")["template"]["spec"]["priorityClassName"] == "high"


def test_pod_group_asks_for_no_resources() -> None:
    """With minResources Volcano does not let it in where all is taken, and it could preempt nobody."""
    assert "minResources" not in TRAIN.spec(Gang(group="pg", least=2, most=4, priority_class="high"))


def test_without_a_gang_pods_are_queued_one_by_one(world: type[World]) -> None:
    queue = "{image: a:1, scheduling: {volcanoQueue: train, gang: false}}"
    w = queued(world, ELASTIC, queue)
    assert group_in(w)["spec"] == {"minMember": 1, "queue": "train"}
    assert w.condition("Admitted")[:2] == ("True", "NoGang")


def test_frozen_template_reads_volcano_back(world: type[World]) -> None:
    assert FrozenTemplate.load(queued(world).revision.data).gang_scheduler == TRAIN


FOREIGN = {
    "scheduling.k8s.io/group-name": "theirs",
    "scheduling.volcano.sh/group-name": "theirs",
    "scheduling.volcano.sh/queue-name": "theirs",
}
"""Keys by which pods would be counted for another gang, or be in a Queue that nobody let them use."""


@pytest.mark.parametrize("scheduling", [{"volcanoQueue": "train"}, {"scheduler": "volcano-2"}])
def test_no_pod_template_chooses_queue_or_pod_group(world: type[World], scheduling: dict[str, str]) -> None:
    """Nor that of the sync pods: with another schedulerName they would be a second Volcano's."""
    given = {
        "metadata": {"labels": FOREIGN, "annotations": FOREIGN | {"note": "kept"}},
        "spec": {"schedulingGroup": {"podGroupName": "theirs"}},
    }
    queue = {"image": "a:1", "scheduling": scheduling, "podTemplate": given}
    queue["storage"] = {"workspace": {"podTemplate": given}}
    job = "{jobQueue: research, numNodes: 2, command: a, volumes: {workspace: {source: git, url: https://a.b/c.git}}}"
    w = queued(world, job, json.dumps(queue))
    sync = w.objects["Pod", "demo-sync-0"]
    w.sync_serves()
    w.settle()
    for pod in (sync, w.spec("Job", "demo")["template"]):
        assert pod["metadata"]["annotations"]["note"] == "kept"
        assert "theirs" not in json.dumps(pod)


@pytest.mark.parametrize("key", FOREIGN)
@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_no_job_chooses_queue_or_pod_group(world: type[World], field: str, key: str) -> None:
    w = queued(world, f"{{jobQueue: research, numNodes: 2, command: a, {field}: {{{key}: theirs}}}}")
    _, reason, message = w.condition("Accepted")
    assert (reason, f"{field} must not have keys of the operator" in message) == ("InvalidSpec", True)


# What Volcano does.


def test_gang_waits_until_volcano_is_installed(world: type[World]) -> None:
    w = world(TWO, QUEUE)
    w.volcano(False)
    w.settle()
    status, reason, message = w.condition("Admitted")
    assert (status, reason) == ("False", "VolcanoNotInstalled")
    assert "podgroups.scheduling.volcano.sh" in message
    assert not {"PodGroup", "Job"} & {kind for kind, _ in w.objects}
    assert w.look_again_s() == 30
    w.volcano(True)
    w.settle()
    assert ("Job", "demo") in w.objects


def test_pod_group_that_the_webhook_refuses_is_tried_again(world: type[World]) -> None:
    w = world(TWO, QUEUE)
    w.refuses("PodGroup")
    w.settle()
    assert w.condition("Admitted")[:2] == ("False", "Refused")
    assert ("Job", "demo") not in w.objects
    w.refuses_nothing()
    w.settle()
    assert ("Job", "demo") in w.objects


@pytest.mark.parametrize("victims", [(0,), (1,), (0, 1)])
def test_preempted_gang_is_one_incident(world: type[World], victims: tuple[int, ...]) -> None:
    """Also if Volcano takes one pod of it: the rest of a broken gang is taken down, and all start again."""
    w = queued(world).runs()
    w.told_to_stop(*victims, conditions=[PREEMPTED])
    w.incident_settles()
    assert (w.attempt, dict(w.status.restarts.by_cause)) == (1, {"Preempted": 1})
    assert w.phase == "Restarting"
    assert ("Job", "demo") not in w.objects


def test_next_attempt_has_another_pod_group(world: type[World]) -> None:
    w = queued(world).runs()
    first = group_in(w)["metadata"]["name"]
    w.told_to_stop(0, 1, conditions=[PREEMPTED])
    w.incident_settles()
    assert ("PodGroup", first) in w.objects
    w.old_pods_go()
    w.waits()
    w.settle()
    second = group_in(w)["metadata"]["name"]
    assert (first != second, w.spec("Job", "demo-r1")["template"]["metadata"]["annotations"]) == (
        True,
        {"scheduling.k8s.io/group-name": second},
    )


def test_elastic_gang_goes_on_without_a_surplus_pod(world: type[World]) -> None:
    w = queued(world, ELASTIC).runs(3)
    w.told_to_stop(2, conditions=[PREEMPTED])
    w.settle()
    assert (w.attempt, w.phase, w.status.restarts.total) == (0, "Running", 0)


@pytest.mark.parametrize("ends", ["succeeds", "fails"])
def test_pod_group_of_a_job_that_ended_holds_no_queue(world: type[World], ends: str) -> None:
    """Volcano closes no Queue that any PodGroup names, and the job may stay to be read."""
    w = queued(world, "{jobQueue: research, numNodes: 2, command: a, runPolicy: {restartPolicy: Never}}").runs()
    if ends == "succeeds":
        w.succeeds()
    else:
        w.worker_fails(0)
        w.incident_settles()
        assert group_in(w)  # worker 1 is still in it
        w.worker_fails(1)
    w.settle()
    assert w.phase == ("Succeeded" if ends == "succeeds" else "Failed")
    assert not [kind for kind, _ in w.objects if kind == "PodGroup"]


def test_suspended_job_holds_no_queue_either(world: type[World]) -> None:
    w = queued(world).runs()
    w.edit(suspend=True)
    w.settle()
    assert group_in(w)  # its pods have yet to stop
    w.remove("Pod", "demo-0-x")
    w.remove("Pod", "demo-1-x")
    w.settle()
    assert not [kind for kind, _ in w.objects if kind == "PodGroup"]
    w.edit(suspend=False)
    w.settle()
    assert group_in(w)["metadata"]["name"].startswith("pg-demo-r1-")


def test_pod_group_that_somebody_deletes_comes_back(world: type[World]) -> None:
    """Pods that are not bound would wait in silence without it."""
    w = queued(world)
    name = group_in(w)["metadata"]["name"]
    w.remove("PodGroup", name)
    w.settle()
    assert group_in(w)["metadata"]["name"] == name


# Which queues ask for Volcano.


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("{image: a:1, kaiQueue: gpus, scheduling: {volcanoQueue: train}}", "set one of them"),
        ("{image: a:1, scheduling: {scheduler: kai-scheduler, volcanoQueue: train}}", "is for the scheduler volcano"),
        ("{image: a:1, scheduling: {volcanoQueue: train, topology: {name: net, required: a/b}}}", "only KAI places"),
    ],
)
def test_queue_that_mixes_schedulers_is_refused(world: type[World], spec: str, says: str) -> None:
    w = queued(world, queue=spec)
    _, reason, message = w.condition("QueueFound")
    assert (reason, says in message) == ("QueueNotReady", True), message


def test_another_scheduler_makes_no_gang(world: type[World]) -> None:
    w = queued(world, queue="{image: a:1, scheduling: {scheduler: mine}}")
    assert FrozenTemplate.load(w.revision.data).gang_scheduler == NoGangScheduler()


def test_groups_of_both_schedulers_are_told_apart(world: type[World]) -> None:
    w = queued(world)
    group = w.seen.podgroup
    assert isinstance(group, VolcanoPodGroup)
    assert kind_of(group) == VOLCANO_PODGROUP
    volcano: PodGroupScheduler = TRAIN
    assert volcano.said(KaiPodGroup(ObjectMeta(name="pg")), "Open") == Said()
    w.worker(0, metadata={"annotations": volcano.marks(Gang(group="pg", least=2, most=2)).pod_annotations})
    assert groups_of(w.seen.pods) == {"pg"}
