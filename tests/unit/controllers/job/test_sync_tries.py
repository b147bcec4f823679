"""Tries to bring the workspace: what ends one, what follows it, and which time counts."""

import json
from datetime import timedelta
from typing import Any

import pytest
from world import World

GIT = "{source: git, url: 'https://git.example.com/a.git'}"
UPLOAD = "{source: zip}"
JOB = "{jobQueue: research, numNodes: %d, command: python train.py, volumes: {workspace: %s}%s}"
ONE = JOB % (1, GIT, "")
TWO = JOB % (2, GIT, "")
REPORT = json.dumps({"revision": "abc", "digest": "sha256:00", "bytes": 1, "files": 1, "source": "git"})
AWAY = "fetch: cannot fetch https://git.example.com/a.git: the server cannot be reached"
PROXY = {"name": "istio-proxy", "state": {"running": {}}}
GATED = [
    {
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }
]
UNSCHEDULED = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "Insufficient cpu"}]


def a_world(world: type[World], job: str = ONE) -> World:
    w = world(job)
    w.settle()
    return w


def ended(w: World, code: int, message: str = "") -> dict[str, Any]:
    how = {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}
    return {"terminated": how | {"startedAt": w.now, "finishedAt": w.now}}


def runs(w: World, number: int = 0) -> None:
    """The container fetch starts now."""
    w.play(
        f"demo-sync-{number}",
        phase="Running",
        containerStatuses=[{"name": "fetch", "state": {"running": {"startedAt": w.now}}}],
    )
    w.settle()


def ends(w: World, number: int, code: int, message: str = "boom", *, beside: bool = False) -> None:
    """The container fetch starts and ends now; with `beside` a sidecar runs on."""
    w.play(
        f"demo-sync-{number}",
        phase="Running" if beside else "Failed" if code else "Succeeded",
        containerStatuses=[{"name": "fetch", "state": ended(w, code, message)}, *([PROXY] if beside else [])],
        startTime=w.now,
    )


def waits_for(w: World, number: int) -> float:
    """Lets the time pass that the operator asks for until a pod is there; how long that took."""
    passed = 0.0
    while not w.has("Pod", f"demo-sync-{number}") and w.phase != "Failed":
        passed += w.waits()
        w.settle()
    return passed


def has_deadline(w: World, number: int = 0) -> bool:
    pod = next(pod for pod in w.seen.sync_pods if pod.metadata.name == f"demo-sync-{number}")
    return pod.spec.active_deadline_seconds is not None


class TestTime:
    def test_time_without_a_node_does_not_count(self, world: type[World]) -> None:
        w = a_world(world)
        w.play("demo-sync-0", phase="Pending", node="", conditions=UNSCHEDULED)
        w.settle()
        w.later(100_000)
        w.settle()
        assert w.condition("WorkspaceReady")[:2] == ("False", "Unschedulable")
        runs(w)
        assert (w.phase, w.look_again_s()) == ("Syncing", 600)

    @pytest.mark.parametrize("reason", ["ImagePullBackOff", "ContainerCreating"])
    def test_time_before_the_container_starts_does_not_count(self, world: type[World], reason: str) -> None:
        """Neither images nor volumes are the source's fault."""
        w = a_world(world)
        waiting = {"name": "fetch", "state": {"waiting": {"reason": reason, "message": "not yet"}}}
        w.play("demo-sync-0", phase="Pending", containerStatuses=[waiting])
        w.settle()
        w.later(100_000)
        w.settle()
        assert w.phase == "Syncing"

    def test_a_pod_that_has_not_started_says_why(self, world: type[World]) -> None:
        w = a_world(world, JOB % (1, UPLOAD, ""))
        waiting = {"name": "fetch", "state": {"waiting": {"reason": "ContainerCreating"}}}
        w.play("demo-sync-0", phase="Pending", containerStatuses=[waiting])
        w.settle()
        assert "pod demo-sync-0 waits on node node-1 for its volumes" in w.message("WorkspaceReady")

    @pytest.mark.parametrize(
        ("gates", "labels", "said"),
        [
            (
                ["example.com/approval"],
                {},
                "held by scheduling gate example.com/approval, which the controller of example.com removes; see what",
            ),
            (
                ["kueue.x-k8s.io/admission", "example.com/a", "example.com/b"],
                {"kueue.x-k8s.io/queue-name": "default"},
                "held by scheduling gate kueue.x-k8s.io/admission, example.com/a, example.com/b, which the "
                "controller of kueue.x-k8s.io, example.com removes "
                "when Kueue's LocalQueue default has quota for the pod; see what",
            ),
        ],
        ids=["anybody's", "Kueue's"],
    )
    def test_gates_that_hold_a_pod_are_named(
        self, world: type[World], gates: list[str], labels: dict[str, str], said: str
    ) -> None:
        """With who removes them; the time at a gate does not count."""
        w = a_world(world)
        w.play(
            "demo-sync-0",
            phase="Pending",
            node="",
            metadata={"labels": labels},
            spec={"schedulingGates": [{"name": gate} for gate in gates]},
            conditions=GATED,
        )
        w.settle()
        w.later(100_000)
        w.settle()
        assert w.condition("WorkspaceReady")[:2] == ("False", "SchedulingGated")
        assert w.message("WorkspaceReady").startswith(f"pod demo-sync-0: {said} ")
        runs(w)
        assert (w.phase, w.look_again_s()) == ("Syncing", 600)

    def test_suspended_time_does_not_count(self, world: type[World]) -> None:
        w = a_world(world, JOB % (1, UPLOAD, ", suspend: true"))
        runs(w)
        w.later(100_000)
        w.settle()
        assert w.condition("WorkspaceReady")[:2] == ("False", "WaitingForUpload")
        w.edit(suspend=False)
        w.settle()
        assert (w.phase, w.look_again_s()) == ("Syncing", 600)
        w.later(600)
        w.settle()
        assert w.condition("Failed")[:2] == ("True", "WorkspaceTimeout")

    def test_a_resumed_job_has_all_its_time_again(self, world: type[World]) -> None:
        w = a_world(world, JOB % (1, UPLOAD, ""))
        runs(w)
        w.later(500)
        w.edit(suspend=True)
        w.settle()
        w.later(5000)
        w.edit(suspend=False)
        w.settle()
        assert w.look_again_s() == 600

    def test_tries_from_before_a_suspension_are_history(self, world: type[World]) -> None:
        """Such as one whose Secret was missing: it is created, and the job resumed."""
        w = a_world(world, JOB % (1, GIT, ", suspend: true"))
        ends(w, 0, 1)
        w.settle()
        w.later(60)
        w.edit(suspend=False)
        w.settle()
        assert w.phase == "Syncing"
        assert w.has("Pod", "demo-sync-1")

    def test_a_node_whose_clock_is_behind_takes_no_time_away(self, world: type[World]) -> None:
        w = a_world(world)
        behind = w.now - timedelta(hours=1)
        running = [{"name": "fetch", "state": {"running": {"startedAt": behind}}}]
        w.play("demo-sync-0", phase="Running", containerStatuses=running)
        w.settle()
        assert (w.phase, w.look_again_s()) == ("Syncing", 600)

    def test_tries_on_a_node_whose_clock_is_behind_are_counted(self, world: type[World]) -> None:
        w = a_world(world, JOB % (1, GIT, ", suspend: true"))
        w.later(60)
        w.edit(suspend=False)
        w.settle()
        behind = w.now - timedelta(hours=1)
        for number in range(3):
            how = {"exitCode": 137, "startedAt": behind, "finishedAt": behind}
            states = [{"name": "fetch", "state": {"terminated": how}}]
            made = {"creationTimestamp": w.now}
            w.play(f"demo-sync-{number}", phase="Failed", metadata=made, containerStatuses=states)
            w.settle()
        assert w.condition("Failed")[:2] == ("True", "WorkspaceSyncFailed")

    def test_a_server_may_wait_for_its_volume_without_limit(self, world: type[World]) -> None:
        """A ReadWriteOnce volume stays attached to a lost node for minutes after its pod is gone."""
        w = a_world(world, TWO)
        w.sync_serves(0, REPORT)
        w.settle()
        w.worker(1)
        w.worker_fails(0)
        w.play("demo-1-x", phase="Failed")
        w.settle()
        fetched = [{"name": "fetch", "state": {"terminated": {"exitCode": 0, "message": REPORT}}}]
        leaves = {"deletionTimestamp": w.now + timedelta(seconds=30)}
        w.play("demo-sync-0", phase="Running", metadata=leaves, initContainerStatuses=fetched)
        w.later(100)
        w.settle()
        assert w.attempt == 1
        assert [pod.metadata.name for pod in w.seen.sync_pods] == ["demo-sync-1"]
        waiting = {"name": "fetch", "state": {"waiting": {"reason": "PodInitializing"}}}
        w.play("demo-sync-1", phase="Pending", initContainerStatuses=[waiting])
        w.later(100_000)
        w.settle()
        assert "waits on node node-1 for its volumes" in w.message("WorkspaceReady")
        assert w.condition("Failed")[0] == "False"
        w.sync_serves(1, REPORT)
        w.settle()
        assert w.has("Job", "demo-r1")


class TestExitCodes:
    def test_an_unreachable_source_is_tried_until_the_time_is_over(self, world: type[World]) -> None:
        w = a_world(world)
        pauses: list[float] = []
        while w.phase != "Failed":
            ends(w, len(pauses), 75, AWAY)
            w.settle()
            pauses.append(waits_for(w, len(pauses) + 1))
        assert pauses == [10, 20, 40, 60, 60, 60, 60, 60, 60, 60, 60, 50]
        assert sum(pauses) == 600
        assert w.condition("Failed")[:2] == ("True", "WorkspaceTimeout")
        assert AWAY in w.message("Failed")

    def test_a_server_away_for_40_s_fails_no_job(self, world: type[World]) -> None:
        w, passed, number = a_world(world), 0.0, 0
        while passed < 40:
            ends(w, number, 75, AWAY)
            w.settle()
            assert w.reason("WorkspaceReady") == "SyncFailed"
            assert AWAY in w.message("WorkspaceReady")
            number += 1
            passed += waits_for(w, number)
        ends(w, number, 0, REPORT)
        w.settle()
        assert w.has("Job", "demo")

    def test_a_refused_source_fails_the_job_at_once(self, world: type[World]) -> None:
        w = a_world(world)
        ends(w, 0, 1, "fetch: there is no branch 'mian'")
        w.settle()
        assert w.condition("Failed")[:2] == ("True", "WorkspaceSyncFailed")
        assert "there is no branch 'mian'" in w.message("Failed")
        assert "kubectl logs demo-sync-0 -c fetch" in w.message("Failed")
        assert not w.has("Pod", "demo-sync-1")

    def test_other_ends_of_a_sync_pod_count_to_three(self, world: type[World]) -> None:
        w = a_world(world)
        ends(w, 0, 137)
        w.settle()
        ends(w, 1, 75, AWAY)
        w.settle()
        waits_for(w, 2)
        w.play("demo-sync-2", phase="Failed", reason="Evicted", message="low on memory")
        w.settle()
        assert w.phase == "Syncing"
        ends(w, 3, 137)
        w.settle()
        assert "pod demo-sync-3 failed (try 3 of 3)" in w.message("Failed")


class TestSidecars:
    def test_a_sync_pod_is_done_when_fetch_is(self, world: type[World]) -> None:
        w = a_world(world)
        ends(w, 0, 0, REPORT, beside=True)
        w.settle()
        assert w.condition("WorkspaceReady")[:2] == ("True", "WorkspaceReady")
        assert w.workspace.revision == "abc"
        assert w.has("Job", "demo")

    def test_the_outcome_is_recorded_before_the_pod_is_stopped(self, world: type[World]) -> None:
        w = a_world(world)
        ends(w, 0, 0, REPORT, beside=True)
        w.step()
        assert w.condition("WorkspaceReady")[0] == "True"
        assert not has_deadline(w)
        w.settle()
        assert has_deadline(w)
        assert [pod.metadata.name for pod in w.seen.sync_pods] == ["demo-sync-0"]

    def test_a_stopped_pod_whose_fetch_succeeded_has_brought_the_workspace(self, world: type[World]) -> None:
        w = a_world(world)
        states = [{"name": "fetch", "state": ended(w, 0, REPORT)}]
        w.play("demo-sync-0", phase="Failed", reason="DeadlineExceeded", containerStatuses=states)
        w.settle()
        assert w.condition("WorkspaceReady")[:2] == ("True", "WorkspaceReady")

    def test_a_failed_try_is_stopped_before_another_follows(self, world: type[World]) -> None:
        w = a_world(world)
        ends(w, 0, 137, beside=True)
        w.settle()
        assert has_deadline(w)
        assert not w.has("Pod", "demo-sync-1")
        ends(w, 0, 137)
        w.settle()
        assert w.has("Pod", "demo-sync-1")

    def test_the_log_of_the_last_try_stays_readable(self, world: type[World]) -> None:
        w = a_world(world)
        ends(w, 0, 1, beside=True)
        w.settle()
        assert w.phase == "Failed"
        assert has_deadline(w)
        assert [pod.metadata.name for pod in w.seen.sync_pods] == ["demo-sync-0"]

    def test_a_server_that_ended_beside_a_sidecar_is_replaced(self, world: type[World]) -> None:
        w = a_world(world, TWO)
        w.sync_serves(0, REPORT)
        w.settle()
        w.play(
            "demo-sync-0",
            phase="Running",
            initContainerStatuses=[{"name": "fetch", "state": ended(w, 0, REPORT)}],
            containerStatuses=[{"name": "serve", "state": ended(w, 137)}, PROXY],
        )
        w.settle()
        assert has_deadline(w)
        w.play(
            "demo-sync-0",
            phase="Failed",
            initContainerStatuses=[{"name": "fetch", "state": ended(w, 0, REPORT)}],
            containerStatuses=[{"name": "serve", "state": ended(w, 137)}],
        )
        w.settle()
        assert w.has("Pod", "demo-sync-1")

    def test_a_server_names_the_sidecar_that_is_not_ready(self, world: type[World]) -> None:
        """Only a ready pod has an address in the Service that workers pull from."""
        w = a_world(world, TWO)
        w.play(
            "demo-sync-0",
            phase="Running",
            initContainerStatuses=[{"name": "fetch", "state": ended(w, 0, REPORT)}],
            containerStatuses=[{"name": "serve", "state": {"running": {}}, "ready": True}, PROXY],
        )
        w.settle()
        assert w.message("WorkspaceReady").endswith("serves it when it is ready; not yet: istio-proxy")
