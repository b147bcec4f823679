"""What is asked of the API server before a plan is acted on: the end of a job is not told by a late cache."""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from answers import Answers, answer
from world import World

from torchctl.api.labels import ATTEMPT, JOB_UID, ROLE, ROLE_WORKER
from torchctl.controllers.job.live_reads import PERIOD_S, LiveReads
from torchctl.controllers.job.observe import OURS
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.plan import WORKERS_REQUEUE_S, Idle, Question, Steps, plan
from torchctl.controllers.job.pods import INDEX_KEY
from torchctl.controllers.job.reconciler import JobReconciler
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.exchange import Gate, HttpResponse
from torchctl.runtime.client.requests import HttpRequest
from torchctl.runtime.kinds import Key
from torchctl.runtime.manager import Manager
from torchctl.testing.clock import ManualClock

UID = "0c5f3a52-6f0e-4a53-9f2b-1d1f4b6f7a10"


def steps(observed: Observed, w: World) -> Steps:
    """The plan for what was observed, of a job that goes on."""
    todo = plan(observed, w.settings, w.now)
    assert isinstance(todo, Steps)
    return todo


def worker_job(owner: str) -> dict[str, Any]:
    owned = {"apiVersion": "v1", "kind": "TorchrunJob", "name": "demo", "uid": owner, "controller": True}
    meta = {"name": "demo", "namespace": "team", "uid": "uid-of-demo", "ownerReferences": [owned]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"suspend": False}}


@pytest.fixture
def late(world: type[World]) -> World:
    """A job that runs, and a cache that has heard of its start and not of its Job."""
    w = world("{jobQueue: research, numNodes: 2, command: python train.py}")
    w.settle()
    for index in range(2):
        w.worker(index)
    w.settle()
    w.remove("Job", "demo")
    w.pod_goes(0, 1)
    return w


async def test_a_job_goes_on_if_its_worker_job_exists(late: World) -> None:
    transport = Answers(answer(200, worker_job(UID)))
    todo = steps(late.seen, late)
    assert todo.asks is Question.WORKER_JOB
    known = await LiveReads(Client(transport)).answered(late.seen, Question.WORKER_JOB, 0.0, late.now)
    assert [request.path for request in transport.requests] == ["/apis/batch/v1/namespaces/team/jobs/demo"]
    assert steps(known, late).life.outcome is None


@pytest.mark.parametrize("given", [(404, {"reason": "NotFound"}), (200, worker_job("somebody-else"))])
async def test_a_job_ends_if_its_worker_job_is_not_there(late: World, given: tuple[int, Any]) -> None:
    """The worker Job is gone, or somebody else's has its name."""
    known = await LiveReads(Client(Answers(answer(*given)))).answered(late.seen, Question.WORKER_JOB, 0.0, late.now)
    outcome = steps(known, late).life.outcome
    assert outcome is not None
    assert outcome.reason == "JobDisappeared"


async def test_a_job_is_gone_only_if_the_server_says_so(late: World) -> None:
    client, empty = Client(Answers(answer(200, worker_job(UID)))), SimpleNamespace(get=lambda kind, key: None)
    manager = SimpleNamespace(client=client, cache=empty, events=None, clock=ManualClock())
    known, todo, _ = await JobReconciler(cast(Manager, manager), late.settings)._plan(late.seen, late.now)
    assert isinstance(todo, Steps)
    assert (known.worker_job is not None, todo.life.outcome) == (True, None)


async def test_nothing_is_asked_where_nothing_is_missed(world: type[World]) -> None:
    w, transport = world("{jobQueue: research, numNodes: 2, command: python train.py}"), Answers(answer(500, {}))
    w.settle()
    empty = SimpleNamespace(get=lambda kind, key: None)
    manager = SimpleNamespace(client=Client(transport), cache=empty, events=None, clock=ManualClock())
    known, _, _ = await JobReconciler(cast(Manager, manager), w.settings)._plan(w.seen, w.now)
    assert (known is w.seen, transport.requests) == (True, [])


# The job itself.


def torchrun_job(uid: str, **meta: str) -> dict[str, Any]:
    spec = {"jobQueue": "research", "numNodes": 2, "command": "python train.py"}
    return {"metadata": {"name": "demo", "namespace": "team", "uid": uid, "resourceVersion": "9", **meta}, "spec": spec}


@pytest.fixture(params=["Service", "ControllerRevision", "PodGroup"])
def bereft(world: type[World], request: pytest.FixtureRequest) -> World:
    """A job of which something is gone while its workers run."""
    w = world(
        "{jobQueue: research, numNodes: 2, command: python train.py}",
        "{image: trainer:1, kaiQueue: research, nodeResources: {gpus: 1}}",
    )
    w.settle()
    w.worker(0)
    w.worker(1)
    w.settle()
    assert steps(w.seen, w).asks is None
    [name] = [name for kind, name in w.objects if kind == request.param]
    w.remove(request.param, name)
    return w


async def test_a_job_that_is_there_gets_back_what_went(bereft: World) -> None:
    transport = Answers(answer(200, {"metadata": {"resourceVersion": "9"}, "items": [torchrun_job(UID)]}))
    assert steps(bereft.seen, bereft).asks is Question.JOB
    known = await LiveReads(Client(transport)).answered(bereft.seen, Question.JOB, 0.0, bereft.now)
    assert [request.path for request in transport.requests] == [
        "/apis/torchrun.ai/v1alpha1/namespaces/team/torchrunjobs"
    ]
    assert dict(transport.requests[0].query)["fieldSelector"] == "metadata.name=demo"
    assert known == bereft.seen


@pytest.mark.parametrize(
    "items",
    [
        pytest.param([], id="gone"),
        pytest.param([torchrun_job("another")], id="another of its name"),
        pytest.param([torchrun_job(UID, deletionTimestamp="2026-01-01T00:00:00Z")], id="being deleted"),
    ],
)
async def test_nothing_is_made_for_a_job_that_went(bereft: World, items: list[Any]) -> None:
    """The garbage collector's deletions came to the cache before the job's own."""
    transport = Answers(answer(200, {"metadata": {"resourceVersion": "9"}, "items": items}))
    known = await LiveReads(Client(transport)).answered(bereft.seen, Question.JOB, 0.0, bereft.now)
    assert plan(known, bereft.settings, bereft.now) == Idle()


# The template of a job.


def revision(owner: str, name: str) -> dict[str, Any]:
    owned = {"apiVersion": "v1", "kind": "TorchrunJob", "name": "demo", "uid": owner, "controller": True}
    meta = {"name": name, "namespace": "team", "uid": "uid-of-revision", "ownerReferences": [owned]}
    return {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": meta}


@pytest.fixture
def edited(world: type[World]) -> World:
    """A job whose template is frozen, a queue that was edited after that, and a cache that lacks the revision."""
    w = world("{jobQueue: research, numNodes: 2, command: python train.py}")
    w.step()
    assert w.status.queue_revision
    w.has_queue("image: later:2")
    return w


async def test_a_template_that_is_there_is_not_recorded_anew(edited: World) -> None:
    """The cache lacks it; the API server has it."""
    todo = steps(edited.seen, edited)
    assert todo.asks is Question.REVISION
    transport = Answers(answer(200, revision(UID, edited.status.queue_revision)))
    known = await LiveReads(Client(transport)).answered(edited.seen, Question.REVISION, 0.0, edited.now)
    path = f"/apis/apps/v1/namespaces/team/controllerrevisions/{edited.status.queue_revision}"
    assert [request.path for request in transport.requests] == [path]
    after = steps(known, edited)
    assert (after.revision, after.asks) == (edited.status.queue_revision, None)


@pytest.mark.parametrize("owner", [None, "somebody-else"])
async def test_a_template_that_is_missing_comes_from_the_queue(edited: World, owner: str | None) -> None:
    """A template that was never frozen is recorded as the queue is now."""
    given = (200, revision(owner, edited.status.queue_revision)) if owner else (404, {"reason": "NotFound"})
    known = await LiveReads(Client(Answers(answer(*given)))).answered(edited.seen, Question.REVISION, 0.0, edited.now)
    after = steps(known, edited)
    assert after.revision not in ("", edited.status.queue_revision)


async def test_an_unedited_queue_asks_for_no_template(world: type[World]) -> None:
    w = world("{jobQueue: research, numNodes: 2, command: python train.py}")
    assert steps(w.seen, w).asks is None
    w.step()
    assert steps(w.seen, w).asks is None


# The workers.

TWO = "{jobQueue: research, numNodes: 2, command: python train.py}"
BOTH = ((0, "Failed"), (1, "Running"))
"""The indexes and phases of pods of which the cache has none."""


def worker(w: World, child: str, index: int, phase: str) -> dict[str, Any]:
    """A worker of a Job, as the API server has it; one that failed has exit code 3."""
    name, attempt = f"{child}-{index}-x", "1" if child.endswith("-r1") else "0"
    owned = {"apiVersion": "batch/v1", "kind": "Job", "name": child, "uid": f"uid-of-{child}", "controller": True}
    meta: dict[str, Any] = {"name": name, "namespace": "team", "uid": f"uid-of-{name}", "ownerReferences": [owned]}
    meta |= {"labels": {ATTEMPT: attempt, ROLE: ROLE_WORKER}, "annotations": {INDEX_KEY: str(index)}}
    ended = {"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": str(w.now)}}
    state = [{"name": "trainer", "state": ended if phase == "Failed" else {"running": {}}}]
    status = {"phase": phase, "containerStatuses": state}
    return {"metadata": meta, "spec": {"nodeName": "node-1", "containers": []}, "status": status}


def listed(w: World, child: str, *pods: tuple[int, str]) -> Answers:
    """A cluster that has these workers of a Job."""
    items = [worker(w, child, index, phase) for index, phase in pods]
    return Answers(answer(200, {"metadata": {"resourceVersion": "9"}, "items": items}))


async def answered(w: World, transport: Answers) -> Steps:
    """The plan that asks for the workers, made again with the answer."""
    assert steps(w.seen, w).asks is Question.WORKERS
    known = await LiveReads(Client(transport)).answered(w.seen, Question.WORKERS, 0.0, w.now)
    todo = steps(known, w)
    assert todo.asks is None
    return todo


@pytest.fixture
def due(world: type[World]) -> World:
    """A job whose next attempt is due, and a cache that has no pod of the last one."""
    w = world.running(TWO)
    w.worker_fails(0)
    w.incident_settles()
    assert (w.phase, w.attempt) == ("Restarting", 1)
    w.remove_old_pods()
    w.remove("Job", "demo")
    w.later(60)
    return w


@pytest.fixture
def failed(world: type[World]) -> World:
    """A job whose Job has failed, and a cache that has no pod of it."""
    w = world.running(TWO)
    w.job_is("Failed", "BackoffLimitExceeded")
    w.pod_goes(0, 1)
    return w


@pytest.mark.parametrize(("phase", "begins"), [("Running", False), ("Failed", True)])
async def test_next_attempt_waits_for_workers_the_cache_lacks(due: World, phase: str, begins: bool) -> None:
    transport = listed(due, "demo", (1, phase))
    life = (await answered(due, transport)).life
    assert (life.status.next_attempt_time is None) == begins
    (request,) = transport.requests
    assert request.path == "/api/v1/namespaces/team/pods"
    assert dict(request.query)["labelSelector"].split(",") == [OURS, f"{JOB_UID}={UID}"]


async def test_workers_the_cache_never_has_are_looked_for_again(due: World) -> None:
    """One that goes before the cache has it changes nothing there, so nothing else makes the job go on."""
    todo = await answered(due, listed(due, "demo", (1, "Running")))
    assert todo.actions.look_again_s == WORKERS_REQUEUE_S


async def test_workers_are_not_read_while_the_back_off_lasts(due: World) -> None:
    due.later(-59)
    assert steps(due.seen, due).asks is None


async def test_a_worker_that_failed_unseen_is_the_cause(failed: World) -> None:
    """The Job is seen to have failed before its pods are."""
    todo = await answered(failed, listed(failed, "demo", *BOTH))
    incident, failure = todo.life.status.incident, todo.life.status.failure
    assert incident is not None
    assert failure is not None
    assert (incident.cause, failure.pod, failure.exit_code) == ("Error", "demo-0-x", 3)


async def test_a_worker_that_is_gone_has_vanished(failed: World) -> None:
    incident = (await answered(failed, listed(failed, "demo"))).life.status.incident
    assert incident is not None
    assert incident.cause == "Vanished"


@pytest.mark.parametrize(("pods", "goes"), [(BOTH, False), ((), True)])
async def test_a_failed_worker_the_cache_lacks_stays_readable(
    world: type[World], pods: tuple[tuple[int, str], ...], goes: bool
) -> None:
    """Its Job stays, and the pod and its log with it."""
    w = world.running(TWO)
    w.worker_fails(0)
    w.incident_settles()
    w.remove_old_pods()
    todo = await answered(w, listed(w, "demo", *pods))
    assert [one.key.name for one in todo.actions.remove] == (["demo"] if goes else [])


def test_workers_are_not_read_if_their_job_stays(world: type[World]) -> None:
    """Nobody knows any more what the next attempt was made of, and nothing of the last one is deleted."""
    w = world.running(TWO)
    w.worker_fails(0)
    w.incident_settles()
    w.later(60)
    w.remove_old_pods("Running")
    w.settle()
    w.template_goes(None)
    w.remove_old_pods()
    todo = steps(w.seen, w)
    assert (len(w.seen.old_jobs), todo.actions.remove, todo.asks) == (1, (), None)


@pytest.mark.parametrize(("pods", "goes"), [(BOTH, False), ((), True)])
async def test_a_failed_worker_stays_readable_after_the_end(
    world: type[World], pods: tuple[tuple[int, str], ...], goes: bool
) -> None:
    """The job ends while its next attempt waits, and the cache lacks the pods of the last one."""
    w = world.running("{jobQueue: research, numNodes: 2, command: x, runPolicy: {activeDeadlineSeconds: 100}}")
    w.later(200)
    w.worker_fails(0, after_s=200)
    w.incident_settles()
    assert (w.phase, w.attempt) == ("Failed", 1)
    w.remove_old_pods()
    client, empty = Client(listed(w, "demo", *pods)), SimpleNamespace(get=lambda kind, key: None)
    manager = SimpleNamespace(client=client, cache=empty, events=None, clock=ManualClock())
    _, todo, _ = await JobReconciler(cast(Manager, manager), w.settings)._plan(w.seen, w.now)
    assert isinstance(todo, Idle)
    assert [one.key.name for one in todo.actions.remove] == (["demo"] if goes else [])


async def test_a_plan_may_ask_one_question_after_another(late: World) -> None:
    """The Job is there, has failed, and its pods are there as well."""
    child = worker_job(UID) | {"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "Over"}]}}
    child["metadata"]["uid"] = "uid-of-demo"
    pods = listed(late, "demo", *BOTH).answers
    client, empty = Client(Answers(answer(200, child), *pods)), SimpleNamespace(get=lambda kind, key: None)
    manager = SimpleNamespace(client=client, cache=empty, events=None, clock=ManualClock())
    _, todo, _ = await JobReconciler(cast(Manager, manager), late.settings)._plan(late.seen, late.now)
    assert isinstance(todo, Steps)
    assert todo.life.status.incident is not None
    assert todo.life.status.incident.cause == "Error"


# Why there are no pods.


class Refused(Answers):
    """A cluster in which the Job controller is refused pods, and says so in other words each time that one asks."""

    def __init__(self) -> None:
        super().__init__(answer(200))

    async def send(self, request: HttpRequest, gate: Gate | None = None) -> HttpResponse:
        self.requests.append(request)
        meta = {"name": "e", "namespace": "team", "resourceVersion": str(len(self.requests))}
        said = {"metadata": meta, "message": f"refused for the {len(self.requests)}th time", "type": "Warning"}
        body = {"metadata": {"resourceVersion": "9"}, "items": [said]}
        return answer(200, body)


async def test_why_pods_are_refused_is_asked_once_a_period(world: type[World]) -> None:
    """The number of passes does not matter."""
    w, transport = world("{jobQueue: research, numNodes: 2, command: python train.py}"), Refused()
    w.settle()
    reads = LiveReads(Client(transport))

    async def why(now: float) -> str:
        return (await reads.answered(w.seen, Question.WHY_NO_PODS, now, w.now)).create_failure

    said = [await why(now) for now in (5.0, 6.0, 5.0 + PERIOD_S - 0.1, 5.0 + PERIOD_S)]
    assert said == ["refused for the 1th time"] * 3 + ["refused for the 2th time"]
    assert len(transport.requests) == 2


async def test_an_answer_holds_for_one_job_and_attempt_only(world: type[World]) -> None:
    w, transport = world("{jobQueue: research, numNodes: 2, command: python train.py}"), Refused()
    w.settle()
    reads = LiveReads(Client(transport))
    await reads.answered(w.seen, Question.WHY_NO_PODS, 5.0, w.now)
    child = w.worker_job
    again = msgspec.structs.replace(child, metadata=msgspec.structs.replace(child.metadata, uid="of-attempt-1"))
    await reads.answered(replace(w.seen, worker_job=again), Question.WHY_NO_PODS, 5.0, w.now)
    reads.forget(Key("team", "demo"))
    await reads.answered(replace(w.seen, worker_job=again), Question.WHY_NO_PODS, 5.0, w.now)
    assert len(transport.requests) == 3


async def test_where_nothing_was_said_it_is_asked_again_soon(world: type[World]) -> None:
    w = world("{jobQueue: research, numNodes: 2, command: python train.py}")
    w.settle()
    transport = Answers(answer(200, {"metadata": {"resourceVersion": "9"}, "items": []}))
    reads = LiveReads(Client(transport))
    for now in (5.0, 9.0, 10.0):
        assert (await reads.answered(w.seen, Question.WHY_NO_PODS, now, w.now)).create_failure == ""
    assert len(transport.requests) == 2


@pytest.mark.parametrize(("minutes", "said"), [(9, "exceeded quota"), (11, "")])
async def test_an_old_event_counts_as_mended_and_is_not_reread(world: type[World], minutes: int, said: str) -> None:
    """Events are read no more often if the newest one is old."""
    w = world("{jobQueue: research, numNodes: 2, command: python train.py}")
    w.settle()
    meta = {"name": "e", "namespace": "team", "resourceVersion": "3"}
    event = {"metadata": meta, "message": "exceeded quota", "lastTimestamp": w.now - timedelta(minutes=minutes)}
    transport = Answers(answer(200, {"metadata": {"resourceVersion": "9"}, "items": [event]}))
    reads = LiveReads(Client(transport))
    for now in (5.0, 6.0):
        assert (await reads.answered(w.seen, Question.WHY_NO_PODS, now, w.now)).create_failure == said
    assert len(transport.requests) == 1
