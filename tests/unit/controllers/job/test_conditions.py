"""Every way in which a job can be held up is a condition with the object's name and the next step, and one Event."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from world import World

from torchctl.controllers.finding import Refusal
from torchctl.controllers.job.plan import Question

CPU = "{jobQueue: research, numNodes: 2, command: python train.py}"
KAI = "{image: a:1, kaiQueue: gpus}"


@pytest.mark.parametrize("policy", ["{maxRestarts: 0}", "{restartPolicy: Never}", "{podRetention: All}"])
def test_restart_fields_and_what_already_holds_are_accepted(world: type[World], policy: str) -> None:
    w = world(f"{{jobQueue: research, numNodes: 1, command: python a.py, runPolicy: {policy}}}")
    w.settle()
    assert w.condition("Accepted")[:2] == ("True", "Accepted")


@pytest.mark.parametrize(
    ("queue", "says"),
    [
        ("{image: a:1, weight: 2}", "spec.weight"),
        ("{image: a:1, maxNodes: 4}", "spec.maxNodes"),
        ("{image: a:1, podTemplate: {spec: {containers: [{name: main}]}}}", "must be named 'trainer'"),
    ],
)
def test_a_queue_that_cannot_run_jobs_says_why(world: type[World], queue: str, says: str) -> None:
    """The queue holds its jobs meanwhile."""
    w = world(CPU, queue)
    w.settle()
    status, reason, message = w.condition("QueueFound")
    assert (status, reason) == ("False", "QueueNotReady")
    assert message.startswith("TorchrunQueue research: ")
    assert says in message
    assert (w.phase, w.objects) == ("Pending", {})


@pytest.mark.parametrize(
    ("job", "queue", "reason", "says"),
    [
        ("numGPUs: 12", "{image: a:1, nodeResources: {gpus: 8}}", None, ""),
        ("numGPUs: 13", "{image: a:1, nodeResources: {gpus: 8}}", "ImpossibleGPUCount", "12 and 14 work"),
        ("numGPUs: 4", "image: a:1", "ImpossibleGPUCount", "TorchrunQueue research has no GPUs"),
        ("numNodes: 1", "{}", "InvalidSpec", "no image: set spec.image"),
        (
            "numNodes: 2",
            "{image: a:1, storage: {workspace: {enabled: true, distribution: shared}}}",
            "ImpossibleWorkspace",
            "['ReadWriteOnce']",
        ),
        (
            "numNodes: 2",
            "{image: a:1, storage: {workspace: {enabled: true, distribution: copy}}}",
            "ImpossibleWorkspace",
            "set ReadWriteMany",
        ),
        (
            "numNodes: 1",
            "{image: a:1, storage: {workspace: {enabled: true, accessModes: [ReadOnlyMany]}}}",
            "ImpossibleWorkspace",
            "nothing can be written to it",
        ),
    ],
)
def test_what_cannot_work_together_is_said(
    world: type[World], job: str, queue: str, reason: str | None, says: str
) -> None:
    w = world(f"{{jobQueue: research, {job}, command: python train.py}}", queue)
    w.settle()
    if reason is None:
        assert w.condition("Accepted")[0] == "True"
        return
    assert w.condition("Accepted")[:2] == ("False", reason)
    assert says in w.message("Accepted")
    assert (w.phase, w.objects) == ("Pending", {})


def test_a_claim_of_the_users_is_waited_for(world: type[World]) -> None:
    w = world(
        "{jobQueue: research, numNodes: 2, command: a, volumes: {workspace: {source: existing, claimName: code}}}"
    )
    w.lacks_claim("code")
    w.settle()
    assert w.condition("WorkspaceReady")[:2] == ("False", "ClaimNotFound")
    assert "PersistentVolumeClaim code does not exist; create it" in w.message("WorkspaceReady")
    w.has_claim("code", "ReadOnlyMany")
    w.settle()
    assert w.phase == "Syncing"
    w.sync_succeeds()
    w.settle()
    volume = w.spec("Job", "demo")["template"]["spec"]["volumes"][0]
    assert volume["persistentVolumeClaim"] == {"claimName": "code", "readOnly": True}


ZIP = "{jobQueue: research, numNodes: 1, command: python train.py, volumes: {workspace: {source: zip}}}"


def test_a_claim_that_some_workers_cannot_mount_is_named(world: type[World]) -> None:
    """The claim belongs to the user."""
    text = "{jobQueue: research, numNodes: 2, command: a, volumes: {workspace: {source: existing, claimName: code}}}"
    w = world(text, "{image: a:1, storage: {workspace: {distribution: shared}}}")
    w.has_claim("code", "ReadWriteOnce")
    w.settle()
    assert w.condition("Accepted")[:2] == ("False", "ImpossibleWorkspace")
    assert "PersistentVolumeClaim code is ['ReadWriteOnce'] for good" in w.message("Accepted")


def test_a_queue_that_is_being_deleted_takes_no_new_job(world: type[World]) -> None:
    w = world(CPU)
    w.queue_deleting()
    w.settle()
    assert w.condition("QueueFound")[:2] == ("False", "QueueNotReady")
    assert "TorchrunQueue research is being deleted" in w.message("QueueFound")
    assert w.objects == {}


def test_an_unreadable_revision_stops_the_job(world: type[World]) -> None:
    """A condition says so."""
    w = world(CPU)
    w.settle()
    w.revision_is({"nodes": "many"})
    w.settle()
    assert w.condition("Accepted")[:2] == ("False", "InvalidSpec")
    assert f"ControllerRevision {w.status.queue_revision} cannot be read" in w.message("Accepted")


def test_a_revision_whose_data_contradict_its_name_is_not_believed(world: type[World]) -> None:
    """Somebody made it under the name that status has, before the operator did."""
    w = world(CPU)
    w.settle()
    name = w.status.queue_revision
    w.revision_is({**w.revision.data, "operatorImage": "evil:1"}, name)
    before = dict(w.objects)
    w.settle()
    assert w.condition("Accepted")[:2] == ("False", "ForeignObject")
    assert f"ControllerRevision {name} has other data" in w.message("Accepted")
    assert w.objects.keys() == before.keys()


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"phase": "Running", "conditions": []}, "WaitingForUpload"),
        (
            {
                "phase": "Pending",
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no volume"}
                ],
            },
            "Unschedulable",
        ),
        (
            {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
                    }
                ],
            },
            "Syncing",
        ),
        (
            {
                "phase": "Pending",
                "containerStatuses": [
                    {"name": "fetch", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
                ],
            },
            "ImagePullBackOff",
        ),
    ],
)
def test_what_keeps_the_sync_pod_is_what_keeps_the_workspace(
    world: type[World], status: dict[str, Any], reason: str
) -> None:
    w = world(ZIP)
    w.settle()
    w.play("demo-sync-0", **status)
    w.settle()
    assert (w.phase, w.condition("WorkspaceReady")[:2]) == ("Syncing", ("False", reason))
    assert w.message("WorkspaceReady").startswith("pod demo-sync-0")


def test_a_claim_that_lost_its_volume_is_told(world: type[World]) -> None:
    w = world(ZIP)
    w.settle()
    w.claim_is("Lost")
    w.settle()
    assert w.condition("WorkspaceReady")[:2] == ("False", "ClaimLost")
    assert "PersistentVolumeClaim demo-workspace" in w.message("WorkspaceReady")


def test_a_claim_that_goes_after_freezing_is_waited_for(world: type[World]) -> None:
    """The claim belongs to the user."""
    w = world("{jobQueue: research, numNodes: 1, command: a, volumes: {workspace: {source: existing, claimName: c}}}")
    w.has_claim("c", "ReadWriteOnce")
    w.settle()
    w.lacks_claim("c")
    w.settle()
    assert w.condition("WorkspaceReady")[:2] == ("False", "ClaimNotFound")


def test_a_server_that_ends_too_early_is_a_failed_try(world: type[World]) -> None:
    """The server ends before all workers have pulled the workspace."""
    w = world(
        "{jobQueue: research, numNodes: 2, command: a, volumes: {workspace: {source: git, url: 'https://g/a.git'}}}"
    )
    w.settle()
    w.sync_succeeds()
    w.settle()
    assert w.has("Pod", "demo-sync-1")
    assert not w.has("Job", "demo")


@pytest.mark.parametrize("levels", [240, 300])
@pytest.mark.parametrize("whose", ["job", "queue"])
def test_what_nests_too_deeply_is_a_condition(world: type[World], levels: int, whose: str) -> None:
    deep = "{a: " * levels + "1" + "}" * levels
    job = f"volumes: {{additionalVolumes: [{{name: v, emptyDir: {deep}}}]}}"
    w = world(
        "{jobQueue: research, numNodes: 2, command: python train.py%s}" % (f", {job}" if whose == "job" else ""),
        "{image: a:1%s}" % (f", podTemplate: {{spec: {{a: {deep}}}}}" if whose == "queue" else ""),
    )
    w.settle()
    type_, well, ill = {
        "job": ("Accepted", "Accepted", "InvalidSpec"),
        "queue": ("QueueFound", "QueueFound", "QueueNotReady"),
    }[whose]
    assert w.reason(type_) == (well if levels < 250 else ill)


def unscheduled(reason: str) -> dict[str, Any]:
    said = {"type": "PodScheduled", "status": "False", "reason": reason, "message": "0/3 nodes: GPUs"}
    return {"phase": "Pending", "conditions": [said]}


def waiting(reason: str, message: str) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "conditions": [], "containerStatuses": [{"name": "trainer", "state": state}]}


@pytest.mark.parametrize(
    ("status", "reason", "says"),
    [
        (unscheduled("Unschedulable"), "Unschedulable", "0/3 nodes: GPUs; free or add such nodes"),
        (unscheduled("not enough nodes"), "Unschedulable", "0/3 nodes: GPUs; free or add such nodes"),
        (waiting("ImagePullBackOff", 'Back-off pulling image "x"'), "ImagePullBackOff", "check the image's name"),
        (waiting("ErrImagePull", "not found"), "ImagePullBackOff", "not found"),
        (
            waiting("CreateContainerConfigError", 'secret "s" not found'),
            "CreateContainerConfigError",
            'container trainer: secret "s" not found; check the Secrets',
        ),
    ],
)
def test_a_worker_that_cannot_start_says_so_once(
    world: type[World], status: dict[str, Any], reason: str, says: str
) -> None:
    w = world(CPU)
    w.settle()
    w.worker(0)
    w.worker(1, **status)
    w.settle()
    found = w.condition("WorkersReady")
    assert found[:2] == ("False", reason)
    assert found[2].startswith("pod demo-1-x: ")
    assert says in found[2]
    for _ in range(3):
        w.later(10)
        w.settle()
    assert [event[1] for event in w.events].count(reason) == 1
    w.worker(1)
    w.settle()
    assert w.phase == "Running"


def test_two_names_of_one_problem_write_nothing_new(world: type[World]) -> None:
    """The kubelet goes back and forth between two reasons of one problem."""
    w = world(CPU)
    w.settle()
    w.worker(0, **waiting("ErrImagePull", "not found"))
    w.settle()
    said = w.condition("WorkersReady")
    for _ in range(3):
        w.worker(0, **waiting("ImagePullBackOff", 'Back-off pulling image "x"'))
        assert not w.step()
        w.worker(0, **waiting("ErrImagePull", "not found"))
        assert not w.step()
    assert w.condition("WorkersReady") == said


def test_pods_not_created_are_missed_after_half_a_minute(world: type[World]) -> None:
    """The Job controller may not create them."""
    w = world(CPU)
    w.settle()
    assert w.look_again_s() == 30
    w.later(29)
    w.settle()
    assert (w.reason("WorkersReady"), w.steps.asks is Question.WHY_NO_PODS) == ("WorkersStarting", False)
    w.later(1)
    w.settle()
    assert w.steps.asks is Question.WHY_NO_PODS
    assert w.reason("WorkersReady") == "PodsNotCreated"
    w.says_why("pods demo-0- is forbidden: policy says no")
    w.settle()
    assert "Job demo has 0 of 2 pods" in w.message("WorkersReady")
    assert "policy says no" in w.message("WorkersReady")
    w.worker(0)
    w.worker(1)
    w.settle()
    assert (w.phase, w.look_again_s()) == ("Running", None)


def test_an_elastic_job_says_why_workers_are_missing(world: type[World]) -> None:
    """The elastic job runs with fewer workers than it should."""
    w = world("{jobQueue: research, numNodes: 3, elastic: {minNodes: 2, maxNodes: 4}, command: python train.py}")
    w.settle()
    w.worker(0)
    w.worker(1)
    w.later(30)
    w.settle()
    assert w.message("WorkersReady") == "2 of 3 workers of Job demo are ready"
    w.says_why("pods demo-2- is forbidden: exceeded quota")
    w.settle()
    status, reason, message = w.condition("WorkersReady")
    assert (w.phase, status, reason) == ("Running", "True", "PodsNotCreated")
    assert message.endswith("are ready; 1 cannot be created: pods demo-2- is forbidden: exceeded quota")
    w.says_why("")
    w.worker(2)
    w.settle()
    assert w.condition("WorkersReady")[:2] == ("True", "WorkersReady")


def test_an_elastic_job_says_why_nothing_replaces_a_failed_pod(world: type[World]) -> None:
    w = world("{jobQueue: research, numNodes: 3, elastic: {minNodes: 2, maxNodes: 4}, command: python train.py}")
    w.settle()
    for index in range(3):
        w.worker(index)
    w.settle()
    w.worker(2, "Failed", reason="Evicted", conditions=[])
    w.later(30)
    w.settle()
    assert w.steps.asks is Question.WHY_NO_PODS
    w.says_why("pods demo-2- is forbidden: exceeded quota")
    w.settle()
    assert w.message("WorkersReady").endswith("; 1 cannot be created: pods demo-2- is forbidden: exceeded quota")


def test_a_quota_is_blamed_only_after_waiting_for_replacements(world: type[World]) -> None:
    """The elastic job has lost workers."""
    w = world("{jobQueue: research, numNodes: 3, elastic: {minNodes: 3, maxNodes: 4}, command: python train.py}")
    w.settle()
    for index in range(3):
        w.worker(index)
    w.settle()
    w.later(60)
    w.seen = replace(w.seen, pods=w.seen.pods[:2])
    w.settle()
    assert w.reason("WorkersReady") == "BelowMinimum"


@pytest.mark.parametrize(
    ("kind", "name", "condition", "phase"),
    [
        ("ControllerRevision", "demo-", "Accepted", "Syncing"),
        ("PersistentVolumeClaim", "demo-workspace", "WorkspaceReady", "Syncing"),
        ("PersistentVolumeClaim", "demo-checkpoints", "WorkersReady", "Starting"),
        ("Pod", "demo-sync-0", "WorkspaceReady", "Syncing"),
    ],
)
def test_a_refused_child_is_reported_by_the_step_it_stops(
    world: type[World], kind: str, name: str, condition: str, phase: str
) -> None:
    job = "{jobQueue: research, numNodes: 1, command: a, volumes: {workspace: {source: zip}}}"
    w = world(job, "{image: a:1, storage: {checkpoints: {enabled: true}}}")
    refused = Refusal(kind, name, "QuotaExceeded", "exceeded quota: q; raise the quota or free some of it")
    w.refuse = lambda k, n: refused if k == kind and n.startswith(name) else None
    w.settle()
    assert w.condition(condition)[:2] == ("False", "QuotaExceeded")
    assert f"{kind} {name}" in w.message(condition)
    assert [event[1] for event in w.events].count("QuotaExceeded") == 1
    w.refuse = lambda k, n: None
    w.settle()
    w.sync_succeeds()
    w.settle()
    assert w.has("Job", "demo")


@pytest.mark.parametrize(
    ("kind", "name", "condition", "reason"),
    [
        ("PodGroup", "pg-demo", "Admitted", "Refused"),
        ("Service", "demo", "WorkersReady", "ForeignObject"),
        ("Job", "demo", "WorkersReady", "ForeignObject"),
    ],
)
def test_a_foreign_or_refused_object_stops_the_start(
    world: type[World], kind: str, name: str, condition: str, reason: str
) -> None:
    w = world(CPU, KAI)
    refused = Refusal(kind, name, reason, f"{kind} team/{name} exists and does not belong to this object")
    w.refuse = lambda k, n: refused if k == kind and n.startswith(name) else None
    w.settle()
    assert w.condition(condition)[:2] == ("False", reason)
    assert not w.has("Job", "demo")
    assert w.status.start_time is None


def test_a_job_waits_until_kai_is_installed(world: type[World]) -> None:
    w = world(CPU, KAI)
    w.kai(False)
    w.settle()
    assert (w.phase, w.condition("Admitted")[:2]) == ("Queued", ("False", "KaiNotInstalled"))
    assert "install KAI-Scheduler" in w.message("Admitted")
    assert w.look_again_s() == 30
    assert not w.has("Job", "demo")
    w.kai(True)
    w.settle()
    assert any(kind == "PodGroup" for kind, _ in w.objects)
    assert (w.phase, w.reason("Admitted")) == ("Queued", "WaitingForAdmission")


def test_a_gang_tells_kais_reason_until_all_pods_are_placed(world: type[World]) -> None:
    """The gang is admitted as soon as all its pods are placed."""
    w = world(CPU, KAI)
    w.settle()
    reasons = [{"reason": "OverLimit", "message": "queue gpus is over its limit"}]
    w.pod_group_says([{"type": "UnschedulableOnNodePool", "status": "True", "reasons": reasons}])
    w.worker(0, "Pending", node="", conditions=[])
    w.settle()
    assert w.condition("Admitted")[:2] == ("False", "WaitingForAdmission")
    assert "queue gpus is over its limit" in w.message("Admitted")
    assert w.phase == "Queued"
    w.worker(0, "Pending", conditions=[])
    w.worker(1, "Pending", conditions=[])
    w.settle()
    assert (w.phase, w.condition("Admitted")[:2]) == ("Starting", ("True", "Admitted"))
    w.worker(0)
    w.worker(1)
    w.settle()
    assert w.phase == "Running"


def test_a_job_without_a_gang_scheduler_is_admitted_at_once(world: type[World]) -> None:
    """Admitted says that nothing gangs the pods."""
    w = world(CPU)
    w.settle()
    assert w.condition("Admitted")[:2] == ("True", "NoGang")


def test_each_phase_has_one_event(world: type[World]) -> None:
    w = world(CPU)
    w.settle()
    w.worker(0)
    w.settle()
    w.worker(1)
    w.settle()
    w.succeeds()
    w.settle()
    assert [(kind, reason) for kind, reason, _ in w.events] == [
        ("Normal", "Starting"),
        ("Normal", "Running"),
        ("Normal", "Succeeded"),
    ]


def test_conditions_keep_their_time_while_their_status_stays(world: type[World]) -> None:
    w = world(CPU)
    w.settle()
    first = {c.type: c.last_transition_time for c in w.status.conditions}
    w.later(100)
    w.worker(0)
    w.worker(1)
    w.settle()
    after = {c.type: c.last_transition_time for c in w.status.conditions}
    assert {type_ for type_ in after if after[type_] != first[type_]} == {"WorkersReady"}


def test_status_survives_the_way_through_json(world: type[World]) -> None:
    w = world(CPU)
    w.settle()
    w.forget()
    assert not w.step()


def test_nothing_starts_in_a_kai_queue_of_somebody_else(world: type[World]) -> None:
    w = world("{jobQueue: research, numNodes: 2, command: python a.py}", "{image: a:1, kaiQueue: theirs}")
    w.step()
    w.queue_says("KaiQueueReady", "Conflict", "KAI Queue theirs belongs to other/gpu")
    w.settle()
    assert w.condition("QueueFound")[:2] == ("False", "QueueNotReady")
    assert "KAI Queue theirs belongs to other/gpu" in w.message("QueueFound")
    assert w.objects == {}
    w.queue_says("KaiQueueReady", "KaiQueueReady", "as asked")
    w.settle()
    assert w.has("Job", "demo")
    w.queue_says("KaiQueueReady", "Conflict", "KAI Queue theirs belongs to other/gpu")
    w.settle()
    assert w.condition("QueueFound")[:2] == ("True", "QueueFound"), "what runs is left alone"


def test_a_rule_younger_than_the_job_is_a_condition(world: type[World]) -> None:
    w = world("{jobQueue: research, numNodes: 2, numGPUs: 2, command: python a.py}")
    w.settle()
    assert w.condition("Accepted")[:2] == ("False", "InvalidSpec")
    assert "spec: exactly one of numNodes and numGPUs must be set" in w.message("Accepted")
    assert w.objects == {}


def test_a_partly_unknown_template_stays_the_only_revision(world: type[World]) -> None:
    """An operator of an earlier version takes over a job that a later one froze."""
    w = world(CPU)
    w.settle()
    w.revision_is({**w.revision.data, "ofALaterVersion": True, "nprocPerNode": 7})
    w.settle()
    assert [name for kind, name in w.objects if kind == "ControllerRevision"] == [w.status.queue_revision]


def test_an_admitted_job_stays_so_if_its_podgroup_is_refused(world: type[World]) -> None:
    w = world(CPU, KAI)
    w.settle()
    for index in range(2):
        w.worker(index)
    w.settle()
    w.refuse = lambda kind, name: Refusal(kind, name, "QuotaExceeded", "no") if kind == "PodGroup" else None
    w.later(600)
    w.settle()
    assert w.condition("Admitted")[:2] == ("True", "Admitted")
    assert w.phase == "Running"


def test_a_job_older_than_its_names_rule_is_refused(world: type[World]) -> None:
    """It would take the Service of the workspace of job `demo`."""
    w = world(CPU)
    job = w.seen.job
    meta = msgspec.structs.replace(job.metadata, name="demo-workspace")
    w.seen = replace(w.seen, job=msgspec.structs.replace(job, metadata=meta))
    w.settle()
    assert w.condition("Accepted") == (
        "False",
        "InvalidSpec",
        "metadata.name must not end in -workspace: the Service of another job's workspace has such a "
        "name; submit another job instead",
    )
    assert w.objects == {}
