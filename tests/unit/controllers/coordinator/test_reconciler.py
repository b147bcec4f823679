"""The coordinator on the fake API server, in virtual time."""

from typing import Any

import anyio

from torchctl.api.capacity import NODE, PRIORITY_CLASS, RESOURCE_QUOTA
from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.kube import CONTROLLER_REVISION, POD
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.controllers.coordinator.reconciler import setup
from torchctl.controllers.settings import CoordinatorSettings
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
KINDS = (TORCHRUN_JOB, TORCHRUN_QUEUE, CONTROLLER_REVISION, POD, NODE, PRIORITY_CLASS, RESOURCE_QUOTA)


def of(kind: Kind[Any], body: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind, **body}


def test_job_is_let_in_although_its_template_comes_last() -> None:
    """Each kind has a watch of its own, and nothing else may happen after that."""

    async def main() -> None:
        clock = virtualtime.VirtualClock()
        server = FakeApiServer([Served(kind, status=kind is TORCHRUN_JOB) for kind in KINDS], clock=clock)
        client = server.client(field_manager="somebody")
        node = {"metadata": {"name": "n0"}, "status": {"allocatable": {"nvidia.com/gpu": "16", "pods": "9"}}}
        await client.create(NODE, of(NODE, node))
        await client.create(TORCHRUN_QUEUE, of(TORCHRUN_QUEUE, {"metadata": {"name": "queue"}, "spec": {}}), "team")
        status = {"phase": "Queued", "queueRevision": "job-1"}
        spec = {"jobQueue": "queue", "numNodes": 2, "command": "python train.py"}
        job = {"metadata": {"name": "job"}, "spec": spec}
        await client.create(TORCHRUN_JOB, of(TORCHRUN_JOB, job), "team")
        await client.merge_patch(TORCHRUN_JOB, "job", {"status": status}, namespace="team", subresource="status")
        quiet = RuntimeSettings(server=ServerSettings(metrics_port=None, health_port=None))
        manager = Manager(server.client(), settings=quiet, metrics=Metrics(process=False), clock=clock)
        setup(manager, CoordinatorSettings())
        stop = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.run, stop)
            await clock.sleep(10)
            revision = {"metadata": {"name": "job-1", "labels": OURS}, "data": TEMPLATE, "revision": 1}
            await client.create(CONTROLLER_REVISION, of(CONTROLLER_REVISION, revision), "team")
            await wait_for(client, TORCHRUN_JOB, "job", "team", until=_is_let_in)
            stop.set()

    virtualtime.run(main)


def _is_let_in(job: TorchrunJob | None) -> bool:
    return job is not None and job.status.admission is not None and job.status.admission.let_in_time is not None
