"""The coordinator on the fake API server, in virtual time."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from torchctl.api.capacity import LIMIT_RANGE, NODE, PRIORITY_CLASS, RESOURCE_QUOTA, RUNTIME_CLASS
from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.kube import CONTROLLER_REVISION, POD
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.controllers.coordinator.reconciler import setup
from torchctl.controllers.settings import CoordinatorSettings
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import ApiError, BadRequest, Conflict, Forbidden, Unavailable
from torchctl.runtime.client.requests import HttpRequest
from torchctl.runtime.clock import Clock
from torchctl.runtime.kinds import Kind
from torchctl.runtime.manager import Manager
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.settings import RuntimeSettings, ServerSettings
from torchctl.testing import virtualtime
from torchctl.testing.fake import FakeApiServer, Served
from torchctl.testing.waiting import wait_for

OURS = {"app.kubernetes.io/managed-by": "torchctl"}
GPUS = {"limits": {"nvidia.com/gpu": "8"}}
TEMPLATE: dict[str, Any] = {
    "coordinated": True,
    "nodes": 2,
    "gpuResource": "nvidia.com/gpu",
    "pod": {"metadata": {}, "spec": {"containers": [{"name": "trainer", "resources": GPUS}]}},
}
CLUSTER = (NODE, PRIORITY_CLASS, RESOURCE_QUOTA, LIMIT_RANGE, RUNTIME_CLASS)
KINDS = (TORCHRUN_JOB, TORCHRUN_QUEUE, CONTROLLER_REVISION, POD, *CLUSTER)


def of(kind: Kind[Any], body: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind, **body}


Story = Callable[[FakeApiServer, Client, Clock], Awaitable[None]]


def live(story: Story, *jobs: str, gpus: int = 16) -> None:
    """Lives through a story with one node, one queue, and jobs that wait for their templates."""

    async def main() -> None:
        clock = virtualtime.VirtualClock()
        server = FakeApiServer([Served(kind, status=kind is TORCHRUN_JOB) for kind in KINDS], clock=clock)
        client = server.client(field_manager="somebody")
        node = {"metadata": {"name": "n0"}, "status": {"allocatable": {"nvidia.com/gpu": str(gpus), "pods": "9"}}}
        await client.create(NODE, of(NODE, node))
        await client.create(TORCHRUN_QUEUE, of(TORCHRUN_QUEUE, {"metadata": {"name": "queue"}, "spec": {}}), "team")
        for name in jobs:
            spec = {"jobQueue": "queue", "numNodes": 2, "command": "python train.py"}
            await client.create(TORCHRUN_JOB, of(TORCHRUN_JOB, {"metadata": {"name": name}, "spec": spec}), "team")
            status = {"status": {"phase": "Queued", "queueRevision": f"{name}-1"}}
            await client.merge_patch(TORCHRUN_JOB, name, status, namespace="team", subresource="status")
        quiet = RuntimeSettings(server=ServerSettings(metrics_port=None, health_port=None))
        manager = Manager(server.client(), settings=quiet, metrics=Metrics(process=False), clock=clock)
        setup(manager, CoordinatorSettings())
        stop = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.run, stop)
            await clock.sleep(10)
            await story(server, client, clock)
            stop.set()

    virtualtime.run(main)


async def make_template(client: Client, job: str) -> None:
    revision = {"metadata": {"name": f"{job}-1", "labels": OURS}, "data": TEMPLATE, "revision": 1}
    await client.create(CONTROLLER_REVISION, of(CONTROLLER_REVISION, revision), "team")


def test_job_is_let_in_although_its_template_comes_last() -> None:
    """Each kind has a watch of its own, and nothing else may happen after that."""

    async def story(_: FakeApiServer, client: Client, __: Clock) -> None:
        await make_template(client, "job")
        await wait_for(client, TORCHRUN_JOB, "job", "team", until=_is_let_in)

    live(story, "job")


async def is_taken_back(client: Client, name: str) -> bool:
    record = (await client.get(TORCHRUN_JOB, name, "team")).status.admission
    return record is not None and record.taken_back_time is not None


def test_room_is_taken_back_although_nothing_else_happens() -> None:
    """Its pods find no place, and nobody else waits: only time tells."""

    async def story(_: FakeApiServer, client: Client, clock: Clock) -> None:
        await make_template(client, "job")
        await wait_for(client, TORCHRUN_JOB, "job", "team", until=_is_let_in)
        await clock.sleep(400)
        assert await is_taken_back(client, "job")

    live(story, "job")


def refuse_a(request: HttpRequest) -> None:
    """Refuses each record about job a."""
    if request.method == "PATCH" and "/torchrunjobs/a/" in request.path:
        raise Forbidden("a policy of this namespace", code=403)


@pytest.mark.parametrize(
    "error",
    [
        Forbidden("a policy of this namespace", code=403),
        BadRequest('admission webhook "p.example.com" denied the request: no', code=400),
        Conflict('admission webhook "p.example.com" denied the request: no', code=409),
        Unavailable('failed calling webhook "p.example.com": connection refused', code=500),
    ],
    ids=lambda error: str(error.code),
)
def test_a_refused_record_stops_no_other(error: ApiError) -> None:
    """A webhook chooses the status of its answer itself, and may be asked in one namespace alone."""

    def refuse(request: HttpRequest) -> None:
        if request.method == "PATCH" and "/torchrunjobs/a/" in request.path:
            raise error

    async def story(server: FakeApiServer, client: Client, _: Clock) -> None:
        server.intercept = refuse
        for name in ("a", "b"):
            await make_template(client, name)
        await wait_for(client, TORCHRUN_JOB, "b", "team", until=_is_let_in)
        assert (await client.get(TORCHRUN_JOB, "a", "team")).status.admission is None

    live(story, "a", "b", gpus=32)


def test_a_refused_record_delays_no_later_decision() -> None:
    """Room of another job is taken back in time, although a record has been refused for an hour."""

    async def story(server: FakeApiServer, client: Client, clock: Clock) -> None:
        server.intercept = refuse_a
        await make_template(client, "a")
        await clock.sleep(3600)
        await make_template(client, "b")
        await wait_for(client, TORCHRUN_JOB, "b", "team", until=_is_let_in)
        await clock.sleep(400)
        assert await is_taken_back(client, "b")

    live(story, "a", "b", gpus=32)


def test_a_refused_record_keeps_no_room() -> None:
    """There is room for one of the two, and the first one gets it as soon as nobody refuses that."""

    async def story(server: FakeApiServer, client: Client, clock: Clock) -> None:
        server.intercept = refuse_a
        for name in ("a", "b"):
            await make_template(client, name)
        await wait_for(client, TORCHRUN_JOB, "b", "team", until=_is_let_in)
        await client.delete(TORCHRUN_JOB, "b", namespace="team")
        server.intercept = lambda _: None
        await clock.sleep(120)
        assert _is_let_in(await client.get(TORCHRUN_JOB, "a", "team"))

    live(story, "a", "b")


def _is_let_in(job: TorchrunJob | None) -> bool:
    return job is not None and job.status.admission is not None and job.status.admission.let_in_time is not None
