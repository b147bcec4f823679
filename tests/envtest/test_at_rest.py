"""Where nothing happens, nothing is written: counted by the API server's audit log."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import anyio
import pytest
from clusters import OPERATOR, OPERATOR_NAMESPACE
from jobs import Place
from operators import operator_settings, running_operator
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.kinds import EVENT, LEASE
from torchctl.runtime.settings import ElectionSettings
from torchctl.testing.audit import AuditedRequest, read_audit_log
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import ScriptedKubelet
from torchctl.testing.script import Play, Script, named

REST_S = float(os.environ.get("TORCHCTL_REST_SECONDS", "10"))
"""How long nothing may be written."""

OF_EACH, IN_FULL = 50, 10
"""Finished and running jobs; and how many of each have every child that a job can have."""

QUIET_S = 3.0
CLAIM = {"enabled": True, "size": "1Gi", "accessModes": ["ReadWriteMany"]}
SETTINGS = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"}}
STORE = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1024Mi"}}},
}
RESOURCES = [
    {"name": "settings", "nameMode": "prefix", "template": SETTINGS},
    {"name": "cache", "template": STORE},
]
GIT = {"source": "git", "url": "https://git.example.com/team/code.git"}


@pytest.fixture(autouse=True)
def script(kubelet: ScriptedKubelet) -> Iterator[None]:
    before, kubelet.script = kubelet.script, Script().when(named("^running-.*-0-"), Play(run_s=None))
    yield
    kubelet.script = before


@pytest.mark.timeout(600)
async def test_finished_and_running_jobs_cost_no_writes_but_the_lease(
    control_plane: ControlPlane,
    admin: Client,
    namespace: str,
    operator_account: Connection,
    report: Callable[[str], None],
) -> None:
    place = Place(admin, namespace)
    await place.queue()
    await place.queue(
        "full",
        kaiQueue=namespace,
        nodeResources={"gpus": 1},
        resources=RESOURCES,
        storage={"workspace": CLAIM, "checkpoints": CLAIM},
    )
    settings = operator_settings(namespace)
    runtime = replace(settings.runtime, election=ElectionSettings(lease_namespace=OPERATOR_NAMESPACE))
    async with running_operator(operator_account, namespace, replace(settings, runtime=runtime)):
        for number in range(OF_EACH):
            full = {"jobQueue": "full", "volumes": {"workspace": GIT}} if number < IN_FULL else {}
            for kind in ("finished", "running"):
                await place.job(f"{kind}-{number}", numNodes=1, **full)
        await until(lambda: _is_done(admin, namespace), timeout_s=240)
        await until(lambda: _nothing_written(control_plane, namespace), timeout_s=60)
        requests = await _requests_of(control_plane, REST_S)

    by_operator = [request for request in requests if request.user.username == OPERATOR]
    writes = Counter(_resource(request) for request in by_operator if request.is_write)
    # Kubernetes' own components repeat their Events of earlier (events.k8s.io series) whatever anybody does.
    touched = [
        request
        for request in requests
        if request.is_write and _namespace(request) == namespace and _resource(request) != EVENT.plural
    ]
    report(
        f"at rest: {2 * OF_EACH} jobs, {REST_S:g} s, writes {dict(writes)}, "
        f"reads {sum(not request.is_write for request in by_operator)}"
    )
    assert set(writes) == {LEASE.plural}
    assert touched == []


async def _is_done(admin: Client, namespace: str) -> bool:
    """Whether every job is where it is to stay, and its queue knows."""
    jobs = await admin.list(TORCHRUN_JOB, namespace=namespace)
    queues = await admin.list(TORCHRUN_QUEUE, namespace=namespace)
    phases = Counter(job.status.phase for job in jobs)
    known = [queue.status.jobs for queue in queues if queue.status.jobs is not None]
    return (
        phases == {Phase.SUCCEEDED: OF_EACH, Phase.RUNNING: OF_EACH}
        and sum(counts.running for counts in known) == OF_EACH
        and sum(counts.succeeded for counts in known) == OF_EACH
    )


async def _nothing_written(cluster: ControlPlane, namespace: str) -> bool:
    """Whether the namespace comes to rest: Events and statuses lag behind what they tell of."""
    requests = await _requests_of(cluster, QUIET_S)
    return not any(request.is_write and _namespace(request) == namespace for request in requests)


async def _requests_of(cluster: ControlPlane, seconds: float) -> list[AuditedRequest]:
    """What the API server is asked from now on, for that long."""
    start = cluster.audit_log.stat().st_size
    await anyio.sleep(seconds)  # the time is what is being tested
    return [*read_audit_log(cluster.audit_log, start)]


def _namespace(request: AuditedRequest) -> str:
    return request.object_ref.namespace if request.object_ref is not None else ""


def _resource(request: AuditedRequest) -> str:
    return request.object_ref.resource if request.object_ref is not None else request.request_uri
