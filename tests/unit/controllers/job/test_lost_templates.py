"""Somebody deleted the template of a running attempt, and the queue has been edited since."""

from typing import Any

import pytest
from world import World, elastic, job


@pytest.mark.parametrize("text", [job, lambda more: elastic(2, more)])
def test_the_deadline_stops_workers_whose_template_is_lost(world: type[World], text: Any) -> None:
    """Somebody deleted the template, and the queue is another one by now."""
    w = world.running(text("runPolicy: {activeDeadlineSeconds: 300}"))
    w.template_goes()
    w.later(300)
    w.settle()
    assert w.condition("Failed")[:2] == ("True", "DeadlineExceeded")
    assert not w.has("Job", "demo")


def test_a_failed_worker_without_a_template_stays_readable(world: type[World]) -> None:
    w = world.running(job("runPolicy: {restartPolicy: Never}"))
    w.template_goes()
    w.worker_fails(1, 42)
    w.incident_settles()
    assert w.phase == "Failed"
    assert w.has("Job", "demo")
    status = w.status
    assert (status.workers.running, status.workers.failed, status.nodes.ready) == (0, 1, 0)
    assert status.workers_status == "1/2 failed"


def test_a_lingering_sidecar_is_stopped_without_a_template(world: type[World]) -> None:
    w = world.running(job("runPolicy: {restartPolicy: Never}"))
    w.template_goes()
    ended = {"exitCode": 42, "reason": "Error", "finishedAt": w.now}
    goes_on = {"name": "logs", "state": {"running": {}}}
    statuses = [{"name": "trainer", "state": {"terminated": ended}}, goes_on]
    w.worker(1, "Running", startTime=w.now, containerStatuses=statuses)
    w.incident_settles()
    assert (w.phase, w.has("Job", "demo")) == ("Failed", True)
    assert w.halted == ["demo-1-x"]


def test_no_worker_is_counted_without_a_template(world: type[World]) -> None:
    """The attempt has no worker then."""
    w = world.running(job())
    w.template_goes(None)
    w.worker_fails(1, 42)
    w.incident_settles()
    status = w.status
    assert (status.attempt, status.workers.running, status.nodes.ready) == (1, 0, 0)
    assert status.workers_status == "0/2 running"
