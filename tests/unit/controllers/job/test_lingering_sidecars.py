"""A trainer has failed, and its pod has not ended because another container of it runs on."""

from datetime import timedelta
from typing import Any

from world import EPOCH, World, elastic, job


def fails(w: World, index: int = 1, **more: Any) -> None:
    ended = {"exitCode": 42, "reason": "Error", "finishedAt": EPOCH + timedelta(seconds=10 + index)}
    trainer = {"name": "trainer", "state": {"terminated": ended}}
    goes_on = {"name": "logs", "state": {"running": {}}}
    statuses = {"containerStatuses": [trainer, goes_on]} | more
    w.worker(index, "Running", startTime=EPOCH, **statuses)


def natively(w: World) -> None:
    """With a sidecar that Kubernetes ends after the trainer."""
    ended = {"exitCode": 42, "reason": "Error", "finishedAt": EPOCH + timedelta(seconds=10)}
    trainer = [{"name": "trainer", "state": {"terminated": ended}}]
    goes_on = [{"name": "logs", "state": {"running": {}}}]
    fails(w, containerStatuses=trainer, initContainerStatuses=goes_on)


def settled(w: World, attempt: int = 1) -> World:
    w.settle()
    w.later(6)
    w.settle()
    assert w.attempt == attempt
    return w


def ends(w: World, name: str) -> None:
    """The pod has come to its end and stays; its Job is over, and the pods that ran are deleted."""
    w.old_worker(name, phase="Failed", reason="DeadlineExceeded")
    w.remove_old_pods("Running")
    w.later(20)
    w.settle()


def test_the_pod_is_ended_and_stays_to_be_read(world: type[World]) -> None:
    w = world.running(job())
    fails(w)
    w.later(20)
    settled(w)
    assert w.halted == ["demo-1-x"]
    (pod,) = (pod for pod in w.seen.old_pods if pod.metadata.name == "demo-1-x")
    assert pod.spec.active_deadline_seconds == 26, "as old as it is: it is over now"
    assert not w.stopped()
    assert not w.step(), "it is told once"
    ends(w, "demo-1-x")
    assert w.has("Job", "demo")
    assert w.has("Job", "demo-r1")


def test_only_the_pod_that_failed_first_is_ended(world: type[World]) -> None:
    """The Job controller ends the others then."""
    w = world.running(job())
    fails(w, 1)
    fails(w, 0)
    settled(w)
    assert w.failure.pod == "demo-0-x"
    assert w.halted == ["demo-0-x"]
    w.old_worker("demo-0-x", phase="Failed")
    w.settle()
    assert w.halted == ["demo-0-x"], "the Job controller ends the other one"


def test_a_sidecar_that_kubernetes_ends_is_waited_for(world: type[World]) -> None:
    w = world.running(job())
    natively(w)
    settled(w)
    assert (w.halted, w.last.actions.remove) == ([], ())
    assert not w.stopped()
    ends(w, "demo-1-x")
    assert w.has("Job", "demo")
    assert w.has("Job", "demo-r1")


def test_a_pod_that_never_ends_goes_by_force(world: type[World]) -> None:
    """The pod's Job goes with it."""
    w = world.running(job())
    fails(w)
    settled(w)
    w.later(59)
    w.settle()
    assert w.has("Job", "demo")
    w.later(2)
    w.step()
    assert w.removals == [("Job", "demo", False), ("Pod", "demo-1-x", True)]


def test_a_job_that_keeps_nothing_deletes_it(world: type[World]) -> None:
    w = world.running(job("runPolicy: {podRetention: None}"))
    fails(w)
    settled(w)
    assert (w.halted, w.has("Job", "demo")) == ([], False)


def test_a_pod_that_is_told_to_stop_keeps_nothing(world: type[World]) -> None:
    w = world.running(job())
    fails(w, metadata=w.told())
    settled(w)
    assert (w.halted, w.has("Job", "demo")) == ([], False)


def test_the_last_attempt_is_ended_the_same_way(world: type[World]) -> None:
    for policy, halted in (("Failed", ["demo-1-x"]), ("None", [])):
        w = world.running(job(f"runPolicy: {{maxRestarts: 0, podRetention: {policy}}}"))
        fails(w)
        settled(w, 0)
        assert w.phase == "Failed"
        assert w.halted == halted
        assert w.has("Job", "demo") is bool(halted)
        if halted:
            assert not w.stopped()


def test_an_elastic_job_stops_all_of_its_pods(world: type[World]) -> None:
    """An elastic Job would replace a single pod that ended."""
    w = world.running(elastic(2), 2)
    fails(w)
    settled(w)
    assert w.halted == []
    assert w.stopped()
