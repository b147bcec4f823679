"""What one job costs the API server, by its own audit log: the operator's requests in each flow of its life."""

import time
from collections import Counter
from typing import Any

import anyio

from bench.cluster import NAMESPACE, Cluster, cluster, job_body, operator
from bench.figures import Figure
from bench.flows import FLOWS, SCRIPT
from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.phases import Phase
from torchctl.testing.audit import AuditedRequest, read_audit_log
from torchctl.testing.kubelet import ScriptedKubelet

__all__ = ["measure", "run_jobs"]

JOBS = 20
DEADLINE_S = 300.0
SETTLE_S = 3.0
SWIFT = ("--incident-settle", "1", "--restart-backoff", "1")
"""Nobody counts the seconds here."""

OPERATOR = "system:serviceaccount:torchctl-system:torchctl"


async def measure() -> list[Figure]:
    """Jobs of each flow, one after another."""
    figures = []
    async with cluster() as server, ScriptedKubelet(server.admin, script=SCRIPT) as kubelet, operator(server, *SWIFT):
        await run_jobs(server, ["warm-up"])
        for flow in FLOWS:
            offset = server.plane.audit_log.stat().st_size
            for number in range(JOBS):
                await flow.walk(server, kubelet, number)
            await anyio.sleep(SETTLE_S)  # what follows the end counts as well
            figures += _figures(flow.name, [r for r in read_audit_log(server.plane.audit_log, offset) if _is_ours(r)])
    return figures


async def run_jobs(server: Cluster, names: list[str], *, queue: str = "plain", nodes: int = 1) -> float:
    """Runs jobs to Succeeded, all at once; returns the seconds it took.

    Raises:
        SystemExit: One of them ended otherwise.
    """
    began = time.monotonic()
    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(server.admin.create, TORCHRUN_JOB, job_body(name, queue=queue, nodes=nodes))
    waiting = set(names)
    with anyio.fail_after(DEADLINE_S):
        while waiting:
            jobs = await server.admin.list(TORCHRUN_JOB, namespace=NAMESPACE)
            if failed := [job.metadata.name for job in jobs if job.status.phase == Phase.FAILED]:
                raise SystemExit(f"jobs failed: {failed}")
            waiting -= {job.metadata.name for job in jobs if job.status.phase == Phase.SUCCEEDED}
            await anyio.sleep(0.05 if len(names) == 1 else 1.0)
    return time.monotonic() - began


def _is_ours(request: AuditedRequest) -> bool:
    return request.user.username == OPERATOR and request.verb != "watch"


def _figures(what: str, requests: list[AuditedRequest]) -> list[Figure]:
    counts = Counter(_name(request) for request in requests)
    per_job = {name: count / JOBS for name, count in sorted(counts.items())}
    events = sum(value for name, value in per_job.items() if name.endswith(" events"))
    leases = sum(value for name, value in per_job.items() if name.endswith(" leases"))
    total = sum(per_job.values()) - events - leases
    writes = sum(value for name, value in per_job.items() if name.split()[0] not in ("get", "list")) - events - leases
    refused = Counter(f"{_name(r)} {r.response_status.code}" for r in requests if r.response_status.code >= 400)
    detail: dict[str, Any] = {
        "per_job": per_job,
        "refused": dict(refused),
        "jobs": JOBS,
        "leases_per_job_time": leases,
    }
    figures = {
        "requests per job": total,
        "of these, writes": writes,
        "of these, status of the job": per_job.get("patch torchrunjobs/status", 0.0),
        "of these, status of the queue": per_job.get("patch torchrunqueues/status", 0.0),
        "Events besides, per job": events,
    }
    return [
        Figure(
            bench="requests",
            name=f"{name}, {what}",
            value=value,
            unit="requests",
            detail=detail if name == "requests per job" else {},
        )
        for name, value in figures.items()
    ]


def _name(request: AuditedRequest) -> str:
    about = request.object_ref
    if about is None:
        return f"{request.verb} {request.request_uri.partition('?')[0]}"
    return f"{request.verb} {about.resource}" + (f"/{about.subresource}" if about.subresource else "")
