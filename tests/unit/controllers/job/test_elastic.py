"""An elastic job loses, gains and replaces workers while it runs; worker 0 decides how it ends."""

from datetime import timedelta
from typing import Any

import pytest
from world import EPOCH, World, elastic


def test_the_job_replaces_losses_and_ends_with_worker_0(world: type[World]) -> None:
    w = world.running(elastic(), 3)
    spec = w.spec("Job", "demo")
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (3, 3, 2**31 - 1)
    assert spec["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}


def test_scaling_changes_both_numbers_of_the_running_job(world: type[World]) -> None:
    w = world.running(elastic(), 3)
    w.edit(num_nodes=4)
    w.settle()
    assert [w.spec("Job", "demo")[field] for field in ("completions", "parallelism")] == [4, 4]
    assert (w.phase, w.status.nodes.desired, w.attempt) == ("Running", 4, 0)
    w.edit(num_nodes=2)
    w.told_to_stop(2)
    w.settle()
    assert [w.spec("Job", "demo")[field] for field in ("completions", "parallelism")] == [2, 2]
    assert (w.phase, w.restarts.total) == ("Running", 0)


def test_a_lost_pod_is_no_incident_above_the_minimum(world: type[World]) -> None:
    w = world.running(elastic(), 3)
    w.told_to_stop(2)
    w.settle()
    assert (w.phase, w.status.incident) == ("Running", None)


def taken_off(w: World, **status: Any) -> None:
    """Somebody deletes worker 0: its Job counts it at once, and takes its finalizer off. The pod does not end."""
    w.worker(0, metadata=w.told() | {"finalizers": []}, **status)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_counted_worker_0_that_never_ends_is_lost(world: type[World], is_replaced: bool) -> None:
    """An operator that was away sees the pod only now. If the Job suspended it, it says so in a moment."""
    w = world.running(elastic(), 3)
    taken_off(w)
    if is_replaced:
        w.play("demo-0-y", phase="Running")
    w.settle()
    assert (w.phase, w.status.incident, w.look_again_s()) == ("Running", None, 10)
    w.later(10)
    w.settle()
    assert w.status.incident is not None
    w.later(60)
    w.settle()
    assert w.restarts.by_cause == {"Deleted": 1}


def test_a_counted_worker_0_of_a_lost_node_counts(world: type[World]) -> None:
    w = world.running(elastic(), 3)
    taken_off(w, conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}])
    w.settle()
    assert w.status.incident is not None
    assert w.status.incident.cause == "NodeLost"


@pytest.mark.parametrize("ahead_s", [-9, 9, 3600, -3600])
def test_a_wrong_clock_hides_no_counted_worker_0(world: type[World], ahead_s: float) -> None:
    w = world.running(elastic(), 3)
    taken_off(w)
    w.later(ahead_s)
    for _ in range(20):
        w.settle()
        w.later(1)
    w.settle()
    assert w.status.incident is not None or w.restarts.total == 1


@pytest.mark.parametrize(
    ("more", "phase"), [({}, "Running"), ({"num_nodes": 2}, "Running"), ({"suspend": True}, "Suspended")]
)
def test_a_stuck_worker_goes_by_force(world: type[World], more: dict[str, Any], phase: str) -> None:
    """Whatever the job is about: its node ends it no more, and its Job has counted it."""
    w = world.running(elastic(), 3)
    w.edit(**more)
    w.told_to_stop(2, conditions=[])
    w.settle()
    assert (w.phase, w.look_again_s()) == (phase, 60)
    w.later(59)
    w.settle()
    assert ("demo-2-x" in {pod.metadata.name for pod in w.seen.pods}, w.last.actions.remove) == (True, ())
    w.later(1)
    w.step()
    assert [(removal.key.name, removal.force) for removal in w.last.actions.remove] == [("demo-2-x", True)]
    assert (w.attempt, w.status.incident) == (0, None)


def test_workers_that_stop_after_worker_0s_success_are_not_missed(world: type[World]) -> None:
    """The workers take long to stop."""
    w = world.running(elastic(), 3)
    w.worker(0, "Succeeded")
    w.told_to_stop(1, 2, conditions=[])
    w.settle()
    w.later(200)
    w.settle()
    assert (w.phase, w.status.incident) == ("Succeeded", None)


def test_an_unreachable_node_does_not_delay_success(world: type[World]) -> None:
    """The Job itself is not Complete while pods of it have yet to end."""
    w = world.running(elastic(), 3)
    w.worker(0, "Succeeded")
    w.told_to_stop(1, 2, conditions=[])
    w.settle()
    assert w.phase == "Succeeded"


@pytest.mark.proves("TorchrunJob.spec.elastic.minNodes")
def test_a_job_below_its_minimum_waits_before_an_incident(world: type[World]) -> None:
    """Being below the minimum for too long counts as one incident."""
    w = world.running(elastic(), 3)
    w.pod_goes(1, 2)
    w.settle()
    assert w.condition("WorkersReady")[:2] == ("False", "BelowMinimum")
    assert w.steps.life.look_again_s == 120
    w.later(120)
    w.incident_settles()
    assert w.restarts.by_cause == {"BelowMinimum": 1}


def test_a_change_of_size_that_is_refused_costs_no_worker(world: type[World]) -> None:
    w = world.running(elastic(), 3)
    w.refuses("Job")
    w.edit(num_nodes=4)
    w.settle()
    assert (w.phase, w.condition("WorkersReady")[:2]) == ("Running", ("True", "Refused"))
    w.later(10_000)
    w.settle()
    assert w.status.incident is None
    assert w.attempt == 0


def test_a_refused_change_of_size_keeps_the_minimums_time(world: type[World]) -> None:
    """The time below the minimum is not shortened."""
    w = world.running(elastic(), 3)
    w.refuses("Job")
    w.edit(num_nodes=4)
    w.settle()
    w.later(10_000)
    w.pod_goes(1, 2)
    w.settle()
    assert (w.status.incident, w.steps.life.look_again_s) == (None, 120)


def test_enough_workers_reset_the_time_below_the_minimum(world: type[World]) -> None:
    w = world.running(elastic(), 3)
    for _ in range(2):
        for index in (1, 2):
            w.worker(index, conditions=[])
        w.settle()
        assert w.steps.life.look_again_s == 120
        w.later(119)
        w.settle()
        assert w.steps.life.look_again_s == 1
        w.worker(1)
        w.settle()
    w.later(119)
    w.settle()
    assert (w.phase, w.status.incident) == ("Running", None)


def test_setting_the_clock_back_does_not_prolong_being_below_minimum(world: type[World]) -> None:
    w = world.running(elastic(), 3)
    w.told_to_stop(1, 2, conditions=[])
    w.settle()
    w.now -= timedelta(hours=1)
    w.settle()
    assert w.incident.cause == "BelowMinimum"


def test_the_loss_of_the_stores_host_is_an_incident(world: type[World]) -> None:
    w = world.running(elastic(), 3)
    w.told_to_stop(0)
    w.incident_settles()
    assert w.restarts.by_cause == {"Deleted": 1}


@pytest.mark.proves("TorchrunJob.status.hostUid")
@pytest.mark.parametrize(("more", "lost"), [("", {"Vanished": 1}), ("distributed: {rdzvBackend: etcd-v2}", {})])
def test_a_host_that_was_replaced_unseen_is_an_incident(world: type[World], more: str, lost: dict[str, int]) -> None:
    w = world.running(elastic(more=more), 3)
    assert w.status.host_uid == "uid-of-demo-0-x"
    w.later(20)
    w.worker(0, metadata={"uid": "another", "creationTimestamp": w.now})
    w.incident_settles()
    assert w.restarts.by_cause == lost


def test_with_a_store_elsewhere_worker_0_is_one_of_many(world: type[World]) -> None:
    w = world.running(elastic(more="distributed: {rdzvBackend: etcd-v2}"), 3)
    w.told_to_stop(0)
    w.settle()
    assert (w.phase, w.status.incident) == ("Running", None)


def test_worker_0_that_was_told_to_stop_is_an_incident(
    world: type[World],
) -> None:
    """Its Job counts exit 0 as the success of all and would not replace it, wherever the store is."""
    w = world.running(elastic(more="distributed: {rdzvBackend: etcd-v2}"), 3)
    w.told_to_stop(0)
    w.settle()
    ended = [{"name": "trainer", "state": {"terminated": {"exitCode": 0, "finishedAt": w.now}}}]
    w.worker(0, "Succeeded", containerStatuses=ended, metadata=w.told())
    w.settle()
    assert w.phase == "Restarting"
    w.pod_goes(0)
    w.job_is("Complete")
    w.incident_settles()
    assert (w.phase, w.restarts.by_cause) == ("Restarting", {"Deleted": 1})


def test_a_program_that_fails_is_an_incident_whatever_its_index(world: type[World]) -> None:
    w = world.running(elastic(), 3)
    w.worker_fails(2, 42)
    w.incident_settles()
    assert w.restarts.by_cause == {"Error": 1}
    assert w.stopped()


def test_the_success_of_worker_0_makes_other_ends_irrelevant(world: type[World]) -> None:
    w = world.running(elastic(), 3)
    w.worker(0, "Succeeded")
    w.worker_fails(1, 143)
    w.settle()
    assert (w.status.incident, w.restarts.total) == (None, 0)
    w.job_is("Complete")
    w.settle()
    assert w.phase == "Succeeded"


def test_the_next_attempt_waits_until_the_earlier_job_is_stopped(world: type[World]) -> None:
    """A Job that is not stopped makes pods again."""
    w = world.running(elastic(), 3)
    w.refuses("Job")
    for index in range(3):
        w.worker_fails(index, 42)
    w.settle()
    w.later(100)
    w.settle()
    status = w.status
    assert (status.attempt, status.next_attempt_time is not None) == (1, True)
    w.refuses_nothing()
    w.settle()
    assert w.stopped()
    assert w.has("Job", "demo-r1")


def test_the_success_of_worker_0_counts_even_if_seen_late(world: type[World]) -> None:
    """The end of another worker is seen first."""
    w = world.running(elastic(), 3)
    w.worker_fails(2, 1, "lost", after_s=10)
    w.settle()
    assert w.phase == "Restarting"
    ended = {"exitCode": 0, "finishedAt": EPOCH + timedelta(seconds=9)}
    w.worker(0, "Succeeded", containerStatuses=[{"name": "trainer", "state": {"terminated": ended}}])
    w.settle()
    assert (w.phase, w.restarts.total, w.status.failure) == ("Succeeded", 0, None)


def test_workers_stopped_after_success_are_no_loss_without_a_template(
    world: type[World],
) -> None:
    w = world.running(elastic(), 3)
    w.template_goes()
    w.worker(0, "Succeeded")
    w.settle()
    w.told_to_stop(1, 2, conditions=[])
    w.settle()
    assert (w.phase, w.status.incident) == ("Succeeded", None)


def test_a_complete_job_is_not_below_its_minimum(world: type[World]) -> None:
    """The end of worker 0 has not been seen yet."""
    w = world.running(elastic(), 3)
    w.pod_goes(1, 2)
    w.settle()
    w.job_is("Complete")
    w.later(200)
    w.settle()
    assert (w.phase, w.status.incident) == ("Starting", None)
    w.worker(0, "Succeeded")
    w.settle()
    assert w.phase == "Succeeded"


def test_worker_0s_success_is_never_below_the_minimum(world: type[World]) -> None:
    w = world.running(elastic(), 3)
    w.pod_goes(1, 2)
    w.settle()
    w.later(200)
    w.worker(0, "Succeeded")
    w.step()
    assert (w.phase, w.status.incident) == ("Succeeded", None)


def test_a_success_after_the_job_was_given_up_hides_nothing(
    world: type[World],
) -> None:
    """Worker 0 succeeds once another worker has failed."""
    w = world.running(elastic(), 3)
    w.worker_fails(1, 42)
    w.settle()
    w.job_is("FailureTarget")
    w.worker(0, "Succeeded", metadata=w.told())
    w.incident_settles()
    assert w.restarts.by_cause == {"Error": 1}


def test_a_job_that_failed_while_suspended_can_be_resumed(world: type[World]) -> None:
    w = world.running(elastic(), 3)
    w.edit(suspend=True)
    w.settle()
    w.worker(0, "Succeeded", metadata=w.told())
    w.job_is("Failed")
    w.settle()
    w.edit(suspend=False)
    w.settle()
    assert w.attempt == 1


def test_a_lost_workspace_server_does_not_end_running_workers(world: type[World]) -> None:
    """Running workers have the workspace, even if it cannot be served again."""
    source = "volumes: {workspace: {source: git, url: 'https://git.test/a'}}"
    w = world(elastic(more=source))
    w.settle()
    w.sync_serves()
    w.settle()
    w.runs(3)
    w.remove("Pod", "demo-sync-0")
    w.settle()
    for number in range(3):
        w.sync_fails(number)
        w.settle()
    assert w.condition("WorkspaceReady")[:2] == ("False", "SyncFailed")
    assert w.phase == "Running"
    w.worker_fails(1, 42)
    w.incident_settles()
    w.later(10)
    w.old_pods_go()
    assert w.condition("Failed")[:2] == ("True", "WorkspaceSyncFailed")


def test_a_worker_stopped_after_worker_0s_success_has_not_failed(world: type[World]) -> None:
    """Whether its pod is still seen when the Job is Complete is chance."""
    w = world.running(elastic(), 3)
    w.worker(0, "Succeeded")
    w.worker_fails(1, 143, metadata=w.told())
    w.worker_fails(2, 1, "lost", after_s=1)
    w.job_is("Complete")
    w.settle()
    workers = w.status.workers
    assert (w.phase, workers.succeeded, workers.failed) == ("Succeeded", 2, 1)


def test_workers_of_a_success_count_though_their_pods_are_gone(world: type[World]) -> None:
    """An operator that was away when worker 0 succeeded finds the pods of the others removed."""
    w = world.running(elastic(), 3)
    w.worker(0, "Succeeded")
    w.pod_goes(1, 2)
    w.job_is("Complete")
    w.settle()
    assert (w.phase, w.status.workers.succeeded, w.status.workers.failed) == ("Succeeded", 3, 0)


def test_surplus_pods_that_stop_do_not_hold_success_up(world: type[World]) -> None:
    """Worker 0 has ended."""
    w = world.running(elastic(), 3)
    w.worker(0, "Succeeded")
    w.told_to_stop(1)
    w.job_is("Complete")
    w.settle()
    assert w.phase == "Succeeded"
