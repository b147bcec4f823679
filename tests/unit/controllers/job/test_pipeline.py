"""A job from its creation to its end, reconcile by reconcile, against a cluster in memory."""

from typing import Any

import pytest

CPU = """
jobQueue: research
numNodes: 1
command: python train.py
"""


def test_a_job_of_one_cpu_node_goes_through_to_succeeded_and_then_rests(world: Any) -> None:
    w = world(CPU)
    w.step()
    assert w.seen.job.status.queue_revision.startswith("demo-")
    w.settle()
    assert w.phase == "Starting"
    assert {kind for kind, _ in w.objects} == {"ControllerRevision", "Service", "Job"}
    w.worker(0)
    w.settle()
    assert (w.phase, w.seen.job.status.workers_status) == ("Running", "1/1 running")
    w.worker(0, "Succeeded")
    w.later(60)
    w.job_is("Complete")
    w.settle()
    assert w.phase == "Succeeded"
    assert w.condition("Complete")[:2] == ("True", "Succeeded")
    assert w.seen.job.status.active_seconds == 60
    w.later(3600)
    assert not w.step()
    assert w.last.children == ()


def test_nothing_is_written_before_the_template_is_named_in_status(world: Any) -> None:
    w = world(CPU)
    w.step()
    assert w.objects == {}
    w.step()
    assert ("ControllerRevision", w.seen.job.status.queue_revision) in w.objects


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_job_that_ended_is_never_run_again_even_if_its_job_is_deleted(world: Any, phase: str) -> None:
    w = world(CPU)
    w.settle()
    if phase == "Succeeded":
        w.job_is("Complete")
    else:
        w.worker_fails(0)
    w.settle()
    w.remove("Job", "demo")
    w.remove("Pod", "demo-0-x")
    w.settle()
    assert w.phase == phase
    assert ("Job", "demo") not in w.objects
