"""What is asked of the API server before a plan is acted on: the end of a job is not told by a late cache."""

from contextlib import AbstractAsyncContextManager
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from torchctl.controllers.job.asking import completed
from torchctl.controllers.job.plan import plan
from torchctl.controllers.job.reconciler import JobReconciler
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.requests import HttpRequest
from torchctl.runtime.client.transport import Gate, HttpResponse, LineStream
from torchctl.runtime.manager import Manager

UID = "0c5f3a52-6f0e-4a53-9f2b-1d1f4b6f7a10"


class Answer:
    """A transport that gives this answer, and keeps what it was asked."""

    def __init__(self, status: int, body: Any) -> None:
        self.response = HttpResponse(status, {}, msgspec.json.encode(body))
        self.requests: list[HttpRequest] = []

    async def send(self, request: HttpRequest, gate: Gate | None = None) -> HttpResponse:
        self.requests.append(request)
        return self.response

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[LineStream]:
        raise NotImplementedError


def worker_job(owner: str) -> dict[str, Any]:
    owned = {"apiVersion": "v1", "kind": "TorchrunJob", "name": "demo", "uid": owner, "controller": True}
    meta = {"name": "demo", "namespace": "team", "uid": "uid-of-demo", "ownerReferences": [owned]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"suspend": False}}


@pytest.fixture
def late(world: Any) -> Any:
    """A job that runs, and a cache that has heard of its start and not of its Job."""
    w = world("{jobQueue: research, numNodes: 2, command: python train.py}")
    w.settle()
    for index in range(2):
        w.worker(index)
    w.settle()
    w.remove("Job", "demo")
    for index in range(2):
        w.remove("Pod", f"demo-{index}-x")
    return w


async def test_a_job_whose_worker_job_is_there_after_all_goes_on(late: Any) -> None:
    transport = Answer(200, worker_job(UID))
    todo = plan(late.seen, late.settings, late.now)
    assert todo.misses_job
    known = await completed(Client(transport), late.seen, todo)
    assert [request.path for request in transport.requests] == ["/apis/batch/v1/namespaces/team/jobs/demo"]
    assert plan(known, late.settings, late.now).outcome is None


@pytest.mark.parametrize("answer", [(404, {"reason": "NotFound"}), (200, worker_job("somebody-else"))])
async def test_a_job_whose_worker_job_is_gone_or_another_has_ended(late: Any, answer: tuple[int, Any]) -> None:
    known = await completed(Client(Answer(*answer)), late.seen, plan(late.seen, late.settings, late.now))
    outcome = plan(known, late.settings, late.now).outcome
    assert outcome is not None
    assert outcome.reason == "JobDisappeared"


async def test_a_pass_asks_before_it_believes_that_a_job_is_gone(late: Any) -> None:
    manager = SimpleNamespace(client=Client(Answer(200, worker_job(UID))), events=None)
    known, todo = await JobReconciler(cast(Manager, manager), late.settings)._plan(late.seen, late.now)
    assert (known.worker_job is not None, todo.outcome) == (True, None)


async def test_nothing_is_asked_where_nothing_is_missed(world: Any) -> None:
    w, transport = world("{jobQueue: research, numNodes: 2, command: python train.py}"), Answer(500, {})
    w.settle()
    todo = plan(w.seen, w.settings, w.now)
    assert (await completed(Client(transport), w.seen, todo), transport.requests) == (w.seen, [])
