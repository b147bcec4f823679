"""The Jobs and pods of failed attempts that stay to be read, and for how long."""

import pytest
from world import World, job


def incident(world: type[World], policy: str) -> World:
    w = world.running(job(f"runPolicy: {{podRetention: {policy}}}"))
    w.worker_fails(1, 42)
    w.incident_settles()
    w.pod_goes(0)
    w.later(10)
    w.settle()
    return w.runs()


@pytest.mark.proves("TorchrunJob.spec.runPolicy.podRetention")
@pytest.mark.parametrize(("policy", "kept"), [("Failed", True), ("None", False), ("All", True)])
def test_the_policy_decides_whether_a_failed_attempt_stays(world: type[World], policy: str, kept: bool) -> None:
    w = incident(world, policy)
    assert w.has("Job", "demo") is kept


@pytest.mark.parametrize(
    ("policy", "first", "second"), [("Failed", False, True), ("None", False, False), ("All", True, True)]
)
def test_the_outcome_decides_what_stays(world: type[World], policy: str, first: bool, second: bool) -> None:
    w = incident(world, policy)
    w.workers_succeed()
    w.job_is("Complete")
    w.settle()
    assert w.phase == "Succeeded"
    assert (w.has("Job", "demo"), w.has("Job", "demo-r1")) == (first, second)
    assert w.status.failure is None


@pytest.mark.proves("TorchrunJob.spec.runPolicy.ttlSecondsAfterFinished")
def test_a_job_goes_exactly_after_its_time_to_live(world: type[World]) -> None:
    w = world.running(job("runPolicy: {ttlSecondsAfterFinished: 60}"))
    w.succeeds()
    w.settle()
    assert (w.look_again_s(), w.last.actions.remove) == (60, ())
    w.later(59)
    w.settle()
    w.later(1)
    w.step()
    meta = w.seen.job.metadata
    assert [(r.kind.kind, r.key.name, r.uid, r.version) for r in w.last.actions.remove] == [
        ("TorchrunJob", "demo", meta.uid, meta.resource_version)
    ]
