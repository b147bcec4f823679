"""A worker is up when its trainer runs and done when its trainer exited 0, whatever runs beside it."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from world import World

from torchctl.api.kube import JobStatus

TWO = "{jobQueue: research, numNodes: 2, command: python train.py}"
ELASTIC = "{jobQueue: research, numNodes: 2, command: python train.py, elastic: {minNodes: 2, maxNodes: 4}}"
READY = [{"type": "Ready", "status": "True"}]
UNREADY = [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}]
RUNS = {"ready": True, "state": {"running": {}}}
DONE = {"ready": False, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
DEAD = {"ready": False, "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}


def running(world: type[World], text: str) -> World:
    w = world(text)
    w.settle()
    for index in range(2):
        beside(w, index, RUNS, RUNS)
    w.settle()
    assert w.phase == "Running"
    return w


def beside(w: World, index: int, trainer: dict[str, Any], other: dict[str, Any], phase: str = "Running") -> None:
    """A worker with a plain sidecar."""
    both = [{"name": "trainer", **trainer}, {"name": "proxy", **other}]
    ready = trainer is RUNS and other is RUNS
    w.worker(index, phase, containerStatuses=both, conditions=READY if ready else UNREADY)


def completed(w: World, indexes: str) -> None:
    """What the Job controller has counted."""
    job = w.worker_job
    status = msgspec.structs.replace(job.status, completed_indexes=indexes)
    w.worker_job_has(status=status)


def test_completed_indexes_are_read_as_the_job_controller_writes_them() -> None:
    assert JobStatus(completed_indexes="0-2,5,7-8").completed == {0, 1, 2, 5, 7, 8}
    assert JobStatus().completed == frozenset()


@pytest.mark.parametrize("text", [TWO, ELASTIC])
def test_trainers_that_are_done_beside_a_living_sidecar_have_succeeded(world: type[World], text: str) -> None:
    w = running(world, text)
    for index in range(2):
        beside(w, index, DONE, RUNS)
    w.settle()
    assert w.phase == "Succeeded"
    assert w.restarts.total == 0


@pytest.mark.parametrize("text", [TWO, ELASTIC])
def test_the_outcome_is_written_before_the_sidecars_are_stopped(world: type[World], text: str) -> None:
    w = running(world, text)
    for index in range(2):
        beside(w, index, DONE, RUNS)
    w.step()
    assert (w.phase, w.stopped()) == ("Succeeded", False)
    w.step()
    assert w.stopped()


@pytest.mark.parametrize("text", [TWO, ELASTIC])
def test_a_job_whose_native_sidecars_end_is_left_alone(world: type[World], text: str) -> None:
    """Kubernetes ends them after the trainer, and the Job then ends by itself."""
    w = running(world, text)
    for index in range(2):
        native = [{"name": "log", "restartPolicy": "Always", "state": {"running": {}}}]
        trainer = [{"name": "trainer", **DONE}]
        w.worker(index, "Running", containerStatuses=trainer, initContainerStatuses=native)
    w.settle()
    assert (w.phase, w.last.actions.children) == ("Succeeded", ())


@pytest.mark.parametrize("text", [TWO, ELASTIC])
def test_a_worker_that_is_made_after_the_success_is_stopped(world: type[World], text: str) -> None:
    """Whoever released or replaced it: a job that is done is never run again."""
    w = running(world, text)
    for index in range(2):
        beside(w, index, DONE, DONE, "Succeeded")
    w.settle()
    assert w.phase == "Succeeded"
    w.pod_goes(0)
    w.worker(0)
    w.settle()
    assert (w.phase, w.stopped()) == ("Succeeded", True)


def test_a_job_whose_pods_have_ended_is_not_ended(world: type[World]) -> None:
    w = running(world, TWO)
    for index in range(2):
        beside(w, index, DONE, DONE, "Succeeded")
    w.settle()
    assert (w.phase, w.stopped()) == ("Succeeded", False)


def test_a_helper_that_ends_by_itself_leaves_its_worker_ready(world: type[World]) -> None:
    w = world("{jobQueue: research, numNodes: 2, command: x, runPolicy: {startupTimeoutSeconds: 60}}")
    w.settle()
    for index in range(2):
        beside(w, index, RUNS, DONE)
    w.settle()
    w.later(120)
    w.settle()
    assert (w.phase, w.status.nodes.ready) == ("Running", 2)


@pytest.mark.parametrize("text", [TWO, ELASTIC])
def test_a_dead_sidecar_restarts_no_training(world: type[World], text: str) -> None:
    w = running(world, text)
    for index in range(2):
        beside(w, index, RUNS, DEAD)
    w.settle()
    w.later(300)
    w.settle()
    assert (w.phase, w.restarts.total) == ("Running", 0)


def test_a_training_that_succeeded_beside_a_dead_sidecar_has_succeeded(world: type[World]) -> None:
    """Its pods are Failed, and so is its Job, which ends them all before the last trainer is seen to be done."""
    w = running(world, TWO)
    beside(w, 0, DONE, DEAD, "Failed")
    w.job_is("Failed", "BackoffLimitExceeded")
    w.settle()
    assert w.phase == "Restarting"
    beside(w, 1, DONE, DEAD, "Failed")
    w.settle()
    assert (w.phase, w.status.failure, w.restarts.total) == ("Succeeded", None, 0)


def test_a_dead_sidecar_does_not_replace_worker_0(world: type[World]) -> None:
    """Its pod is Failed, and its elastic Job would replace it."""
    w = running(world, ELASTIC)
    beside(w, 0, DONE, DEAD, "Failed")
    w.settle()
    assert (w.phase, w.stopped()) == ("Succeeded", True)


def test_an_elastic_job_whose_worker_0_succeeded_is_not_ended(world: type[World]) -> None:
    w = running(world, ELASTIC)
    beside(w, 0, DONE, DONE, "Succeeded")
    w.settle()
    assert (w.phase, w.stopped()) == ("Succeeded", False)


def test_an_evicted_trainer_that_exits_0_is_not_done(world: type[World]) -> None:
    w = running(world, TWO)
    beside(w, 0, DONE, DONE, "Succeeded")
    both = [{"name": "trainer", **DONE}]
    w.worker(1, "Failed", containerStatuses=both, reason="Evicted", message="low on memory")
    w.settle()
    assert w.phase == "Restarting"


def test_a_trainer_done_before_its_pods_deletion_is_done(world: type[World]) -> None:
    w = running(world, TWO)
    ended = {"terminated": {"exitCode": 0, "finishedAt": w.now}}
    until = {"deletionTimestamp": w.now + timedelta(seconds=90), "deletionGracePeriodSeconds": 30}
    for index in range(2):
        both = [{"name": "trainer", "state": ended}, {"name": "proxy", **RUNS}]
        w.worker(index, containerStatuses=both, metadata=until)
    w.settle()
    assert w.phase == "Succeeded"


def test_a_worker_is_up_despite_a_failing_readiness_gate(world: type[World]) -> None:
    gate = [
        {"type": "ContainersReady", "status": "True"},
        {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"},
    ]
    w = world(TWO)
    w.settle()
    for index in range(2):
        w.worker(index, containerStatuses=[{"name": "trainer", **RUNS}], conditions=gate)
    w.settle()
    assert w.phase == "Running"


def test_a_worker_whose_node_does_not_answer_is_not_up(world: type[World]) -> None:
    silent = [{"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": "False"}]
    w = running(world, ELASTIC)
    w.worker(1, containerStatuses=[{"name": "trainer", **RUNS}], conditions=silent)
    w.settle()
    assert w.condition("WorkersReady")[:2] == ("False", "BelowMinimum")


class TestPodsThatAreGone:
    @pytest.mark.parametrize("text", [TWO, ELASTIC])
    def test_a_worker_that_succeeded_and_is_gone_is_not_missed(self, world: type[World], text: str) -> None:
        w = running(world, text)
        w.pod_goes(1)
        completed(w, "1")
        w.settle()
        w.later(300)
        w.settle()
        status = w.status
        assert (w.phase, status.restarts.total, status.workers.succeeded) == ("Running", 0, 1)
        assert w.condition("WorkersReady")[:2] == ("True", "WorkersReady")

    def test_workers_that_are_all_completed_and_gone_have_succeeded(self, world: type[World]) -> None:
        w = running(world, TWO)
        w.pod_goes(0, 1)
        completed(w, "0,1")
        w.settle()
        assert w.phase == "Succeeded"

    def test_a_deleted_worker_that_exited_0_is_never_done(self, world: type[World]) -> None:
        """The pod is gone, and only the incident that its deletion opened tells of it."""
        w = running(world, TWO)
        until = w.told()
        w.worker(1, "Succeeded", containerStatuses=[{"name": "trainer", **DONE}], metadata=until)
        w.settle()
        assert w.phase == "Restarting"
        w.pod_goes(1)
        completed(w, "0,1")
        beside(w, 0, DONE, DONE, "Succeeded")
        w.later(5)
        w.settle()
        assert (w.phase, w.attempt) == ("Restarting", 1)


def test_the_program_pays_for_a_sidecar_that_fails_its_pod(world: type[World]) -> None:
    """Its trainer is done, but its pod is Failed, so the Job fails and the worker that still trains is deleted."""
    w = running(world, TWO)
    beside(w, 1, DONE, DEAD, "Failed")
    w.settle()
    w.job_is("FailureTarget", "BackoffLimitExceeded")
    until = w.told()
    w.worker(0, containerStatuses=[{"name": "trainer", **RUNS}], metadata=until)
    w.settle()
    w.later(6)
    w.settle()
    failure = w.failure
    assert w.restarts.by_cause == {"Error": 1}
    assert (failure.pod, failure.exit_code, failure.rank) == ("demo-1-x", 3, None)
    assert failure.message == "container proxy: it failed and said nothing"


def finished(w: World, code: int, reason: str = "Error") -> dict[str, Any]:
    return {"ready": False, "state": {"terminated": {"exitCode": code, "reason": reason, "finishedAt": w.now}}}


def goes(w: World, index: int, trainer: dict[str, Any], other: dict[str, Any], phase: str = "Running") -> None:
    """A worker with a plain sidecar is told to stop."""
    both = [{"name": "trainer", **trainer}, {"name": "proxy", **other}]
    w.worker(index, phase, containerStatuses=both, conditions=UNREADY, metadata=w.told())


def test_a_sidecar_that_ran_out_of_memory_explains_no_deletion(world: type[World]) -> None:
    """The trainer went on without it, so it says nothing of what happens to the pod later."""
    w = running(world, TWO)
    dead = finished(w, 137, "OOMKilled")
    w.later(60)
    goes(w, 0, RUNS, dead)
    w.incident_settles()
    assert w.restarts.by_cause == {"Deleted": 1}
    assert w.failure.exit_code is None


def test_a_peers_failure_counts_before_a_sidecars_earlier_end(world: type[World]) -> None:
    w = running(world, TWO)
    dead = finished(w, 137, "OOMKilled")
    w.later(60)
    beside(w, 1, finished(w, 42), RUNS)
    w.job_is("FailureTarget")
    goes(w, 0, RUNS, dead)
    w.incident_settles()
    assert (w.restarts.by_cause, w.failure.exit_code) == ({"Error": 1}, 42)


def test_an_elastic_job_replaces_a_worker_whose_sidecar_had_died(world: type[World]) -> None:
    w = running(world, ELASTIC)
    goes(w, 1, RUNS, finished(w, 137, "OOMKilled"))
    w.settle()
    assert (w.status.incident, w.restarts.total) == (None, 0)


def test_a_sidecar_that_is_told_to_stop_is_no_failure(world: type[World]) -> None:
    """The trainer of its pod was done long before, so only the sidecar's end shows that it obeyed."""
    w = running(world, TWO.replace("}", ", runPolicy: {restartPolicy: ExitCode}}"))
    done = finished(w, 0, "Completed")
    beside(w, 0, done, RUNS)
    w.later(60)
    goes(w, 0, done, finished(w, 3), "Failed")
    w.incident_settles()
    assert (w.phase, w.restarts.by_cause) == ("Restarting", {"Deleted": 1})
