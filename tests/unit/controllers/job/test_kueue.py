"""A job whose Job Kueue admits: how it waits, starts, is evicted and comes back, and how it is suspended."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from world import World

from torchctl.api.causes import Cause
from torchctl.api.kueue import KUEUE_WORKLOAD, KueueWorkloadSpec
from torchctl.runtime.kinds import Condition

QUEUE = "{image: a:1, scheduling: {kueueQueue: gpus, nodeSelector: {disk: ssd}, tolerations: [{key: gpu}]}}"
TWO = "{jobQueue: research, numNodes: 2, command: x}"
ELASTIC = "{jobQueue: research, numNodes: 3, command: x, elastic: {minNodes: 2, maxNodes: 4}}"


def made(world: type[World], text: str = TWO) -> World:
    w = world(text, QUEUE)
    w.settle()
    return w


def running(world: type[World], text: str = TWO, nodes: int = 2) -> World:
    w = made(world, text)
    w.kueue_admits()
    w.settle()
    return w.runs(nodes)


def is_active(w: World) -> bool:
    (workload,) = w.seen.workloads
    return workload.spec.active


@pytest.mark.proves("TorchrunQueue.spec.scheduling.kueueQueue")
def test_job_is_created_suspended_with_all_of_its_fields(world: type[World]) -> None:
    w = world(TWO, QUEUE)
    while ("Job", "demo") not in w.objects:
        assert w.step()
    spec = w.spec("Job", "demo")
    assert (spec["suspend"], spec["template"]["spec"]["nodeSelector"]) == (True, {"disk": "ssd"})
    assert {"key": "gpu"} in spec["template"]["spec"]["tolerations"]
    assert w.objects["Job", "demo"]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"


def test_what_is_applied_later_names_nothing_that_kueue_writes(world: type[World]) -> None:
    spec = made(world).spec("Job", "demo")
    assert "suspend" not in spec
    assert not {"nodeSelector", "tolerations", "schedulingGates"} & spec["template"]["spec"].keys()


def test_the_label_is_on_the_job_alone(world: type[World]) -> None:
    w = made(world, "{jobQueue: research, numNodes: 2, command: x}")
    labelled = [key for key, body in w.objects.items() if "kueue.x-k8s.io/queue-name" in str(body["metadata"])]
    assert labelled == [("Job", "demo")]
    assert "kueue" not in str(w.spec("Job", "demo")["template"]["metadata"])


def test_kueues_words_are_the_condition(world: type[World]) -> None:
    w = made(world)
    assert w.condition("Admitted")[:2] == ("False", "WaitingForAdmission")
    assert "LocalQueue gpus" in w.message("Admitted")
    short = {"type": "QuotaReserved", "status": "False", "reason": "WaitingForQuota", "message": "16 more needed"}
    w.kueue_says(short)
    w.settle()
    assert w.phase == "Queued"
    assert "job-demo-1a2b3" in w.message("Admitted")
    assert "16 more needed" in w.message("Admitted")


def test_place_in_kueues_queue_is_told(world: type[World]) -> None:
    w = made(world)
    w.kueue_says()
    w.seen = replace(w.seen, place="place 3 of its ClusterQueue")
    w.settle()
    assert "waits in Kueue's LocalQueue gpus, place 3 of its ClusterQueue: Workload" in w.message("Admitted")


def test_quota_is_admission(world: type[World]) -> None:
    w = made(world)
    w.kueue_admits()
    w.settle()
    assert w.condition("Admitted")[:2] == ("True", "Admitted")
    assert w.runs(2).attempt == 0


def test_waiting_in_kueue_is_no_active_time(world: type[World]) -> None:
    w = made(world, "{jobQueue: research, numNodes: 2, command: x, runPolicy: {startupTimeoutSeconds: 60}}")
    w.later(1000)
    w.settle()
    assert w.phase == "Queued"
    assert w.status.attempt_active_time is None


def test_an_eviction_is_no_incident_and_no_new_attempt(world: type[World]) -> None:
    w = running(world)
    w.kueue_evicts("Preempted", "to accommodate a workload (UID: 1)")
    w.settle()
    assert (w.phase, w.attempt, w.restarts.total, w.status.failure) == ("Queued", 0, 0, None)
    assert "evicted (Preempted): to accommodate a workload" in w.message("Admitted")
    assert "8 more needed" in w.message("Admitted")
    w.kueue_admits()
    w.settle()
    assert w.runs(2).attempt == 0


@pytest.mark.proves("TorchrunJob.status.requeues")
def test_evictions_are_counted_once_each(world: type[World]) -> None:
    w = running(world)
    for number in (1, 2):
        w.kueue_evicts("Preempted", "no quota")
        w.settle()
        assert w.status.requeues == number
        w.kueue_admits()
        w.settle()
        w.runs(2)


def test_next_run_begins_once_the_last_ones_pods_went(world: type[World]) -> None:
    """Kueue itself does not wait for them, and new workers would meet at the store of the old worker 0."""
    w = running(world)
    pods = w.seen.pods
    w.kueue_evicts("Preempted", "no quota")
    w.seen = replace(w.seen, withdrawn=pods)
    w.settle()
    assert is_active(w) is False
    assert "paused until pods of its last run are gone" in w.message("Admitted")
    w.seen = replace(w.seen, withdrawn=())
    w.settle()
    assert is_active(w) is True


def test_a_run_that_kueue_began_too_early_is_stopped(world: type[World]) -> None:
    w = running(world)
    pods = w.seen.pods
    w.kueue_evicts("Preempted", "no quota")
    w.kueue_admits()
    w.seen = replace(w.seen, withdrawn=pods)
    w.settle()
    assert is_active(w) is False


def test_a_crash_counts_for_an_attempt_of_its_own(world: type[World]) -> None:
    w = running(world)
    w.kueue_evicts("Preempted", "no quota")
    w.settle()
    w.kueue_admits()
    w.settle()
    w.runs(2)
    w.worker_fails(0)
    w.incident_settles()
    assert (w.restarts.total, w.status.requeues) == (1, 0)


def test_suspension_pauses_the_workload_and_keeps_the_attempt(world: type[World]) -> None:
    w = running(world)
    pods = w.seen.pods
    w.edit(suspend=True)
    w.settle()
    assert not is_active(w)
    assert "activeDeadlineSeconds" not in w.spec("Job", "demo")
    w.kueue_evicts("Deactivated", "The workload is deactivated")
    w.seen = replace(w.seen, pods=pods)
    w.edit(suspend=False)
    w.settle()
    assert w.phase == "Suspended"
    w.pod_goes(0, 1)
    w.settle()
    assert is_active(w)
    assert (w.phase, w.attempt, w.status.requeues) == ("Queued", 0, 1)
    w.kueue_admits()
    w.settle()
    assert w.runs(2).attempt == 0


def test_a_workload_that_an_admin_made_inactive_stays_so(world: type[World]) -> None:
    w = running(world)
    w.kueue_says({"type": "QuotaReserved", "status": "False", "message": "The workload is deactivated"}, active=False)
    w.kueue_evicts("Deactivated", "by hand")
    w.settle()
    assert not is_active(w)
    assert "set its spec.active to true" in w.message("Admitted")


def test_a_job_of_an_earlier_kueue_is_ended_by_suspension(world: type[World]) -> None:
    """Before Kueue has seen the Job there is nothing to pause: it has no pods either."""
    w = made(world)
    w.edit(suspend=True)
    w.settle()
    assert w.phase == "Suspended"
    w.edit(suspend=False)
    w.settle()
    assert w.phase in ("Queued", "Starting")


# An elastic job asks for its fewest pods, and for the rest once these are up.

GROWS = {"kueue.x-k8s.io/elastic-job": "true"}
READY = {"type": "PodsReady", "status": "True", "reason": "PodsReady", "message": ""}


def size(w: World) -> int:
    return int(w.spec("Job", "demo")["parallelism"])


def small(world: type[World], *conditions: dict[str, Any], marks: dict[str, str] = GROWS) -> World:
    """An elastic job that Kueue has admitted with its fewest pods, none of which is there yet."""
    w = made(world, ELASTIC)
    assert size(w) == 2
    w.seen = replace(w.seen, workloads=(w.a_workload(marks=marks),))
    w.kueue_admits(*conditions)
    w.settle()
    return w


def test_an_elastic_job_grows_once_its_fewest_are_up(world: type[World]) -> None:
    """If it grew before, Kueue would no longer see that the first slice was ready, and evict it."""
    w = small(world)
    assert w.objects["Job", "demo"]["metadata"]["annotations"]["kueue.x-k8s.io/elastic-job"] == "true"
    assert size(w) == 2
    w.runs(2)
    assert size(w) == 3
    w.worker(1, "Pending", conditions=[])
    w.settle()
    assert size(w) == 3
    w.kueue_evicts("Preempted", "no quota")
    w.settle()
    assert size(w) == 2


def test_kueue_that_waits_for_pods_says_when_ready(world: type[World]) -> None:
    w = small(world, READY | {"status": "False"})
    w.runs(2)
    assert size(w) == 2
    w.kueue_admits(READY)
    w.settle()
    assert size(w) == 3


def test_a_kueue_without_slices_is_asked_for_no_more(world: type[World]) -> None:
    """It would stop the Job at each change of its size."""
    assert size(small(world, READY, marks={}).runs(2)) == 2


def grows(world: type[World]) -> World:
    w = small(world).runs(2)
    short = {"type": "QuotaReserved", "status": "False", "reason": "WaitingForQuota", "message": "8 more needed"}
    w.seen = replace(w.seen, workloads=(*w.seen.workloads, w.a_workload(short, name="job-demo-4c5d6", marks=GROWS)))
    w.settle()
    return w


def test_a_job_that_would_grow_stays_admitted(world: type[World]) -> None:
    w = grows(world)
    assert w.condition("Admitted")[:2] == ("True", "Admitted")
    assert "it grows once it has more: 8 more needed" in w.message("Admitted")


def test_suspension_ends_a_job_that_would_grow(world: type[World]) -> None:
    """Kueue stops for none of two slices alone."""
    w = grows(world)
    w.edit(suspend=True)
    w.settle()
    assert w.spec("Job", "demo")["activeDeadlineSeconds"] == 1
    assert all(one.spec.active for one in w.seen.workloads)


def test_a_job_that_was_ended_is_never_paused(world: type[World]) -> None:
    """Its Job has ended for the suspension, so it cannot be the one that goes on."""
    w = grows(world)
    w.edit(suspend=True)
    w.settle()
    w.seen = replace(w.seen, workloads=w.seen.workloads[-1:])
    w.settle()
    assert is_active(w)
    w.edit(suspend=False)
    w.settle()
    w.old_pods_go()
    assert (w.phase in ("Queued", "Starting"), w.attempt, w.restarts.total) == (True, 1, 0)


# What must not begin again as it was.


@pytest.mark.parametrize("by", ["eviction", "suspension"])
def test_gang_with_a_worker_done_begins_a_new_attempt(world: type[World], by: str) -> None:
    """A Job makes no pod again of an index that is complete, and the others would wait for it."""
    w = running(world)
    done = msgspec.structs.replace(w.worker_job.status, completed_indexes="1")
    w.worker_job_has(status=done)
    if by == "suspension":
        w.edit(suspend=True)
        w.settle()
        assert w.spec("Job", "demo")["activeDeadlineSeconds"] == 1
        w.edit(suspend=False)
    else:
        w.kueue_evicts("Preempted", "no quota")
    w.settle()
    w.old_pods_go()
    assert (w.attempt, w.restarts.total) == (1, 0)


def complete_and_suspended(w: World, *, stopped_after_s: float | None) -> None:
    """The Job says Complete, and Kueue has suspended it; its controller took note so long after, or never did."""
    w.job_is("Complete")
    job = w.worker_job
    conditions = job.status.conditions or ()
    if stopped_after_s is not None:
        when = w.now + timedelta(seconds=stopped_after_s)
        conditions = (*conditions, Condition("Suspended", "True", "JobSuspended", "", when))
    status = msgspec.structs.replace(job.status, conditions=conditions)
    w.worker_job_has(spec={**job.spec, "suspend": True}, status=status)


@pytest.mark.parametrize("pod", ["there", "deleted"])
@pytest.mark.parametrize("text", [TWO, ELASTIC])
def test_gang_that_is_done_as_it_is_suspended_has_succeeded(world: type[World], text: str, pod: str) -> None:
    """Its Job has suspended nothing, so its trainers exited by themselves."""
    w = running(world, text)
    w.workers_succeed()
    complete_and_suspended(w, stopped_after_s=None)
    if pod == "deleted":
        w.pod_goes(0)
    w.settle()
    assert w.phase == "Succeeded"


@pytest.mark.parametrize("text", [TWO, ELASTIC])
def test_gang_that_saves_as_it_is_suspended_begins_anew(world: type[World], text: str) -> None:
    """Its trainers exit 0 because they are told to stop, and its Job takes that for the end."""
    w = running(world, text)
    w.told_to_stop(0, 1)
    w.kueue_says({"type": "Evicted", "status": "True", "reason": "Preempted", "message": "no quota"})
    complete_and_suspended(w, stopped_after_s=-1)
    pods = w.seen.pods
    w.pod_goes(0, 1)
    w.seen = replace(w.seen, withdrawn=pods)
    w.settle()
    w.seen = replace(w.seen, withdrawn=())
    w.settle()
    w.later(6)
    w.settle()
    assert (w.attempt, w.restarts.total, w.phase) == (1, 0, "Queued")


@pytest.mark.parametrize("released", [False, True])
@pytest.mark.parametrize("text", [TWO, ELASTIC])
def test_deleted_pods_that_save_are_lost_whoever_suspends_their_job(
    world: type[World], text: str, released: bool
) -> None:
    """They keep their finalizer, so their exit 0 counts, and their Job may be complete before it is seen suspended."""
    w = running(world, text)
    w.told_to_stop(0, 1)
    w.step()
    w.kueue_says({"type": "Evicted", "status": "True", "reason": "Preempted", "message": "no quota"})
    w.worker_job_has(spec={**w.worker_job.spec, "suspend": True})
    w.step()
    for index in range(2):
        w.worker_exits(index, metadata=w.told())
    w.step()
    complete_and_suspended(w, stopped_after_s=None)
    if released:
        w.worker_job_has(spec={**w.worker_job.spec, "suspend": False})
    w.pod_goes(0, 1)
    w.settle()
    w.later(60)
    w.settle()
    assert (w.attempt, w.restarts.by_cause) == (1, {Cause.DELETED: 1})


def test_pods_that_their_jobs_controller_stops_are_not_lost(world: type[World]) -> None:
    """They are seen before it is seen that Kueue has suspended their Job."""
    w = running(world)
    for index in range(2):
        w.worker(index, metadata=w.told() | {"finalizers": []})
    w.settle()
    assert (w.phase, w.status.incident) == ("Running", None)
    w.kueue_evicts("Preempted", "no quota")
    w.settle()
    assert (w.phase, w.attempt, w.restarts.total) == ("Queued", 0, 0)


def test_elastic_job_whose_worker_0_is_counted_begins_anew(world: type[World]) -> None:
    """Kueue evicts it, and its Job would make no worker 0 again, but take the count for the success of all."""
    w = running(world, ELASTIC)
    w.worker_job_has(status=msgspec.structs.replace(w.worker_job.status, completed_indexes="0"))
    w.kueue_evicts("Preempted", "no quota")
    w.settle()
    assert (w.attempt, w.restarts.total) == (1, 0)


def test_kueues_own_back_off_is_not_cut_short(world: type[World]) -> None:
    w = running(world)
    pods = w.seen.pods
    w.kueue_evicts("PodsReadyTimeout", "not ready", requeueState={"count": 1, "requeueAt": w.now + timedelta(60)})
    w.seen = replace(w.seen, withdrawn=pods)
    w.settle()
    assert is_active(w)


@pytest.mark.parametrize("paused", [True, False])
def test_gang_that_fails_as_it_is_evicted_starts_anew(world: type[World], paused: bool) -> None:
    """Kueue takes the start time out of the Job, and its controller ends no Job without one: it only gives it up."""
    w = running(world)
    pods = w.seen.pods
    w.kueue_evicts("Preempted", "no quota")
    if paused:
        w.seen = replace(w.seen, withdrawn=pods)
        w.settle()
        assert not is_active(w)
        w.seen = replace(w.seen, withdrawn=())
    w.job_is("FailureTarget", "BackoffLimitExceeded")
    w.settle()
    w.later(6)
    w.settle()
    assert (w.attempt, w.restarts.by_cause, w.seen.old_jobs) == (1, {Cause.VANISHED: 1}, ())


# What is over.

KEPT = "{jobQueue: research, numNodes: 2, command: x, runPolicy: {podRetention: All}}"


def held_with_a_worker_done(world: type[World], text: str) -> World:
    """A gang that was evicted, and cannot begin again in its Job."""
    w = running(world, text)
    w.worker_job_has(status=msgspec.structs.replace(w.worker_job.status, completed_indexes="1"))
    w.kueue_evicts("Preempted", "no quota")
    w.settle()
    assert w.attempt == 1
    return w


def test_held_job_of_an_earlier_attempt_asks_for_no_quota(world: type[World]) -> None:
    """Kueue would let it go, in its place in the queue, and its pods would meet in vain."""
    w = held_with_a_worker_done(world, KEPT)
    (old,), (job,) = w.seen.old_workloads, w.seen.old_jobs
    assert (old.spec.active, job.spec["suspend"]) == (False, True)
    w.kueue_says()
    w.settle()
    assert is_active(w)
    w.kueue_admits()
    w.settle()
    w.runs(2)
    w.succeeds()
    w.settle()
    assert w.phase == "Succeeded"
    assert [one.spec.active for one in w.seen.old_workloads] == [False]


def test_workload_of_a_deleted_job_is_left_alone(world: type[World]) -> None:
    """It goes with its Job, which nobody reads."""
    w = held_with_a_worker_done(world, TWO)
    assert w.seen.old_jobs == ()
    assert [one.spec.active for one in w.seen.old_workloads] == [True]


def test_workload_that_kueue_makes_after_the_end_is_paused(world: type[World]) -> None:
    """A deadline ends a job whose Job is held; nobody else takes that out of the queue."""
    w = running(world, "{jobQueue: research, numNodes: 2, command: x, runPolicy: {activeDeadlineSeconds: 60}}")
    w.later(50)
    w.settle()
    w.kueue_evicts("Preempted", "no quota")
    w.later(20)
    w.settle()
    assert w.phase == "Failed"
    assert not is_active(w)
    w.kueue_says()
    w.settle()
    assert not is_active(w)


def test_a_job_that_kueue_lets_go_is_ended_not_paused(world: type[World]) -> None:
    """Its controller ends no Job that is suspended again."""
    w = held_with_a_worker_done(world, KEPT)
    (job,) = w.seen.old_jobs
    released = msgspec.structs.replace(job, spec={**job.spec, "suspend": False})
    known = tuple(msgspec.structs.replace(one, spec=KueueWorkloadSpec(active=True)) for one in w.seen.old_workloads)
    w.seen = replace(w.seen, old_jobs=(released,), old_workloads=known)
    w.settle()
    assert w.spec("Job", "demo")["activeDeadlineSeconds"] == 1
    assert [one.spec.active for one in w.seen.old_workloads] == [True]


def test_a_workload_that_somebody_activates_is_paused_again(world: type[World]) -> None:
    w = running(world)
    w.edit(suspend=True)
    w.settle()
    w.kueue_says({"type": "Admitted", "status": "True", "reason": "Admitted"})
    assert is_active(w)
    w.settle()
    assert not is_active(w)


def test_suspension_of_a_job_that_only_waited_counts_nothing(world: type[World]) -> None:
    w = made(world)
    w.kueue_says()
    w.edit(suspend=True)
    w.settle()
    w.edit(suspend=False)
    w.settle()
    assert w.status.requeues == 0


def test_admission_checks_are_told(world: type[World]) -> None:
    w = made(world)
    checks = {"type": "Admitted", "status": "False", "reason": "NoChecks", "message": "waits for a machine"}
    w.kueue_says({"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved"}, checks)
    w.settle()
    assert "waits for a machine" in w.message("Admitted")


def test_a_cluster_without_kueue_says_so(world: type[World]) -> None:
    w = world(TWO, QUEUE)
    w.lacks(KUEUE_WORKLOAD)
    w.settle()
    assert w.condition("Admitted")[:2] == ("False", "KueueNotInstalled")
    assert ("Job", "demo") not in w.objects
    w.lacks()
    w.settle()
    assert ("Job", "demo") in w.objects


def test_partial_admission_is_refused_by_name(world: type[World]) -> None:
    """A gang of fixed size would wait for ever for the workers that are left out."""
    template = "podTemplate: {metadata: {annotations: {kueue.x-k8s.io/job-min-parallelism: '1'}}}"
    w = world(TWO, f"{{image: a:1, scheduling: {{kueueQueue: gpus}}, {template}}}")
    w.settle()
    assert w.condition("Accepted")[:2] == ("False", "InvalidSpec")
    assert "set spec.elastic instead" in w.message("Accepted")


@pytest.mark.parametrize("other", [{"volcanoQueue": "a"}, {"scheduler": "auto"}, {"scheduler": "kai-scheduler"}])
def test_kueue_goes_with_no_gang_scheduler(world: type[World], other: dict[str, Any]) -> None:
    text = str({"image": "a:1", "scheduling": {"kueueQueue": "gpus"} | other}).replace("'", "")
    w = world(TWO, text)
    w.settle()
    assert ("Job", "demo") not in w.objects
