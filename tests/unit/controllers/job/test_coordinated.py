"""A job that the coordinator lets in: no worker Job before that, and one admission for each attempt."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from world import World

from torchctl.api.conditions import JobCondition
from torchctl.api.jobstatus import Admission
from torchctl.api.phases import Phase
from torchctl.controllers.settings import CoordinatorSettings
from torchctl.runtime.conditions import find

JOB_OF_TWO = "{jobQueue: research, numNodes: 2, command: python train.py}"
QUEUE = "{image: 'trainer:1', nodeResources: {gpus: 8}}"


def coordinated(world: type[World], queue: str = QUEUE, job: str = JOB_OF_TWO) -> World:
    w = world(job, queue)
    w.settings = replace(w.settings, coordinator=CoordinatorSettings())
    w.settle()
    return w


def say(w: World, **fields: Any) -> None:
    """What the coordinator writes."""
    status = msgspec.structs.replace(w.status, admission=Admission(**fields))
    w.seen = replace(w.seen, job=msgspec.structs.replace(w.seen.job, status=status))
    w.settle()


def admitted(w: World) -> tuple[str, str, str]:
    found = find(w.status.conditions, JobCondition.ADMITTED)
    assert found is not None
    return found.status, found.reason, found.message


def jobs(w: World) -> list[str]:
    return sorted(name for kind, name in w.objects if kind == "Job")


def test_no_worker_job_before_the_job_is_let_in(world: type[World]) -> None:
    w = coordinated(world)
    assert (jobs(w), w.status.phase) == ([], Phase.QUEUED)
    assert admitted(w) == ("False", "WaitingForAdmission", "waits for the coordinator's decision")
    say(w, attempt=0, place=2, reason="NodesShort", message="3 of 8 pods find a node now, 5 short")
    message = "place 2 of TorchrunQueue research: 3 of 8 pods find a node now, 5 short"
    assert admitted(w) == ("False", "WaitingForAdmission", message)
    assert jobs(w) == []
    say(w, attempt=0, let_in_time=w.now)
    assert (jobs(w), w.status.phase, admitted(w)[:2]) == (["demo"], Phase.STARTING, ("True", "LetIn"))


def test_each_attempt_is_let_in_anew(world: type[World]) -> None:
    w = coordinated(world)
    say(w, attempt=0, let_in_time=w.now)
    w.runs(2)
    w.settle()
    assert w.status.phase == Phase.RUNNING
    w.worker_fails(0, 137)
    w.incident_settles()
    w.remove_old_pods()
    w.later(600)
    w.settle()
    assert (w.status.attempt, w.status.phase, jobs(w)) == (1, Phase.QUEUED, [])
    say(w, attempt=1, let_in_time=w.now)
    assert jobs(w) == ["demo-r1"]


def test_pods_are_limited_to_the_nodes_that_were_decided_on(world: type[World]) -> None:
    w = coordinated(world)
    say(w, attempt=0, let_in_time=w.now, avoid_nodes=("n0",))
    affinity = w.objects["Job", "demo"]["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n0"]}]}


@pytest.mark.parametrize(
    ("queue", "job"),
    [
        ("{image: 'trainer:1', scheduling: {scheduler: mine}}", JOB_OF_TWO),
        (QUEUE, "{jobQueue: research, numNodes: 2, command: python train.py, labels: {kueue.x-k8s.io/queue-name: q}}"),
    ],
)
def test_who_has_another_scheduler_starts_at_once(world: type[World], queue: str, job: str) -> None:
    assert jobs(coordinated(world, queue, job)) == ["demo"]


def test_without_a_coordinator_a_job_starts_at_once(world: type[World]) -> None:
    w = world(JOB_OF_TWO, QUEUE)
    w.settle()
    assert jobs(w) == ["demo"]
