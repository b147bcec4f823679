"""Somebody removes the status of a job, or sets it back to an older one: its children tell which attempt it is."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from world import EPOCH, World, elastic, job

from torchctl.api import names
from torchctl.api.job import JobStatus
from torchctl.api.jobstatus import Admission
from torchctl.controllers.job.observed import Started
from torchctl.controllers.job.plan import Plan, Question, Steps, plan
from torchctl.controllers.job.status import derive
from torchctl.controllers.job.steps.tries import fetched
from torchctl.controllers.settings import CoordinatorSettings

LOST = JobStatus()
UPLOADED = "volumes: {workspace: {source: zip}}"
SHARED = "{image: trainer:1, storage: {workspace: {accessModes: [ReadWriteMany], distribution: shared}}}"


def restarted(world: type[World], text: str = "") -> World:
    """A job whose second attempt runs."""
    w = world.running(job(text))
    w.worker_fails(1, 3)
    w.incident_settles()
    w.remove_old_pods()
    w.later(60)
    w.settle()
    assert (w.attempt, w.has("Job", "demo-r1")) == (1, True)
    return w.runs()


def planned(w: World, status: JobStatus, *, made: bool = True) -> tuple[Plan, JobStatus]:
    """The plan, and the status that follows from it, of a job whose status is suddenly another one.

    Args:
        made: Whether the Job of the attempt is still there, and not only the Service.
    """
    attempt, name = w.attempt, names.worker_job("demo", w.attempt)
    started = Started(attempt, f"Job {name}", made, EPOCH, w.status.queue_revision)
    behind = replace(
        w.seen,
        job=msgspec.structs.replace(w.seen.job, status=status),
        started=started,
        revision=None,
        worker_job=w.seen.worker_job if status.attempt == attempt else None,
        pods=w.seen.pods if status.attempt == attempt else (),
        old_jobs=(),
        old_pods=(),
    )
    todo = plan(behind, w.settings, w.now)
    return todo, derive(behind, todo, (), w.now)


def becomes(w: World, status: JobStatus, *, made: bool = True) -> JobStatus:
    """The status of the job is suddenly another one; the one that its operator writes then, which is in force."""
    todo, found = planned(w, status, made=made)
    assert not todo.actions.children
    assert not todo.actions.remove
    w.seen = replace(w.seen, job=msgspec.structs.replace(w.seen.job, status=found))
    return found


def children(w: World) -> set[Any]:
    return {key for key in w.objects if key[0] in ("Job", "Pod", "ControllerRevision", "Service")}


def restarts(w: World) -> dict[str, int]:
    return w.status.restarts.by_cause


def test_the_attempt_is_taken_up_from_the_children(world: type[World]) -> None:
    w = restarted(world)
    before, template = children(w), w.status.queue_revision
    found = becomes(w, LOST)
    assert (found.attempt, found.queue_revision) == (1, template)
    w.settle()
    assert (w.phase, w.attempt, children(w)) == ("Running", 1, before)
    w.workers_succeed()
    w.job_is("Complete")
    w.settle()
    assert (w.phase, children(w)) == ("Succeeded", before)


@pytest.mark.parametrize("text", [job, lambda more: elastic(2, more)])
def test_the_first_attempt_goes_on_without_its_status(world: type[World], text: Any) -> None:
    w = world.running(text(""))
    before, template = children(w), w.status.queue_revision
    becomes(w, LOST)
    w.settle()
    assert (w.phase, w.attempt, w.status.queue_revision) == ("Running", 0, template)
    assert children(w) == before
    assert w.status.attempt_start_time == EPOCH


def test_a_status_that_was_set_back_is_brought_forward(world: type[World]) -> None:
    """What it says of the earlier attempt is not believed of this one."""
    w = world.running(job())
    older = w.status
    w.worker_fails(1, 3)
    w.settle()
    incident = w.status
    assert incident.incident is not None
    w.later(5)
    w.settle()
    w.remove_old_pods()
    w.later(60)
    w.settle()
    w.runs()
    before = children(w)
    for status in (older, incident):
        found = becomes(w, status)
        assert (found.attempt, found.incident, found.failure, found.attempt_ready_time) == (1, None, None, None)
        w.settle()
        assert (w.phase, w.attempt, children(w)) == ("Running", 1, before)


def test_a_status_ahead_of_its_children_stays(world: type[World]) -> None:
    """The next attempt is written before its Job is made."""
    w = restarted(world)
    for attempt in (1, 2):
        todo, found = planned(w, msgspec.structs.replace(w.status, attempt=attempt))
        assert found.attempt == attempt
        assert type(todo).__name__ == "Steps"


def test_a_service_alone_moves_no_job_that_has_a_status(world: type[World]) -> None:
    """Whoever edits its selector would end the job."""
    w = restarted(world)
    _, found = planned(w, msgspec.structs.replace(w.status, attempt=0), made=False)
    assert found.attempt == 0


def test_a_lost_status_is_told_in_an_event(world: type[World]) -> None:
    w = restarted(world)
    todo, _ = planned(w, LOST)
    assert type(todo).__name__ == "Recovery"
    found = becomes(w, LOST)
    assert "Job demo-r1" in next(one.message for one in found.conditions if one.reason == "StatusLost")


def test_the_workspace_is_not_brought_again_under_workers(world: type[World]) -> None:
    """The sync pod may be gone: what was there when the workers were started is there."""
    for gone in (False, True):
        w = world(job(UPLOADED), SHARED)
        w.settle()
        w.sync_succeeds(message='{"revision": "sha256:abc", "source": "zip"}')
        w.settle()
        w.runs()
        assert all(map(fetched, w.seen.sync_pods))
        if gone:
            w.remove("Pod", "demo-sync-0")
        before = children(w)
        becomes(w, LOST)
        w.settle()
        assert (w.phase, w.condition("WorkspaceReady")[0], children(w)) == ("Running", "True", before)
        there = w.status.workspace
        assert (there.revision if there is not None else "") == ("" if gone else "sha256:abc")


def test_a_job_that_succeeded_succeeds_again(world: type[World]) -> None:
    w = restarted(world)
    w.workers_succeed()
    w.job_is("Complete")
    w.settle()
    before = children(w)
    becomes(w, LOST)
    w.settle()
    assert (w.phase, w.condition("Complete")[1], children(w)) == ("Succeeded", "Succeeded", before)


@pytest.mark.parametrize("limit", [0, 1])
def test_a_job_that_used_its_restarts_trains_no_more(world: type[World], limit: int) -> None:
    """Nobody knows what ended the earlier attempts: each counts for an incident of every budget."""
    w = world.running(job(f"runPolicy: {{maxRestarts: {limit}}}"))
    for attempt in range(limit + 1):
        assert w.attempt == attempt
        w.worker_fails(1, 3)
        w.job_is("Failed", "BackoffLimitExceeded")
        w.incident_settles()
        if attempt < limit:
            w.remove_old_pods()
            w.later(60)
            w.settle()
            w.runs()
    ended = w.phase, w.condition("Failed")[1]
    assert ended[0] == "Failed"
    becomes(w, LOST)
    w.incident_settles()
    w.later(600)
    w.settle()
    assert (w.phase, w.condition("Failed")[1], w.attempt) == (*ended, limit)


def test_a_job_whose_job_is_gone_trains_no_more(world: type[World]) -> None:
    w = restarted(world, "runPolicy: {podRetention: None}")
    w.workers_succeed()
    w.job_is("Complete")
    w.settle()
    assert not w.has("Job", "demo-r1")
    w.seen = replace(w.seen, worker_job=None, pods=())
    becomes(w, LOST, made=False)
    w.settle()
    assert (w.phase, w.condition("Failed")[1], w.attempt) == ("Failed", "JobDisappeared", 1)


def test_a_job_that_its_operator_ended_trains_no_more(world: type[World]) -> None:
    """Its Job was stopped at the deadline, which its status alone counted."""
    w = restarted(world, "runPolicy: {activeDeadlineSeconds: 3600}")
    w.later(4000)
    w.settle()
    assert w.condition("Failed")[1] == "DeadlineExceeded"
    assert w.objects["Job", "demo-r1"]["spec"]["activeDeadlineSeconds"] == 1
    becomes(w, LOST)
    w.settle()
    assert (w.phase, w.condition("Failed")[1], w.attempt) == ("Failed", "StatusLost", 1)


def test_a_job_ended_by_somebody_else_hears_that_too(world: type[World]) -> None:
    """The deadline of its Job is all that is known."""
    w = restarted(world)
    w.worker_job_has(spec={**w.worker_job.spec, "activeDeadlineSeconds": 1})
    w.settle()
    assert (w.phase, w.condition("Failed")[1], w.message("Failed")) == (
        "Failed",
        "StatusLost",
        "Job demo-r1 was ended, and status does not say why: it was lost, or somebody else has ended the Job; a job is "
        "never run twice: submit it again",
    )


def test_a_failed_job_without_its_failed_pod_trains_no_more(world: type[World]) -> None:
    """Its exit code was the end of the job. Who deleted the pod took that along; the Job says no more than Failed."""
    w = world.running(job("runPolicy: {maxRestarts: 0}"))
    w.worker_fails(1, 3)
    w.job_is("Failed", "BackoffLimitExceeded")
    w.incident_settles()
    assert w.phase == "Failed"
    w.seen = replace(w.seen, pods=w.seen.pods[:1])
    becomes(w, LOST)
    w.step()
    assert isinstance(w.last, Steps)
    assert w.last.asks is Question.WORKERS
    w.settle()
    assert (w.phase, w.condition("Failed")[1], w.attempt) == ("Failed", "StatusLost", 0)


def test_a_suspended_job_stays_suspended_and_resumes(world: type[World]) -> None:
    w = restarted(world)
    w.edit(suspend=True)
    w.settle()
    assert w.phase == "Suspended"
    becomes(w, LOST)
    w.settle()
    assert (w.phase, w.attempt) == ("Suspended", 2)
    w.remove_old_pods()
    w.edit(suspend=False)
    w.settle()
    assert (w.attempt, w.has("Job", "demo-r2")) == (2, True)


def test_a_job_between_attempts_loses_no_attempt(world: type[World]) -> None:
    """Its Job failed and its other pods still end: the incident is found again."""
    w = world.running(job())
    w.worker_fails(1, 3)
    w.told_to_stop(0)
    w.job_is("Failed", "BackoffLimitExceeded")
    job_before, pods = w.seen.worker_job, w.seen.pods
    w.incident_settles()
    assert w.attempt == 1
    w.seen = replace(w.seen, worker_job=job_before, pods=pods, old_jobs=(), old_pods=())
    older = msgspec.structs.replace(w.status, attempt=0)
    w.seen = replace(w.seen, job=msgspec.structs.replace(w.seen.job, status=older))
    becomes(w, LOST)
    w.incident_settles()
    assert (w.phase, w.attempt, restarts(w)) == ("Restarting", 1, {"Error": 1})
    w.later(20)
    w.settle()
    assert not w.has("Job", "demo-r1")  # a pod of the first attempt still runs
    w.remove_old_pods()
    w.settle()
    assert w.has("Job", "demo-r1")


def test_a_job_without_children_begins_as_a_new_one(world: type[World]) -> None:
    w = world(job(UPLOADED))
    w.settle()
    assert w.phase == "Syncing"
    before = children(w)
    w.seen = replace(w.seen, job=msgspec.structs.replace(w.seen.job, status=LOST))
    w.settle()
    assert (w.phase, w.attempt, children(w)) == ("Syncing", 0, before)


def test_a_job_that_is_deleted_is_left_alone(world: type[World]) -> None:
    w = restarted(world)
    w.deleting()
    _, found = planned(w, LOST)
    assert found == LOST


def test_long_running_workers_make_up_for_lost_restarts(world: type[World]) -> None:
    w = restarted(world, "runPolicy: {maxRestarts: 1}")
    becomes(w, LOST)
    w.settle()
    w.later(1000)
    w.worker_fails(1, 3, after_s=(w.now - EPOCH) / timedelta(seconds=1))
    w.incident_settles()
    assert (w.phase, w.attempt, restarts(w)) == ("Restarting", 2, {"Error": 1})


def test_workers_that_the_coordinator_let_in_stay_let_in(world: type[World]) -> None:
    """Its record is in status too, with the nodes that the pods are kept off."""
    w = world(job(), "{image: 'trainer:1', nodeResources: {gpus: 8}}")
    w.settings = replace(w.settings, coordinator=CoordinatorSettings())
    w.settle()
    let_in = msgspec.structs.replace(
        w.status, admission=Admission(attempt=0, let_in_time=w.now, avoid_nodes=("node-2",))
    )
    w.seen = replace(w.seen, job=msgspec.structs.replace(w.seen.job, status=let_in))
    w.settle()
    w.runs()
    before = children(w)
    becomes(w, LOST)
    w.settle()
    assert (w.phase, w.condition("Admitted")[:2]) == ("Running", ("True", "LetIn"))
    assert children(w) == before


def test_workers_that_kai_placed_stay_placed(world: type[World]) -> None:
    w = world.running(job(), queue="{image: 'trainer:1', kaiQueue: research}")
    before = children(w)
    becomes(w, LOST)
    w.settle()
    assert (w.phase, w.condition("Admitted")[:2], children(w)) == ("Running", ("True", "Admitted"), before)


def test_a_job_that_waits_in_kueue_waits_on(world: type[World]) -> None:
    w = world(job(), "{image: 'trainer:1', scheduling: {kueueQueue: local}}")
    w.settle()
    w.kueue_says({"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "8 more needed"})
    w.settle()
    assert w.phase == "Queued"
    before = children(w)
    becomes(w, LOST)
    w.settle()
    assert (w.phase, w.attempt, children(w)) == ("Queued", 0, before)


KUEUE = "{image: 'trainer:1', scheduling: {kueueQueue: local}}"


def admitted_by_kueue(world: type[World], text: str = "") -> World:
    w = world(job(text), KUEUE)
    w.settle()
    w.kueue_admits()
    w.settle()
    return w.runs()


def active(w: World) -> list[bool]:
    return [one.spec.active for one in w.seen.workloads]


def test_a_job_that_ended_held_stays_out_of_the_queue(world: type[World]) -> None:
    """Its Job cannot end, and its Workload is inactive: Kueue would let it go if that was taken back."""
    w = admitted_by_kueue(world, "runPolicy: {activeDeadlineSeconds: 60}")
    w.later(50)
    w.settle()
    w.kueue_evicts("Preempted", "no quota")
    w.later(20)
    w.settle()
    assert (w.phase, active(w)) == ("Failed", [False])
    becomes(w, LOST)
    w.settle()
    assert (w.phase, w.condition("Failed")[1], active(w)) == ("Failed", "StatusLost", [False])


def test_a_suspended_job_of_kueue_resumes_in_its_job(world: type[World]) -> None:
    w = admitted_by_kueue(world)
    w.edit(suspend=True)
    w.settle()
    w.kueue_evicts("Deactivated", "inactive")
    w.settle()
    assert (w.phase, active(w)) == ("Suspended", [False])
    becomes(w, LOST)
    w.settle()
    assert (w.phase, w.attempt, active(w)) == ("Suspended", 0, [False])
    w.edit(suspend=False)
    w.settle()
    assert (w.phase, w.attempt, active(w)) == ("Queued", 0, [True])


def test_an_evicted_job_of_kueue_waits_on(world: type[World]) -> None:
    w = admitted_by_kueue(world)
    w.kueue_evicts("Preempted", "no quota")
    w.settle()
    becomes(w, LOST)
    w.settle()
    assert (w.phase, w.attempt, active(w)) == ("Queued", 0, [True])


def test_an_attempt_that_somebody_wrote_waits_for_the_running_one(world: type[World]) -> None:
    """Two gangs would write to the same checkpoints."""
    w = restarted(world)
    forward = msgspec.structs.replace(w.status, attempt=5, attempt_start_time=None, conditions=w.status.conditions)
    old = w.seen.worker_job
    assert old is not None
    w.seen = replace(
        w.seen,
        job=msgspec.structs.replace(w.seen.job, status=forward),
        worker_job=None,
        pods=(),
        old_jobs=(old,),
        old_pods=w.seen.pods,
    )
    w.settle()
    assert (w.phase, w.has("Job", "demo-r5")) == ("Restarting", False)
    w.remove_old_pods()
    w.settle()
    assert w.has("Job", "demo-r5")
