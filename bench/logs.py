"""`kubectl torchrun logs -f` of 64 workers at once: its memory, CPU time and requests, as a process of its own."""

import asyncio
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from bench.cluster import NAMESPACE, Cluster, OperatorProcess, cluster, job_body
from bench.figures import Figure
from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.labels import ATTEMPT, job_labels
from torchctl.runtime.kinds import Key
from torchctl.testing.audit import read_audit_log
from torchctl.testing.kubelet import Play, Script, ScriptedKubelet, default_nodes
from torchctl.testing.logfiles import LogFile
from torchctl.testing.nodekinds import POD

__all__ = ["measure"]

WORKERS = 64
LINES = 5_000
TEXT = "step {number:08d} loss 0.123456 lr 3.0e-04 tokens/s 123456.7 grad_norm 0.98765 mem 71.2GiB " + "x" * 20
STALL_S = 10.0
MIB = 2**20
AGENT = "kubectl-torchrun"


async def measure() -> list[Figure]:
    """Each worker has written 5,000 lines (of 120 characters) when the follower starts, and ends then.

    First somebody reads all of it at once, then nobody takes anything for ten seconds and then all of it.
    """
    figures = []
    script = Script(fallback=lambda pod: Play(run_s=None))
    async with cluster() as server, ScriptedKubelet(server.admin, script=script, nodes=default_nodes(8)) as kubelet:
        for name, stall_s in (("read at once", 0.0), ("not read for 10 s", STALL_S)):
            figures += await _followed(server, kubelet, name.replace(" ", "-"), name, stall_s)
    return figures


async def _followed(server: Cluster, kubelet: ScriptedKubelet, name: str, what: str, stall_s: float) -> list[Figure]:
    job = await server.admin.create(TORCHRUN_JOB, job_body(name))
    await _status(server, name, phase="Running")
    files = [await _worker(server, kubelet, job, index) for index in range(WORKERS)]
    await _all_run(server, name)
    offset, began = server.plane.audit_log.stat().st_size, time.monotonic()
    follower = await _start(server, name)
    process = OperatorProcess(follower.pid)
    peaks: list[float] = []
    sampling = asyncio.create_task(_sample(process, peaks))
    await asyncio.sleep(stall_s)
    assert follower.stdout is not None
    lines, cpu_s = 0, 0.0
    while lines < WORKERS * LINES and (data := await follower.stdout.read(MIB)):
        lines += data.count(b"\n")
        cpu_s = process.cpu_s()
    for file in files:
        file.end()
    await _status(server, name, phase="Succeeded")
    lines += (await follower.stdout.read()).count(b"\n")
    status = await follower.wait()
    seconds = time.monotonic() - began
    sampling.cancel()
    if (status, lines) != (0, WORKERS * LINES):
        raise SystemExit(f"the follower ended with {status} after {lines} lines")
    asked = [each for each in read_audit_log(server.plane.audit_log, offset) if each.user_agent == AGENT]
    verbs: dict[str, int] = {}
    for each in asked:
        resource = each.object_ref.resource if each.object_ref else ""
        kind = f"{each.verb} {resource}/{each.object_ref.subresource if each.object_ref else ''}".rstrip("/")
        verbs[kind] = verbs.get(kind, 0) + 1
    detail = {"cpu_s": cpu_s, "seconds": seconds, "lines": lines, "requests": verbs, "samples": len(peaks)}
    case = f"logs -f of {WORKERS} workers, {what}"
    return [
        Figure(bench="logs", name=f"peak RSS, {case}", value=max(peaks) / MIB, unit="MiB", detail=detail),
        Figure(bench="logs", name=f"requests, {case}", value=len(asked), unit="requests", detail=detail),
        Figure(bench="logs", name=f"CPU a million lines, {case}", value=cpu_s / lines * 1e6, unit="s", detail=detail),
    ]


async def _worker(server: Cluster, kubelet: ScriptedKubelet, job: TorchrunJob, index: int) -> LogFile:
    meta = job.metadata
    name = f"{meta.name}-{index}"
    values = {"PET_NNODES": str(WORKERS), "PET_NPROC_PER_NODE": "1", "PET_RDZV_BACKEND": "static"}
    env = [{"name": key, "value": value} for key, value in values.items()]
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": job_labels(meta.name, meta.uid, "plain", "worker") | {ATTEMPT: "0"},
            "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
        },
        "spec": {"restartPolicy": "Never", "containers": [{"name": "trainer", "image": "trainer:1", "env": env}]},
    }
    file = kubelet.logs[Key(NAMESPACE, name)]
    for number in range(LINES):
        file.write(f"{TEXT.format(number=number)}\n", 1_700_000_000_000_000_000 + number * 10_000_000 + index)
    await server.admin.create(POD, body)
    return file


async def _all_run(server: Cluster, job: str) -> None:
    labels = f"torchrun.ai/job-name={job}"
    while True:
        pods = await server.admin.list(POD, namespace=NAMESPACE, labels=labels)
        if sum(pod.status.phase == "Running" for pod in pods) == WORKERS:
            return
        await asyncio.sleep(0.2)


async def _status(server: Cluster, job: str, **status: str) -> None:
    await server.admin.merge_patch(TORCHRUN_JOB, job, {"status": status}, namespace=NAMESPACE, subresource="status")


async def _start(server: Cluster, job: str) -> Process:
    plugin = str(Path(sys.executable).with_name("kubectl-torchrun"))
    arguments = ["logs", job, "-f", f"--namespace={NAMESPACE}", f"--kubeconfig={server.plane.admin_kubeconfig}"]
    return await asyncio.create_subprocess_exec(plugin, *arguments, stdout=PIPE, env=dict(os.environ), limit=MIB)


async def _sample(process: OperatorProcess, found: list[float]) -> None:
    while True:
        found.append(process.rss())
        await asyncio.sleep(0.1)
