"""An attempt that loses a worker ends: one incident, one cause, a back-off, the next attempt."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from world import World, elastic, job

from torchctl.controllers.finding import Refusal
from torchctl.controllers.job.failure.budgets import next_attempt_time
from torchctl.controllers.job.plan import again_s
from torchctl.controllers.settings import Restarting


@pytest.mark.proves("TorchrunJob.status.restarts.total", "TorchrunJob.status.nextAttemptTime")
def test_the_next_attempt_follows_one_incident_and_its_back_off(world: type[World]) -> None:
    """The incident settles first and is counted once."""
    w = world.running(job())
    w.worker_fails(1, 42, "boom", after_s=1)
    w.settle()
    assert (w.phase, w.restarts.total) == ("Restarting", 0)
    assert w.look_again_s() == 5
    w.worker_fails(0, 1, "lost connection", after_s=2)
    w.settle()
    status = w.status
    assert (status.attempt, status.restarts.total, status.restarts.by_cause) == (1, 1, {"Error": 1})
    assert (w.failure.pod, w.failure.exit_code) == ("demo-1-x", 42)
    assert status.next_attempt_time == w.now + timedelta(seconds=10)
    assert not w.has("Job", "demo-r1")
    w.later(10)
    w.settle()
    assert w.has("Job", "demo-r1")
    w.runs()
    assert w.status.rendezvous_id.endswith("-1")


def test_the_pod_that_failed_first_is_the_root(world: type[World]) -> None:
    """The order in which failures are seen does not matter."""
    w = world.running(job())
    w.worker_fails(0, 1, "lost connection", after_s=2)
    w.settle()
    assert w.failure.pod == "demo-0-x"
    w.worker_fails(1, 42, "boom", after_s=1)
    w.settle()
    assert (w.failure.pod, w.attempt) == ("demo-1-x", 1)


def test_pods_lost_after_the_first_open_no_other_incident(world: type[World]) -> None:
    w = world.running(job())
    w.worker_fails(1, 42)
    w.incident_settles()
    assert w.attempt == 1
    w.old_worker("demo-0-x", phase="Failed")
    w.later(10)
    w.settle()
    assert (w.attempt, w.restarts.total) == (1, 1)


def test_a_job_that_gives_up_waits_for_its_pods(world: type[World]) -> None:
    w = world.running(job())
    before = w.status
    w.job_is("FailureTarget", "BackoffLimitExceeded")
    w.settle()
    assert w.status.incident == before.incident
    for index in (0, 1):
        w.pod_goes(index)
    w.settle()
    incident = w.status.incident
    assert incident is not None
    assert incident.cause == "Vanished"


def test_the_next_attempt_waits_until_all_earlier_pods_ended(world: type[World]) -> None:
    w = world.running(job())
    w.worker_fails(1, 42)
    w.job_is("FailureTarget", "BackoffLimitExceeded")
    w.told_to_stop(0)
    w.settle()
    w.later(6)
    w.settle()
    w.later(11)
    w.settle()
    assert (w.phase, w.has("Job", "demo-r1")) == ("Restarting", False)
    w.pod_goes(0)
    w.settle()
    assert w.has("Job", "demo-r1")


def test_a_pod_that_outstays_its_grace_is_removed_by_force(world: type[World]) -> None:
    """The pod's node does not answer."""
    w = world.running(job())
    w.told_to_stop(0)
    w.incident_settles()
    w.later(54)
    w.step()
    assert w.forced == []
    w.later(1)
    w.step()
    assert [one for one in w.removals if one[0] == "Pod"] == [("Pod", "demo-0-x", True)]
    w.pod_goes(1)
    w.settle()
    assert w.has("Job", "demo-r1")


@pytest.mark.parametrize("text", [job(), elastic(2)])
def test_a_pod_held_by_a_finalizer_is_forced_only_once(world: type[World], text: str) -> None:
    """The pod was deleted by force already."""
    w = world.running(text)
    lost = 0 if "elastic" not in text else 1
    held = {"deletionTimestamp": w.now, "deletionGracePeriodSeconds": 0, "finalizers": ["example.test/audit"]}
    w.worker(lost, metadata=held, conditions=[])
    w.incident_settles()
    w.later(60)
    w.step()
    assert w.forced == []


@pytest.mark.parametrize("text", [job(), elastic(2)])
def test_a_refused_forced_deletion_is_tried_again(world: type[World], text: str) -> None:
    """A refused deletion is tried again as often as everything else that is refused."""
    w = world.running(text)
    w.told_to_stop(0)
    w.incident_settles()
    w.later(60)
    w.step()
    assert w.forced == ["demo-0-x"]
    assert again_s(w.last, [Refusal("Pod", "demo-0-x", "Refused", "no", stays=True)]) == 60


def test_a_job_with_a_stuck_pod_is_not_kept(world: type[World]) -> None:
    """Kept to be read, it would not let the pod go."""
    w = world.running(elastic(), 3)
    w.told_to_stop(2)
    w.worker_fails(1, 42, after_s=0)
    w.incident_settles()
    assert w.stopped()
    w.later(54)
    w.settle()
    assert w.has("Job", "demo")
    w.later(1)
    w.step()
    assert w.removals == [("Job", "demo", False), ("Pod", "demo-2-x", True)]


def test_an_evicted_trainer_that_exits_0_is_an_incident(world: type[World]) -> None:
    """The trainer saves a checkpoint when it is told to stop."""
    w = world.running(job())
    ended = [{"name": "trainer", "state": {"terminated": {"exitCode": 0, "finishedAt": w.now}}}]
    target = [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]
    w.worker(0, "Succeeded", containerStatuses=ended, metadata=w.told(), conditions=target)
    w.worker(1, "Succeeded", containerStatuses=ended)
    w.job_is("Complete")
    w.settle()
    assert w.restarts.by_cause == {"Evicted": 1}
    assert w.attempt == 1


@pytest.mark.parametrize("end", ["Complete", "Failed"])
def test_an_attempt_that_nobody_saw_still_has_its_start(world: type[World], end: str) -> None:
    """The operator was away from the creation of the Job to its end."""
    w = world(job("runPolicy: {maxRestarts: 1}"))
    while not w.has("Job", "demo"):
        w.step()
    made = w.now
    w.later(60)
    w.job_is(end)
    w.settle()
    assert w.status.start_time == made
    w.later(60)
    w.settle()
    assert w.status.start_time == made


def test_a_stopped_pod_that_ends_later_is_no_success(world: type[World]) -> None:
    """The deletion opened an incident; how the pod ends afterwards does not matter."""
    w = world.running(job())
    w.told_to_stop(0)
    w.settle()
    w.pod_goes(0, 1)
    w.job_is("Complete")
    w.incident_settles()
    assert w.restarts.by_cause == {"Deleted": 1}


def test_a_job_known_by_its_pods_is_not_made_again(world: type[World]) -> None:
    """The operator died between creating it and noting that; a person deleted it; the next operator looks."""
    w = world.running(job())
    status = w.status
    unnoted = msgspec.structs.replace(status, attempt_start_time=None, start_time=None, attempt_ready_time=None)
    w.seen = replace(w.seen, job=msgspec.structs.replace(w.seen.job, status=unnoted))
    w.told_to_stop(0, 1)
    w.remove("Job", "demo")
    w.settle()
    assert w.condition("Failed")[:2] == ("True", "JobDisappeared")
    assert not w.has("Job", "demo")
    assert (w.status.nodes.ready, w.status.workers_status) == (0, "0/2 running")


def test_pods_seen_to_go_before_their_job_went_with_it(world: type[World]) -> None:
    """Pods and Jobs are watched separately: which of the two changes comes first is chance."""
    w = world.running(job())
    w.told_to_stop(0, 1)
    w.settle()
    assert w.phase == "Restarting"
    w.remove("Job", "demo")
    w.incident_settles()
    assert w.condition("Failed")[:2] == ("True", "JobDisappeared")
    assert w.attempt == 0


def test_a_failure_before_the_job_was_deleted_starts_another_attempt(world: type[World]) -> None:
    w = world.running(job())
    w.worker_fails(1, 42, after_s=0)
    w.settle()
    w.remove("Job", "demo")
    w.later(5)
    w.settle()
    assert (w.attempt, w.restarts.by_cause) == (1, {"Error": 1})


def test_a_clock_that_was_set_back_holds_nothing_up(world: type[World]) -> None:
    w = world.running(job())
    w.told_to_stop(1)
    w.settle()
    w.now -= timedelta(hours=1)
    w.settle()
    assert w.attempt == 1
    w.now -= timedelta(hours=1)
    w.old_pods_go()
    w.runs()


def test_a_back_off_doubles_up_to_its_limit() -> None:
    settings = Restarting()
    now = datetime(2026, 1, 1, tzinfo=UTC)
    waits = [(next_attempt_time(settings, n, now) - now).total_seconds() for n in (1, 2, 3, 4, 5, 6, 7, 1000)]
    assert waits == [10, 20, 40, 80, 160, 300, 300, 300]


@pytest.mark.proves("TorchrunJob.status.restarts.consecutive")
def test_after_a_long_stable_run_the_back_off_begins_anew(world: type[World]) -> None:
    w = world.running(job())
    for attempt in (1, 2):
        w.worker_fails(0, 42, after_s=0)
        w.incident_settles()
        w.later(20)
        w.old_pods_go()
        w.runs()
        assert w.restarts.consecutive == attempt
    w.later(600)
    w.told_to_stop(0)
    w.incident_settles()
    assert w.restarts.consecutive == 1
    assert w.restarts.total == 3


def test_used_up_restarts_end_the_job_and_say_so(world: type[World]) -> None:
    w = world.running(job("runPolicy: {maxRestarts: 1}"))
    for _ in range(2):
        w.worker_fails(1, 42, after_s=0)
        w.incident_settles()
        if w.phase == "Failed":
            break
        w.later(10)
        w.old_pods_go()
        w.runs()
    assert w.condition("Failed")[:2] == ("True", "RestartsExhausted")
    assert "the one restart is used (runPolicy.maxRestarts)" in w.message("Failed")
    assert (w.attempt, w.restarts.total) == (1, 2)
    assert not w.step()


def test_the_clusters_faults_do_not_use_the_programs_restarts(world: type[World]) -> None:
    w = world.running(job("runPolicy: {maxRestarts: 1}"))
    for number in range(1, 5):
        w.told_to_stop(0)
        w.incident_settles()
        assert w.restarts.by_cause == {"Deleted": number}
        w.later(300)
        w.old_pods_go()
        w.runs()
    assert w.phase == "Running"


def test_a_gang_that_came_and_went_unseen_was_admitted(world: type[World]) -> None:
    """However little is left of it: its end is the same as that of one that was watched."""
    for gone in (False, True):
        w = world(job(), "{image: a, kaiQueue: x}")
        w.settle()
        assert w.phase == "Queued"
        w.workers_succeed()
        if gone:
            w.pod_goes(0, 1)
        w.job_is("Complete")
        w.settle()
        assert w.phase == "Succeeded"
        assert w.condition("Admitted") == ("True", "Admitted", "all 2 pods are placed")


def test_deleting_the_job_of_a_success_runs_nothing_again(world: type[World]) -> None:
    w = world.running(job())
    w.workers_succeed()
    w.job_is("Complete")
    w.settle()
    assert w.phase == "Succeeded"
    w.remove("Job", "demo")
    w.settle()
    assert (w.phase, w.has("Job", "demo"), w.has("Job", "demo-r1")) == ("Succeeded", False, False)


@pytest.mark.proves("TorchrunJob.spec.queueUpdatePolicy")
def test_the_next_attempt_takes_the_edited_queue_only_on_request(world: type[World]) -> None:
    """The job asks for it by queueUpdatePolicy."""
    for policy, image in (("Frozen", "trainer:1"), ("NextAttempt", "trainer:2")):
        w = world.running(job(f"queueUpdatePolicy: {policy}"))
        w.has_queue("image: trainer:2")
        w.settle()
        assert w.trainer()["image"] == "trainer:1"
        w.worker_fails(1, 42)
        w.incident_settles()
        w.later(10)
        w.pod_goes(0)
        w.settle()
        assert w.trainer("demo-r1")["image"] == image


def test_an_attempt_waits_for_a_queue_that_is_gone(world: type[World]) -> None:
    """The job takes the queue as it is for every attempt."""
    w = world.running(job("queueUpdatePolicy: NextAttempt"))
    w.has_queue(None)
    w.worker_fails(1, 42)
    w.incident_settles()
    w.later(10)
    w.old_pods_go()
    assert w.condition("WorkersReady") == ("False", "NotStarted", "waits for the queue")
    for wanted in (True, False):
        w.edit(suspend=wanted)
        w.settle()
    w.has_queue("image: trainer:2")
    w.settle()
    assert w.trainer("demo-r1")["image"] == "trainer:2"
    w.runs()
