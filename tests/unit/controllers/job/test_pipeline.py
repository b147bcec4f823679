"""A job from its creation to its end, reconcile by reconcile, against a cluster in memory."""

import pytest
from world import World

CPU = "{jobQueue: research, numNodes: 1, command: python train.py}"
TWO = "{jobQueue: research, numNodes: 2, command: python train.py}"
ZIP = "{jobQueue: research, numNodes: 1, command: python train.py, volumes: {workspace: {source: zip}}}"
GIT = """
jobQueue: research
numNodes: 2
command: python train.py
volumes: {workspace: {source: git, url: "https://git.example.com/a.git"}}
"""
REPORT = '{"revision": "abc123", "digest": "sha256:00", "bytes": 12, "files": 3, "source": "git"}'


def test_a_job_of_one_cpu_node_succeeds_and_rests(world: type[World]) -> None:
    w = world(CPU)
    w.settle()
    assert w.phase == "Starting"
    assert {kind for kind, _ in w.objects} == {"ControllerRevision", "Service", "Job"}
    w.worker(0)
    w.settle()
    assert (w.phase, w.status.workers_status) == ("Running", "1/1 running")
    w.worker(0, "Succeeded")
    w.later(60)
    w.job_is("Complete")
    w.settle()
    assert w.phase == "Succeeded"
    assert w.condition("Complete")[:2] == ("True", "Succeeded")
    assert w.status.active_seconds == 60
    w.later(3600)
    assert not w.step()
    assert w.last.actions.children == ()
    assert w.log == ["Starting", "Starting", "Running", "Succeeded"]


def test_nothing_is_written_before_the_template_is_named_in_status(world: type[World]) -> None:
    w = world(CPU)
    w.step()
    assert w.objects == {}
    w.step()
    assert ("ControllerRevision", w.status.queue_revision) in w.objects


def test_a_job_waits_until_its_workspace_is_uploaded(world: type[World]) -> None:
    w = world(ZIP)
    w.settle()
    assert w.message("WorkspaceReady") == "pod demo-sync-0, which takes the upload, is waiting for a node"
    w.play("demo-sync-0", phase="Running")
    w.settle()
    assert w.phase == "Syncing"
    assert w.condition("WorkspaceReady") == (
        "False",
        "WaitingForUpload",
        "pod demo-sync-0 waits for the workspace to be uploaded: run `kubectl torchrun sync demo` in its directory; "
        "it gives up after 600 s",
    )
    assert not w.has("Job", "demo")
    w.sync_succeeds(message=REPORT)
    w.settle()
    assert w.has("Job", "demo")
    assert w.workspace.revision == "abc123"
    assert w.condition("WorkspaceReady")[:2] == ("True", "WorkspaceReady")


def test_a_synced_workspace_stays_ready_when_its_pod_is_deleted(world: type[World]) -> None:
    w = world(ZIP)
    w.settle()
    w.sync_succeeds(message=REPORT)
    w.settle()
    w.remove("Pod", "demo-sync-0")
    w.settle()
    assert w.condition("WorkspaceReady")[0] == "True"
    assert not w.has("Pod", "demo-sync-0")
    assert w.workspace.files == 3


def test_a_claim_that_was_filled_is_never_made_again_empty(world: type[World]) -> None:
    w = world(ZIP)
    w.settle()
    w.sync_succeeds(message=REPORT)
    w.settle()
    w.remove("PersistentVolumeClaim", "demo-workspace")
    w.settle()
    assert not w.has("PersistentVolumeClaim", "demo-workspace")


def test_a_workspace_is_served_until_the_job_ends(world: type[World]) -> None:
    w = world(GIT)
    w.settle()
    assert w.phase == "Syncing"
    w.sync_serves(message=REPORT)
    w.settle()
    assert w.has("Job", "demo")
    pulled = [{"name": "workspace", "state": {"terminated": {"exitCode": 0}}}]
    for index in range(2):
        w.worker(index, initContainerStatuses=pulled)
    w.settle()
    w.play("demo-sync-0", phase="Failed")
    w.settle()
    assert (w.phase, w.condition("WorkspaceReady")[0]) == ("Running", "True")
    w.play("demo-sync-0", phase="Running")
    w.succeeds()
    w.settle()
    assert w.phase == "Succeeded"
    assert not w.has("Pod", "demo-sync-0")


def test_a_server_that_fails_too_early_is_replaced(world: type[World]) -> None:
    """The server fails before all workers have pulled the workspace."""
    w = world(GIT)
    w.settle()
    w.sync_serves(message=REPORT)
    w.settle()
    w.play("demo-sync-0", phase="Failed", reason="Evicted")
    w.settle()
    assert w.condition("WorkspaceReady")[:2] == ("False", "Syncing")
    assert w.has("Pod", "demo-sync-1")
    assert w.phase == "Starting"


def test_the_third_failed_sync_ends_the_job(world: type[World]) -> None:
    """The message has the words of the sync pod."""
    w = world(ZIP)
    w.settle()
    for number in range(3):
        assert w.has("Pod", f"demo-sync-{number}")
        w.sync_fails(number, "fetch: the connection broke")
        w.settle()
    assert not w.has("Pod", "demo-sync-3")
    assert w.phase == "Failed"
    status, reason, message = w.condition("Failed")
    assert (status, reason) == ("True", "WorkspaceSyncFailed")
    assert "pod demo-sync-2 failed (try 3 of 3): fetch: the connection broke" in message
    assert (w.failure.pod, w.failure.exit_code) == ("demo-sync-2", 137)
    assert not w.has("Job", "demo")


def test_a_sync_pod_that_is_being_deleted_is_waited_for(world: type[World]) -> None:
    w = world(ZIP)
    w.settle()
    w.play("demo-sync-0", phase="Running", metadata={"deletionTimestamp": w.now})
    w.settle()
    assert not any(child.kind.kind == "Pod" for child in w.last.actions.children)
    w.remove("Pod", "demo-sync-0")
    w.settle()
    assert w.has("Pod", "demo-sync-0")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_job_that_ended_is_never_run_again(world: type[World], phase: str) -> None:
    """Deleting the child Job of an ended job changes nothing."""
    w = world(CPU.replace("}", ", runPolicy: {restartPolicy: Never}}"))
    w.settle()
    if phase == "Succeeded":
        w.job_is("Complete")
    else:
        w.worker_fails(0)
    w.incident_settles()
    w.remove("Job", "demo")
    w.pod_goes(0)
    w.settle()
    assert w.phase == phase
    assert not w.has("Job", "demo")


def test_a_job_whose_child_job_was_deleted_fails(world: type[World]) -> None:
    """The job is not run again."""
    w = world(CPU)
    w.settle()
    w.remove("Job", "demo")
    w.settle()
    assert w.condition("Failed")[:2] == ("True", "JobDisappeared")
    assert not w.has("Job", "demo")


def test_a_job_goes_on_once_its_queue_exists(world: type[World]) -> None:
    w = world(CPU, None)
    w.settle()
    assert (w.phase, w.reason("QueueFound")) == ("Pending", "QueueNotFound")
    assert "TorchrunQueue research does not exist" in w.message("QueueFound")
    w.has_queue("image: trainer:1")
    w.settle()
    assert w.phase == "Starting"


def test_a_frozen_job_ignores_edits_of_its_queue(world: type[World]) -> None:
    """The end of the queue changes nothing either."""
    w = world(CPU)
    w.settle()
    before = dict(w.objects)
    w.has_queue("{image: other:2, nodeResources: {cpus: 9}, weight: 3}")
    w.settle()
    w.has_queue(None)
    w.settle()
    assert w.objects == before
    assert w.condition("QueueFound")[:2] == ("False", "QueueNotFound")
    assert w.phase == "Starting"


def test_a_lost_revision_is_made_again_from_its_queue(world: type[World]) -> None:
    w = world(CPU)
    w.settle()
    name = w.status.queue_revision
    w.remove("ControllerRevision", name)
    w.settle()
    assert w.has("ControllerRevision", name)


def test_an_edit_before_the_revision_exists_names_another(world: type[World]) -> None:
    """The queue is edited between naming and making the revision."""
    w = world(CPU)
    w.step()
    first = w.status.queue_revision
    w.has_queue("image: other:2")
    w.settle()
    assert w.status.queue_revision != first
    assert [name for kind, name in w.objects if kind == "ControllerRevision"] == [w.status.queue_revision]


def test_a_running_job_without_its_revision_may_end(world: type[World]) -> None:
    """The queue is another one by now."""
    w = world(CPU)
    w.settle()
    w.worker(0)
    w.settle()
    w.remove("ControllerRevision", w.status.queue_revision)
    w.has_queue("image: other:2")
    w.settle()
    assert (w.phase, w.last.actions.children) == ("Running", ())
    w.succeeds()
    w.settle()
    assert w.phase == "Succeeded"


def test_a_job_that_is_being_deleted_is_left_alone(world: type[World]) -> None:
    w = world(CPU)
    w.step()
    w.deleting()
    assert not w.step()
    assert w.last.actions.children == ()


def test_claims_of_one_name_find_each_other_again(world: type[World]) -> None:
    queue = "{image: a:1, storage: {checkpoints: {enabled: true}}}"
    w = world(CPU, queue)
    w.settle()
    claim = w.objects["PersistentVolumeClaim", "demo-checkpoints"]
    assert "ownerReferences" not in claim["metadata"]
    left = w.seen.checkpoints
    assert left is not None
    for retain in ("true", "false"):
        again = world(CPU, f"{{image: a:1, storage: {{checkpoints: {{enabled: true, retain: {retain}}}}}}}")
        again.leave(left)
        again.settle()
        assert "ownerReferences" not in again.objects["PersistentVolumeClaim", "demo-checkpoints"]["metadata"]
        child = next(c for c in again.last.actions.children if c.name == "demo-checkpoints")
        assert child.ours(left.metadata)


def test_an_unretained_checkpoints_claim_goes_with_its_job(world: type[World]) -> None:
    w = world(CPU, "{image: a:1, storage: {checkpoints: {enabled: true, retain: false}}}")
    w.settle()
    assert w.objects["PersistentVolumeClaim", "demo-checkpoints"]["metadata"]["ownerReferences"][0]["controller"]


def test_status_tells_sizes_and_endpoints(world: type[World]) -> None:
    w = world(TWO, "{image: a:1, nodeResources: {gpus: 4}}")
    w.settle()
    status = w.status
    uid = w.seen.job.metadata.uid
    assert (status.nodes.desired, status.gpus, status.job_id) == (2, 8, uid)
    assert status.master_endpoint == "demo-0.demo.team.svc.cluster.local:29500"
    assert status.rendezvous_id == f"{uid}-0"
    assert status.selector == f"torchrun.ai/job-uid={uid},torchrun.ai/role=worker"
    assert status.start_time == w.worker_job.metadata.creation_timestamp
