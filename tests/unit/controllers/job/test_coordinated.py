"""A job that the coordinator lets in: no worker Job before that, and one admission for each attempt."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from world import World

from torchctl.api.conditions import JobCondition
from torchctl.api.jobstatus import Admission
from torchctl.api.phases import Phase
from torchctl.controllers.coordinator.admitted import spec_of
from torchctl.controllers.coordinator.shapes import requests_of
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
    put(w, Admission(**fields))


def put(w: World, record: Admission | None) -> None:
    status = msgspec.structs.replace(w.status, admission=record)
    w.seen = replace(w.seen, job=msgspec.structs.replace(w.seen.job, status=status))
    w.settle()


def take_back(w: World, **fields: Any) -> None:
    """The coordinator takes the room of the first attempt back."""
    say(w, attempt=0, let_in_time=w.now, taken_back_time=w.now, **fields)


def pods_go(w: World) -> None:
    """Nothing is left of the attempt before, and its back-off is over."""
    w.remove_old_pods()
    w.later(600)
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
    start = datetime(2030, 1, 1, 3, 10, tzinfo=UTC)
    say(w, attempt=0, place=2, reason="NodesShort", message="5 short", estimated_start_time=start)
    assert admitted(w)[2] == "place 2 of TorchrunQueue research: 5 short; estimated start 2030-01-01 03:10 UTC"
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
    pods_go(w)
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


@pytest.mark.parametrize("scheduler", ["auto", "default-scheduler"])
def test_quotas_that_nobody_heeds_are_refused_with_the_template(world: type[World], scheduler: str) -> None:
    """Whom `auto` or the operator's default stands for is known for each job alone."""
    w = world(JOB_OF_TWO, f"{{image: 'trainer:1', quota: {{gpus: 8}}, scheduling: {{scheduler: {scheduler}}}}}")
    w.settings = replace(w.settings, coordinator=CoordinatorSettings())
    w.settle()
    found = find(w.status.conditions, JobCondition.ACCEPTED)
    assert found is not None
    refused = scheduler == "auto"
    assert (found.status == "True", "spec.quota.gpus of TorchrunQueue research" in found.message) == (
        not refused,
        refused,
    )
    assert jobs(w) == []


def test_naming_the_default_scheduler_chooses_no_other(world: type[World]) -> None:
    assert jobs(coordinated(world, "{image: 'trainer:1', scheduling: {scheduler: default-scheduler}}")) == []


@pytest.mark.parametrize("fields", [None, {"attempt": 5, "let_in_time": datetime(2030, 1, 1, tzinfo=UTC)}])
def test_a_removed_record_stops_no_job_that_runs(world: type[World], fields: dict[str, Any] | None) -> None:
    w = running(world)
    before = w.objects["Job", "demo"]
    put(w, None if fields is None else Admission(**fields))
    assert (w.status.phase, w.status.attempt, w.objects["Job", "demo"]) == (Phase.RUNNING, 0, before)


def test_without_its_record_a_job_is_made_for_nobody(world: type[World]) -> None:
    """It was let in and has not started: it waits for the next decision."""
    w = coordinated(world)
    w.edit(suspend=True)
    say(w, attempt=0, let_in_time=w.now)
    put(w, None)
    w.edit(suspend=False)
    w.settle()
    assert (jobs(w), w.status.phase) == ([], Phase.QUEUED)


def test_without_a_coordinator_a_job_starts_at_once(world: type[World]) -> None:
    w = world(JOB_OF_TWO, QUEUE)
    w.settle()
    assert jobs(w) == ["demo"]


def running(world: type[World], job: str = JOB_OF_TWO) -> World:
    w = coordinated(world, job=job)
    say(w, attempt=0, let_in_time=w.now)
    return w.runs(2)


def preempt(w: World) -> None:
    take_back(w, preempted_for="team/urgent")


def test_a_preempted_attempt_is_an_incident_that_says_for_whom(world: type[World]) -> None:
    w = running(world, "{jobQueue: research, numNodes: 2, command: x, runPolicy: {maxRestarts: 0}}")
    preempt(w)
    why = "the coordinator took its room back for TorchrunJob team/urgent: it waits for room again"
    found = find(w.status.conditions, JobCondition.WORKERS_READY)
    assert found is not None
    assert (found.reason, found.message) == ("Incident", f"{why}; waits for what else is lost with it")
    assert ("Warning", "Incident", found.message) in w.events
    w.incident_settles()
    assert (w.status.attempt, w.status.phase) == (1, Phase.RESTARTING)
    assert w.status.restarts.by_cause == {"Preempted": 1}
    assert "demo" not in jobs(w)


def test_a_preempted_job_waits_until_it_is_let_in_again(world: type[World]) -> None:
    w = running(world)
    preempt(w)
    w.incident_settles()
    pods_go(w)
    assert (w.status.attempt, w.status.phase, jobs(w)) == (1, Phase.QUEUED, [])
    say(w, attempt=1, let_in_time=w.now)
    assert jobs(w) == ["demo-r1"]


def test_a_program_that_failed_before_pays_for_itself(world: type[World]) -> None:
    w = running(world)
    w.worker_fails(0, 3)
    w.settle()
    preempt(w)
    w.incident_settles()
    assert w.status.restarts.by_cause == {"Error": 1}


def test_a_job_that_succeeded_first_is_not_preempted(world: type[World]) -> None:
    w = running(world)
    w.workers_succeed()
    preempt(w)
    assert (w.status.phase, w.status.restarts.total) == (Phase.SUCCEEDED, 0)


def test_room_taken_back_before_the_start_costs_no_incident(world: type[World]) -> None:
    """The operator was away between the let-in and the loss of the room: no Job is made for it any more."""
    w = coordinated(world)
    preempt(w)
    w.later(1)
    w.settle()
    assert (w.status.attempt, w.status.restarts.total, jobs(w)) == (1, 0, [])
    assert w.status.phase == Phase.QUEUED


def half_placed(world: type[World], job: str = JOB_OF_TWO) -> World:
    w = coordinated(world, job=job)
    say(w, attempt=0, let_in_time=w.now)
    w.worker(0)
    w.worker(1, "Pending", node="")
    w.settle()
    return w


def test_half_a_gang_loses_its_pods_without_an_incident(world: type[World]) -> None:
    w = half_placed(world)
    w.later(300)
    take_back(w, not_before_time=w.now, misses=1)
    assert (w.status.attempt, w.status.phase) == (1, Phase.RESTARTING)
    assert (w.status.restarts.total, w.status.active_seconds) == (0, 0)
    assert "demo" not in jobs(w)
    w.remove_old_pods()
    w.settle()
    assert (w.status.phase, jobs(w)) == (Phase.QUEUED, [])


def test_a_job_says_that_its_pods_found_no_node(world: type[World]) -> None:
    w = coordinated(world)
    say(w, attempt=0, place=1, reason="PodsNotPlaced", message="it was let in, and some of its pods found no node")
    message = "place 1 of TorchrunQueue research: it was let in, and some of its pods found no node"
    assert admitted(w) == ("False", "PodsNotPlaced", message)


def test_a_pod_that_failed_meanwhile_is_an_incident(world: type[World]) -> None:
    w = half_placed(world)
    w.worker_fails(0, 3)
    take_back(w, not_before_time=w.now, misses=1)
    w.incident_settles()
    assert (w.status.attempt, w.status.restarts.by_cause) == (1, {"Error": 1})


def test_a_resumed_job_is_let_in_anew(world: type[World]) -> None:
    """It was let in, and suspended before its Job was made: its room may be another job's."""
    w = coordinated(world)
    w.edit(suspend=True)
    say(w, attempt=0, let_in_time=w.now)
    assert (w.status.phase, jobs(w)) == (Phase.SUSPENDED, [])
    w.edit(suspend=False)
    w.settle()
    assert (w.status.attempt, w.status.phase, jobs(w)) == (1, Phase.QUEUED, [])


@pytest.mark.parametrize(
    ("queue", "accepted"), [(QUEUE, True), ("{image: 'trainer:1', scheduling: {scheduler: mine}}", False)]
)
def test_a_priority_that_nobody_heeds_is_refused(world: type[World], queue: str, accepted: bool) -> None:
    w = coordinated(world, queue, "{jobQueue: research, numNodes: 2, command: x, priority: 5}")
    found = find(w.status.conditions, JobCondition.ACCEPTED)
    assert found is not None
    assert (found.status == "True", "spec.priority is for jobs" in found.message) == (accepted, not accepted)


def switch(w: World, coordinator: CoordinatorSettings | None) -> None:
    """Another operator takes over."""
    w.settings = replace(w.settings, coordinator=coordinator)
    w.settle()


def test_a_coordinator_that_is_switched_off_is_missed(world: type[World]) -> None:
    """A job never starts that others have not made room for, so it says what to do."""
    w = coordinated(world)
    switch(w, None)
    status, reason, message = admitted(w)
    assert (status, reason, w.status.phase, jobs(w)) == ("False", "CoordinatorOff", Phase.QUEUED, [])
    assert message == (
        "TorchrunJob demo waits to be let in, and the coordinator is off: run the operator with --coordinator, or "
        "delete the job and submit it again, it starts without being let in then"
    )
    switch(w, CoordinatorSettings())
    assert admitted(w)[1] == "WaitingForAdmission"


def test_who_was_let_in_goes_on_without_a_coordinator(world: type[World]) -> None:
    w = running(world)
    switch(w, None)
    assert (w.status.phase, admitted(w)[1]) == (Phase.RUNNING, "LetIn")


GIT = "volumes: {workspace: {source: git, url: 'https://git.example.com/a.git'}}"
UPLOAD = "volumes: {workspace: {source: zip}}"
STORED = "{image: 'trainer:1', storage: {workspace: {accessModes: [ReadWriteMany], distribution: %s}}}"
DIGEST = "sha256:" + "1" * 64
SENT = f'{{"revision": "{DIGEST}", "digest": "{DIGEST}", "bytes": 1, "files": 1, "source": "zip"}}'


@pytest.mark.parametrize(
    ("queue", "more"),
    [
        (QUEUE, ""),
        (STORED % "shared", GIT),
        (STORED % "copy", GIT),
        (STORED % "serve", GIT),
        (STORED % "serve", f"{UPLOAD}, hotReload: Restart"),
        (STORED % "shared", f"{UPLOAD}, hotReload: Files"),
    ],
)
def test_what_the_coordinator_counts_is_what_pods_ask_for(world: type[World], queue: str, more: str) -> None:
    w = world(f"{{jobQueue: research, numNodes: 2, command: python train.py, {more}}}", queue)
    w.settle()
    if more:
        serves = w.objects["Pod", "demo-sync-0"]["spec"]["containers"][0]["name"] == "serve"
        (w.sync_serves if serves else w.sync_succeeds)(message=SENT)
        w.settle()
    assert requests_of(spec_of(w.revision.data)) == requests_of(w.spec("Job", "demo")["template"]["spec"])
