"""The workspace over time: revisions that are asked for later, the time that all tries have, who serves what."""

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from world import World

from torchctl.api.job import JobWorkspace, Volumes
from torchctl.controllers.job.steps.tries import revision_of

GIT = '{source: git, url: "https://git.example.com/a.git", ref: main%s}'
JOB = "{jobQueue: research, numNodes: %d, command: python train.py, volumes: {workspace: %s}%s}"
SHARED = "{image: trainer:1, storage: {workspace: {accessModes: [ReadWriteMany], distribution: shared}}}"


def a_job(nodes: int = 1, workspace: str = GIT % "", more: str = "") -> str:
    return JOB % (nodes, workspace, f", {more}" if more else "")


def report(revision: str) -> str:
    return json.dumps({"revision": revision, "digest": "sha256:00", "bytes": 1, "files": 1, "source": "git"})


def asks_for(w: World, revision: str | None) -> None:
    """The user edits spec.volumes.workspace.revision."""
    volumes: Volumes = w.seen.job.spec.volumes
    workspace = (volumes.workspace or JobWorkspace()).model_copy(update={"revision": revision})
    w.edit(volumes=volumes.model_copy(update={"workspace": workspace}))


def args(w: World, number: int) -> list[str]:
    spec = w.spec("Pod", f"demo-sync-{number}")
    (fetch,) = [one for one in (*spec.get("initContainers", ()), *spec["containers"]) if one["name"] == "fetch"]
    return list(fetch["args"])


def synced(world: type[World], text: str, queue: str = SHARED, nodes: int = 1, revision: str = "one") -> World:
    """A job whose first attempt runs with its workspace."""
    w = world(text, queue)
    w.settle()
    w.sync_succeeds(message=report(revision))
    w.sync_serves(message=report(revision))
    w.settle()
    for index in range(nodes):
        w.worker(index)
    w.settle()
    assert w.phase == "Running"
    return w


def fails(w: World) -> None:
    """The attempt fails, and the next one may begin."""
    w.worker_fails(0)
    w.settle()
    w.later(20)
    w.settle()
    assert w.attempt == 1


def server_fails(w: World, number: int) -> None:
    """The sync pod brings the workspace and then ends, before anybody has it."""
    fetched = {"terminated": {"exitCode": 0, "reason": "Completed", "message": report("one")}}
    killed = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    w.play(
        f"demo-sync-{number}",
        phase="Failed",
        initContainerStatuses=[{"name": "fetch", "state": fetched}],
        containerStatuses=[{"name": "serve", "state": killed}],
    )


class TestRevisions:
    def test_the_first_pod_gets_the_requested_revision(self, world: type[World]) -> None:
        w = world(a_job(workspace=GIT % ", revision: v1"))
        w.settle()
        assert "--revision=v1" in args(w, 0)
        assert "--ref=main" in args(w, 0)
        meta = w.objects["Pod", "demo-sync-0"]["metadata"]
        assert meta["annotations"]["torchrun.ai/workspace-revision"] == "v1"
        w.sync_succeeds(message=report("abc"))
        w.settle()
        status = w.workspace
        assert (status.requested, status.revision, status.pod) == ("v1", "abc", "")
        assert w.has("Job", "demo")

    def test_a_job_without_a_revision_has_a_plain_pod(self, world: type[World]) -> None:
        w = world(a_job())
        w.settle()
        assert "annotations" not in w.objects["Pod", "demo-sync-0"]["metadata"]
        assert not [word for word in args(w, 0) if "revision" in word]

    def test_a_running_attempt_keeps_its_revision(self, world: type[World]) -> None:
        """The condition says which one follows."""
        w = synced(world, a_job())
        before = dict(w.objects)
        asks_for(w, "v2")
        w.settle()
        assert w.objects == before
        assert w.condition("WorkspaceReady") == (
            "True",
            "WorkspaceReady",
            "pod demo-sync-0 has brought the workspace at one; revision v2 follows with the next attempt",
        )
        assert w.phase == "Running"
        asks_for(w, "v3")
        w.settle()
        assert w.message("WorkspaceReady").endswith("at one; revision v3 follows with the next attempt")
        asks_for(w, None)
        w.settle()
        assert w.message("WorkspaceReady").endswith("at one")

    def test_the_next_attempt_waits_for_the_requested_revision(self, world: type[World]) -> None:
        w = synced(world, a_job())
        asks_for(w, "v2")
        fails(w)
        assert not w.has("Job", "demo-r1")
        assert w.condition("WorkspaceReady")[:2] == ("False", "Syncing")
        assert "--revision=v2" in args(w, 1)
        w.sync_succeeds(1, report("two"))
        w.settle()
        assert w.has("Job", "demo-r1")
        status = w.workspace
        assert (status.requested, status.revision, status.pod) == ("v2", "two", "demo-sync-1")

    def test_status_has_the_requested_revision_before_its_pod_exists(self, world: type[World]) -> None:
        w = synced(world, a_job())
        asks_for(w, "v2")
        w.worker_fails(0)
        w.settle()
        w.later(20)
        while not (workspace := w.workspace).pod:
            assert not w.has("Pod", "demo-sync-1")
            assert w.step()
        assert (workspace.requested, workspace.pod, workspace.revision) == ("v2", "demo-sync-1", "")
        w.forget()
        w.settle()
        assert w.has("Pod", "demo-sync-1")
        assert not w.has("Pod", "demo-sync-2")

    def test_the_next_attempt_starts_at_once_without_another_request(self, world: type[World]) -> None:
        w = synced(world, a_job())
        fails(w)
        assert w.has("Job", "demo-r1")
        assert not w.has("Pod", "demo-sync-1")

    @pytest.mark.parametrize("same", ["one", "sha256:one"])
    def test_the_revision_that_is_there_is_not_synced_again(self, world: type[World], same: str) -> None:
        w = synced(world, a_job(), revision=same)
        asks_for(w, "one")
        fails(w)
        assert w.has("Job", "demo-r1")

    def test_a_revision_that_goes_back_is_synced_again(self, world: type[World]) -> None:
        """The old sync pod of that revision is still there."""
        w = synced(world, a_job(workspace=GIT % ", revision: v1"))
        asks_for(w, "v2")
        fails(w)
        asks_for(w, "v1")
        w.settle()
        assert not w.has("Pod", "demo-sync-1")  # it would have written v2 over the claim
        assert "--revision=v1" in args(w, 2)
        assert not w.has("Job", "demo-r1")
        w.sync_succeeds(2, report("one again"))
        w.settle()
        assert w.has("Job", "demo-r1")

    def test_an_edit_during_the_first_sync_replaces_its_pod(self, world: type[World]) -> None:
        """The next pod waits until the first one is gone."""
        w = world(a_job())
        w.settle()
        w.play("demo-sync-0", phase="Running")
        asks_for(w, "v2")
        w.play("demo-sync-0", phase="Running", metadata={"deletionTimestamp": w.now})
        w.settle()
        assert "demo-sync-0 of another revision is being stopped" in w.message("WorkspaceReady")
        assert not w.has("Pod", "demo-sync-1")
        w.play("demo-sync-0", phase="Failed", metadata={"deletionTimestamp": w.now})
        w.settle()
        assert "--revision=v2" in args(w, 1)

    def test_an_edit_after_the_first_sync_keeps_old_code_out(self, world: type[World]) -> None:
        """No attempt starts with the old code."""
        w = world(a_job())
        w.settle()
        w.sync_succeeds(message=report("one"))
        asks_for(w, "v2")
        w.settle()
        assert not w.has("Job", "demo")
        assert "--revision=v2" in args(w, 1)
        asks_for(w, None)
        w.settle()
        assert not w.has("Job", "demo")  # v2 is half written
        w.sync_succeeds(1, report("two"))
        w.settle()
        assert w.has("Job", "demo")

    def test_the_third_failed_sync_of_a_revision_ends_the_job(self, world: type[World]) -> None:
        w = synced(world, a_job())
        asks_for(w, "v2")
        fails(w)
        for number in (1, 2, 3):
            w.sync_fails(number, "fetch: there is no branch or tag 'v2'")
            w.settle()
        assert w.condition("Failed")[:2] == ("True", "WorkspaceSyncFailed")
        assert "pod demo-sync-3 failed (try 3 of 3)" in w.message("Failed")
        assert not w.has("Job", "demo-r1")

    def test_an_unreadable_report_does_not_repeat_the_sync(self, world: type[World]) -> None:
        w = synced(world, a_job())
        asks_for(w, "v2")
        fails(w)
        w.sync_succeeds(1, "no report")
        w.settle()
        assert w.has("Job", "demo-r1")
        assert w.workspace.requested == "v2"

    def test_an_old_server_goes_before_another_revision_is_synced(self, world: type[World]) -> None:
        w = synced(world, a_job(2), "image: trainer:1", nodes=2)
        asks_for(w, "v2")
        w.settle()
        assert w.has("Pod", "demo-sync-0")
        w.worker_fails(0)
        w.settle()
        w.worker_fails(1)
        w.settle()
        w.later(20)
        w.settle()
        assert not w.has("Pod", "demo-sync-0")
        assert "--revision=v2" in args(w, 1)
        w.sync_serves(1, report("two"))
        w.settle()
        assert w.has("Job", "demo-r1")

    def test_a_lost_server_is_replaced_at_the_attempts_revision(self, world: type[World]) -> None:
        w = synced(world, a_job(2, GIT % ", revision: v1"), "image: trainer:1", nodes=2)
        asks_for(w, "v2")
        w.remove("Pod", "demo-sync-0")
        w.settle()
        assert "--revision=v1" in args(w, 0)

    def test_servers_that_fail_repeatedly_back_off(self, world: type[World]) -> None:
        """Such as one that has too little memory for the workspace: each of them leaves a pod behind."""
        w = world(a_job(2), "image: trainer:1")
        waits: list[float] = []
        w.settle()
        for number in range(10):
            server_fails(w, number)
            w.settle()
            waits.append(0.0)
            while not w.has("Pod", f"demo-sync-{number + 1}"):
                waits[-1] += w.waits()
                w.settle()
        assert waits == [0, 10, 20, 40, 80, 160, 300, 300, 300, 300]
        assert "Failed" not in w.log
        server_fails(w, 10)
        w.later(7200)
        w.settle()
        assert w.has("Pod", "demo-sync-11")

    def test_what_follows_is_said_while_the_workspace_is_still_served(self, world: type[World]) -> None:
        w = world(a_job(2, more="elastic: {minNodes: 1, maxNodes: 3}"), "image: trainer:1")
        w.settle()
        w.sync_serves(message=report("one"))
        w.settle()
        asks_for(w, "v2")
        w.settle()
        said = "pod demo-sync-0 has brought the workspace at one; revision v2 follows with the next attempt"
        assert w.condition("WorkspaceReady") == ("True", "WorkspaceReady", said)

    def test_a_template_that_begins_to_serve_gets_a_server(self, world: type[World]) -> None:
        w = synced(world, a_job(2, more="queueUpdatePolicy: NextAttempt"), nodes=2)
        w.has_queue("{image: trainer:1, storage: {workspace: {distribution: serve}}}")
        w.worker_fails(0)
        w.settle()
        w.worker_fails(1)
        w.settle()
        w.later(20)
        w.settle()
        assert w.has("Pod", "demo-sync-1")
        w.sync_serves(1, report("one"))
        w.settle()
        assert w.has("Job", "demo-r1")
        assert "SyncFailed" not in [reason for _, reason, _ in w.events]

    def test_an_upload_is_waited_for_by_its_revision(self, world: type[World]) -> None:
        w = world(a_job(workspace="{source: zip, revision: 'sha256:77'}"))
        w.settle()
        assert args(w, 0)[:4] == ["receive", "--root=/workspace", "--timeout=inf", "--revision=sha256:77"]

    def test_a_lost_claim_is_not_remade_for_another_revision(self, world: type[World]) -> None:
        w = synced(world, a_job())
        asks_for(w, "v2")
        w.remove("PersistentVolumeClaim", "demo-workspace")
        fails(w)
        assert w.condition("WorkspaceReady")[:2] == ("False", "ClaimLost")
        assert not w.has("Pod", "demo-sync-1")


class TestClaimOfEarlierAttempts:
    """The claim stays the one that it is, whatever accessModes the queue has by the next attempt."""

    def frozen_again(self, world: type[World], before: str, after: str, *, workspace: str = GIT % "") -> World:
        """A job of two nodes whose queue has another storage.workspace when its second attempt is frozen."""
        queue = "{image: trainer:1, storage: {workspace: %s}}"
        w = synced(world, a_job(2, workspace, more="queueUpdatePolicy: NextAttempt"), queue % before, nodes=2)
        w.has_queue(queue % after)
        w.worker(1, "Failed")
        fails(w)
        return w

    @pytest.mark.parametrize(
        ("before", "after", "distribution"),
        [
            ("{accessModes: [ReadWriteOnce]}", "{accessModes: [ReadWriteMany]}", "serve"),
            ("{accessModes: [ReadWriteMany]}", "{accessModes: [ReadWriteOnce]}", "copy"),
            ("{accessModes: [ReadWriteMany]}", "{accessModes: [ReadWriteOnce], distribution: shared}", "shared"),
            ("{accessModes: [ReadWriteMany]}", "{accessModes: [ReadOnlyMany]}", "copy"),
        ],
    )
    def test_the_claims_access_modes_decide_the_distribution(
        self, world: type[World], before: str, after: str, distribution: str
    ) -> None:
        w = self.frozen_again(world, before, after)
        found = w.revision.data["workspace"]
        assert (found["distribution"], list(found["accessModes"])) == (
            distribution,
            w.spec("PersistentVolumeClaim", "demo-workspace")["accessModes"],
        )

    @pytest.mark.parametrize(
        ("before", "after", "distribution", "packed"),
        [
            ("copy", "copy", "copy", True),
            ("copy", "serve", "serve", True),
            ("serve", "shared", "copy", True),
            ("copy", "shared", "copy", True),
            ("shared", "shared", "shared", False),
            ("shared", "copy", "copy", False),
            ("shared", "serve", "serve", False),
        ],
    )
    def test_a_claim_holds_uploads_in_one_way_for_good(
        self, world: type[World], before: str, after: str, distribution: str, packed: bool
    ) -> None:
        """As one file, which workers cannot mount in place of files, or as files."""
        w = self.frozen_again(
            world,
            *(f"{{accessModes: [ReadWriteMany], distribution: {one}}}" for one in (before, after)),
            workspace="{source: zip}",
        )
        found = w.revision.data["workspace"]
        assert (found["distribution"], found.get("packed", False)) == (distribution, packed)

    def test_a_claims_limits_are_reported_with_the_next_step(self, world: type[World]) -> None:
        w = self.frozen_again(
            world, "{accessModes: [ReadWriteOnce]}", "{accessModes: [ReadWriteMany], distribution: copy}"
        )
        assert w.condition("Accepted") == (
            "True",
            "TemplateStays",
            "the spec is valid; attempts go on with the template of before, because none can be made now: "
            "distribution copy needs a claim that 2 nodes can mount; PersistentVolumeClaim demo-workspace is "
            "['ReadWriteOnce'] for good: set distribution serve or auto in the queue's storage.workspace, or submit "
            "the job again",
        )
        w.has_queue("{image: trainer:1, storage: {workspace: {accessModes: [ReadWriteMany]}}}")
        w.settle()
        assert w.condition("Accepted")[:2] == ("True", "Accepted")


class TestTime:
    def test_all_tries_together_have_the_time_of_one(self, world: type[World]) -> None:
        w = world(a_job(workspace=GIT % ", timeoutSeconds: 100"))
        w.settle()
        w.sync_runs(0)
        w.settle()
        assert w.look_again_s() == 100
        w.later(60)
        w.sync_fails(0, "fetch: the disk was full", ran_s=60)
        w.settle()
        w.sync_runs(1)
        w.settle()
        assert (w.phase, w.look_again_s()) == ("Syncing", 40)
        w.later(40)
        w.settle()
        status, reason, message = w.condition("Failed")
        assert (status, reason) == ("True", "WorkspaceTimeout")
        assert message == (
            "the workspace was not there after 100 s (volumes.workspace.timeoutSeconds): pod demo-sync-1 is bringing "
            "the workspace (git); before that pod demo-sync-0 failed: fetch: the disk was full"
        )
        failure = w.failure
        assert (failure.pod, failure.reason) == ("demo-sync-1", "WorkspaceTimeout")
        assert not w.has("Pod", "demo-sync-1")
        assert ("Warning", "WorkspaceTimeout") in [event[:2] for event in w.events]

    def test_an_unbound_claim_is_waited_for_and_named(self, world: type[World]) -> None:
        w = world(a_job())
        w.settle()
        said = "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims."
        waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
        w.play("demo-sync-0", phase="Pending", node="", conditions=[waits])
        w.settle()
        w.later(600)
        w.settle()
        assert w.condition("Failed")[0] == "False"
        assert "waits for its PersistentVolumeClaim to be bound" in w.message("WorkspaceReady")

    def test_another_revision_has_a_time_of_its_own(self, world: type[World]) -> None:
        w = synced(world, a_job(workspace=GIT % ", timeoutSeconds: 100"))
        w.later(5000)
        asks_for(w, "v2")
        fails(w)
        assert w.reason("WorkspaceReady") == "Syncing"
        w.sync_runs(1)
        w.settle()
        assert w.look_again_s() == 100
        w.later(100)
        w.settle()
        assert w.condition("Failed")[:2] == ("True", "WorkspaceTimeout")

    def test_a_workspace_that_is_there_never_times_out(self, world: type[World]) -> None:
        w = synced(world, a_job())
        w.later(100_000)
        w.settle()
        assert w.phase == "Running"

    def test_a_server_lost_late_is_still_replaced(self, world: type[World]) -> None:
        """The next server has a time of its own."""
        w = world(a_job(2), "image: trainer:1")
        w.settle()
        w.sync_fails(0)
        w.settle()
        w.sync_serves(1, report("one"))
        w.settle()
        w.later(100_000)
        fetched = [{"name": "fetch", "state": {"terminated": {"exitCode": 0}}}]
        w.play("demo-sync-1", phase="Failed", reason="Evicted", initContainerStatuses=fetched)
        w.settle()
        assert w.phase == "Starting"
        assert w.has("Pod", "demo-sync-2")

    def test_a_server_lost_repeatedly_is_no_failed_sync(self, world: type[World]) -> None:
        w = world(a_job(2), "image: trainer:1")
        w.settle()
        fetched = [{"name": "fetch", "state": {"terminated": {"exitCode": 0, "message": report("one")}}}]
        for number in range(6):
            w.sync_serves(number, report("one"))
            w.settle()
            w.later(300)
            w.play(f"demo-sync-{number}", phase="Failed", reason="Evicted", initContainerStatuses=fetched)
            w.settle()
        assert w.has("Pod", "demo-sync-6")
        assert w.phase == "Starting"
        told = [message for _, reason, message in w.events if reason == "SyncFailed"]
        assert told[0] == "pod demo-sync-0, which served the workspace, failed: Evicted"

    @pytest.mark.parametrize("elastic", [False, True])
    def test_a_server_is_missed_only_while_somebody_may_still_come(self, world: type[World], elastic: bool) -> None:
        more = "elastic: {minNodes: 1, maxNodes: 3}" if elastic else ""
        w = world(a_job(2, more=more), "image: trainer:1")
        w.settle()
        w.sync_serves(0, report("one"))
        w.settle()
        for index in range(2):
            w.worker(index, initContainerStatuses=[{"name": "workspace", "state": {"terminated": {"exitCode": 0}}}])
        w.settle()
        w.remove("Pod", "demo-sync-0")
        w.settle()
        assert (w.has("Pod", "demo-sync-0")) is elastic

    def test_a_server_on_a_lost_node_is_not_waited_for(self, world: type[World]) -> None:
        w = world(a_job(2), "image: trainer:1")
        w.settle()
        w.sync_serves(0, report("one"))
        w.settle()
        w.play(
            "demo-sync-0",
            phase="Running",
            metadata={"deletionTimestamp": w.now + timedelta(seconds=30)},
            initContainerStatuses=[{"name": "fetch", "state": {"terminated": {"exitCode": 0}}}],
        )
        w.settle()
        assert w.has("Pod", "demo-sync-1")

    @pytest.mark.parametrize("asked", [None, "v2"])
    def test_a_stuck_sync_pod_is_forced_and_replaced(self, world: type[World], asked: str | None) -> None:
        """The pod's node does not answer. The same holds if another revision is asked for and waits for it."""
        w = world(a_job())
        w.settle()
        w.play("demo-sync-0", phase="Running", metadata={"deletionTimestamp": w.now + timedelta(seconds=30)})
        asks_for(w, asked)
        w.settle()
        assert w.look_again_s() == 60
        w.later(59)
        w.settle()
        assert w.last.actions.remove == ()
        w.later(1)
        w.step()
        assert [one[1:] for one in w.removals] == [("demo-sync-0", True)]
        w.settle()
        (pod,) = w.seen.sync_pods
        assert (pod.metadata.deletion_timestamp, revision_of(pod)) == (None, asked or "")
        w.sync_succeeds(message=report("one"))
        w.settle()
        assert w.has("Job", "demo")


class TestCaveats:
    CHECKPOINTS = "{image: trainer:1, storage: {checkpoints: {enabled: true%s}}}"
    TWO = "{jobQueue: research, numNodes: 2, command: python train.py}"

    def test_single_node_checkpoints_are_accepted_with_a_warning(self, world: type[World]) -> None:
        w = world(self.TWO, self.CHECKPOINTS % "")
        w.settle()
        status, reason, message = w.condition("Accepted")
        assert (status, reason) == ("True", "CheckpointsOnOneNode")
        assert "PersistentVolumeClaim demo-checkpoints is ReadWriteOnce and the job has 2 pods" in message
        assert next(event[:2] for event in w.events) == ("Warning", "CheckpointsOnOneNode")
        assert w.has("Job", "demo")

    @pytest.mark.parametrize(
        ("nodes", "more"),
        [(1, ""), (2, ", accessModes: [ReadWriteOnce, ReadWriteMany]"), (2, ", claimName: shared")],
    )
    def test_others_are_just_accepted(self, world: type[World], nodes: int, more: str) -> None:
        w = world(f"{{jobQueue: research, numNodes: {nodes}, command: python a.py}}", self.CHECKPOINTS % more)
        w.settle()
        assert w.condition("Accepted")[:2] == ("True", "Accepted")

    def test_a_claim_that_was_left_is_judged_by_itself(self, world: type[World]) -> None:
        """The access modes of the claim count, not those of the queue."""
        left = world(self.TWO, self.CHECKPOINTS % ", accessModes: [ReadWriteMany]")
        left.settle()
        w = world(self.TWO, self.CHECKPOINTS % "")
        claim = ("PersistentVolumeClaim", "demo-checkpoints")
        w.objects[claim] = left.objects[claim]
        assert left.seen.checkpoints is not None
        w.leave(left.seen.checkpoints)
        w.settle()
        assert w.reason("Accepted") == "Accepted"


class Claim:
    """What is on the volume: a revision, or nothing whole while somebody writes."""

    def __init__(self, w: World) -> None:
        self.w = w
        self.holds: str | None = None

    def pods(self, *phases: str) -> list[Any]:
        return [pod for pod in self.w.seen.sync_pods if (pod.status.phase or "Pending") in phases]

    def begins(self) -> None:
        for pod in self.pods("Pending"):
            self.w.play(pod.metadata.name, phase="Running")
            if self.holds != revision_of(pod):
                self.holds = None

    def ends(self, *, well: bool) -> None:
        self.begins()
        for pod in self.pods("Running"):
            number = int(pod.metadata.name.rpartition("-")[2])
            if well:
                self.holds = revision_of(pod)
                self.w.sync_succeeds(number, report(f"commit-of-{revision_of(pod)}"))
            else:
                self.w.sync_fails(number)

    def swept(self) -> None:
        """A person deletes what has ended."""
        for pod in self.pods("Succeeded", "Failed"):
            self.w.remove("Pod", pod.metadata.name)

    def lost(self) -> None:
        """The attempt that runs fails, and its back-off passes."""
        if self.w.seen.worker_job is not None and self.w.phase in ("Starting", "Running"):
            self.w.worker_fails(0)
            self.w.settle()
            self.w.later(1000)


MOVES = ("edit v1", "edit v2", "edit", "well", "well and v1", "well and v2", "badly", "swept", "lost", "restart")


@given(st.lists(st.sampled_from(MOVES), max_size=40))
def test_no_attempt_starts_on_a_partial_or_wrong_workspace(world: type[World], moves: list[str]) -> None:
    w = world(a_job(more="runPolicy: {maxRestarts: 1000}"), SHARED)
    claim = Claim(w)
    for move in moves:
        started = {name for kind, name in w.objects if kind == "Job"}
        what, _, revision = move.replace(" and", "").partition(" ")
        if what in ("well", "badly"):
            claim.ends(well=what == "well")
        elif what == "restart":
            w.forget()
        elif what != "edit":
            getattr(claim, what)()
        if what == "edit" or revision:
            asks_for(w, revision or None)
        w.settle()
        claim.begins()
        if w.phase == "Failed":
            return
        if {name for kind, name in w.objects if kind == "Job"} - started:
            wanted = w.source.revision
            assert claim.holds is not None
            assert wanted is None or claim.holds == wanted
        running = {revision_of(pod) for pod in claim.pods("Pending", "Running")}
        assert len(running) <= 1


def test_the_property_sees_attempts_with_each_revision(world: type[World]) -> None:
    """The moves do lead somewhere: a history that has three attempts with three revisions."""
    w = world(a_job(more="runPolicy: {maxRestarts: 1000}"), SHARED)
    claim = Claim(w)
    held = []
    for revision in (None, "v1", "v2"):
        asks_for(w, revision)
        claim.lost()
        w.settle()
        claim.ends(well=True)
        w.settle()
        held.append((claim.holds, w.seen.worker_job is not None))
    assert held == [("", True), ("v1", True), ("v2", True)]
