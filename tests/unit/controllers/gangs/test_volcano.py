"""What Volcano is told of a job, and what becomes of its answers: waiting, missing Queues, preemption."""

from typing import Any

import pytest
from world import World

from torchctl.api.kube import KaiPodGroup
from torchctl.api.volcano import VOLCANO_PODGROUP, VolcanoPodGroup
from torchctl.controllers.gangs.groups import groups_of, kind_of
from torchctl.controllers.gangs.none import NoGangScheduler
from torchctl.controllers.gangs.scheduler import Gang, GangScheduler, Said
from torchctl.controllers.gangs.volcano import FrozenVolcano
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.runtime.kinds import ObjectMeta

QUEUE = "{image: a:1, nodeResources: {gpus: 8}, scheduling: {volcanoQueue: train}}"
TWO = "{jobQueue: research, numNodes: 2, command: a}"
ELASTIC = "{jobQueue: research, numNodes: 3, command: a, elastic: {minNodes: 2, maxNodes: 4}}"
TRAIN = FrozenVolcano(queue="train", gang=True)
FITS_NOT = "2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable"
PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "volcano: ..."}


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


def queued(world: type[World], job: str = TWO, queue: str = QUEUE) -> World:
    """A job that was started and waits for Volcano."""
    w = world(job, queue)
    w.settle()
    return w


def group_in(w: World) -> dict[str, Any]:
    (group,) = (body for (kind, _), body in w.objects.items() if kind == "PodGroup")
    return group


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
    assert group_in(w)["spec"] == {"minMember": 2, "queue": "default"}


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


def test_users_annotation_does_not_choose_another_pod_group(world: type[World]) -> None:
    w = queued(
        world, "{jobQueue: research, numNodes: 2, command: a, annotations: {scheduling.k8s.io/group-name: theirs}}"
    )
    pod = w.spec("Job", "demo")["template"]
    assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == group_in(w)["metadata"]["name"]


# What Volcano says.


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
    volcano: GangScheduler = TRAIN
    assert volcano.said(KaiPodGroup(ObjectMeta(name="pg")), "Open") == Said()
    w.worker(0, metadata={"annotations": volcano.pod_annotations(Gang(group="pg", least=2, most=2))})
    assert groups_of(w.seen.pods) == {"pg"}
