"""`make demo`: one TorchrunJob from submission to Succeeded, on a real control plane of its own.

etcd, kube-apiserver, kube-controller-manager and kube-scheduler are real, and so is the operator: a process of its
own under the service account that config/ gives it. Only the nodes are played, by a scripted kubelet. Everything
listens on loopback and is gone at the end.
"""

import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from rich.console import Console
from rich.table import Table

from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.phases import TERMINAL, Phase
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.cache.informer import Change
from torchctl.runtime.client.client import Client
from torchctl.runtime.kinds import Condition
from torchctl.runtime.logging import configure
from torchctl.runtime.settings import LogSettings
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import ScriptedKubelet

ROOT = Path(__file__).resolve().parent.parent
MANIFEST = ROOT / "examples" / "demo" / "demo.yaml"
IMAGE = "docker.io/torchctl/torchctl:dev"
DEADLINE_S = 120.0

console = Console(width=None if sys.stdout.isatty() else 120)


async def main() -> int:
    configure(LogSettings(level="warning"))
    began = time.monotonic()
    console.print("Starting a control plane ...")
    async with ControlPlane() as cluster, cluster.client() as admin:
        console.print(f"ready after {time.monotonic() - began:.1f} s; installing CRDs, rights and policies")
        await cluster.kubectl("apply", "-f", str(ROOT / "config" / "manager" / "namespace.yaml"))
        for part in ("crd", "rbac", "admission"):
            await cluster.kubectl("apply", "-k", str(ROOT / "config" / part))
        async with ScriptedKubelet(admin), _operator(cluster):
            console.print(f"Submitting {MANIFEST.relative_to(ROOT)}\n")
            await cluster.kubectl("apply", "-f", str(MANIFEST))
            job = await _follow(admin)
            await _report(cluster, job)
    console.print(f"\n[bold]{job.status.phase}[/] after {time.monotonic() - began:.1f} s, start-up included.")
    return 0 if job.status.phase == Phase.SUCCEEDED else 1


@asynccontextmanager
async def _operator(cluster: ControlPlane) -> AsyncIterator[None]:
    """`torchctl run`, as its own process, with the rights that config/rbac gives it and no others."""
    kubeconfig = await cluster.service_account_kubeconfig("torchctl-system", "torchctl")
    command = [sys.executable, "-m", "torchctl", "run", "--kubeconfig", str(kubeconfig), "--image", IMAGE]
    command += ["--lease-namespace", "torchctl-system", "--bind-address", "127.0.0.1"]
    command += ["--metrics-port", "0", "--health-port", "0"]
    with (cluster.logs / "torchctl.log").open("wb") as log:
        process = await anyio.open_process(command, stdout=log, stderr=log)
        try:
            yield
            if process.returncode is not None:
                said = await anyio.Path(log.name).read_text()
                raise SystemExit(f"the operator ended with status {process.returncode}:\n{said}")
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


class _Phases:
    """Prints a line for each phase that the job enters, and lets somebody wait for the last."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.phase = ""
        self.job: TorchrunJob | None = None
        self.ended = anyio.Event()

    def on_event(self, change: Change[TorchrunJob]) -> None:
        job = change.new
        if job is None or job.status.phase in ("", self.phase):
            return
        self.phase, self.job = job.status.phase, job
        why = _deciding(job).message
        elapsed_s = time.monotonic() - self.began
        console.print(f"  {elapsed_s:5.2f} s  [bold]{self.phase:<10}[/] {job.status.workers_status:<13} {why}")
        if self.phase in TERMINAL:
            self.ended.set()


def _deciding(job: TorchrunJob) -> Condition:
    """The condition that the phase stands for: the first step that is not done, or how the job ended."""
    ended = [condition for condition in job.status.conditions if condition.type in ("Complete", "Failed")]
    steps = [
        condition for condition in job.status.conditions if condition not in ended and condition.type != "Suspended"
    ]
    return next(
        (condition for condition in ended if condition.status == "True"),
        next((step for step in steps if step.status != "True"), steps[-1]),
    )


async def _follow(admin: Client) -> TorchrunJob:
    cache, phases = Cache(admin), _Phases()
    cache.register(TORCHRUN_JOB).add_handler(phases)
    async with anyio.create_task_group() as tasks:
        await tasks.start(cache.run)
        with anyio.fail_after(DEADLINE_S):
            await phases.ended.wait()
        tasks.cancel_scope.cancel()
    assert phases.job is not None
    return phases.job


async def _report(cluster: ControlPlane, job: TorchrunJob) -> None:
    conditions = Table("Condition", "Status", "Reason", "Message", title=f"\nTorchrunJob {job.metadata.name}")
    for condition in job.status.conditions:
        conditions.add_row(condition.type, condition.status, condition.reason, condition.message)
    console.print(conditions)
    # The queue's counts follow its jobs within a second.
    await cluster.kubectl("wait", "trq", "--all", "--for=jsonpath={.status.jobs.running}=0", "--timeout=10s")
    selector = f"torchrun.ai/job-name={job.metadata.name}"
    children = ("get", "pvc,pods,services,jobs,controllerrevisions", "-l", selector)
    for command in (children, ("get", "trj,trq")):
        console.print(f"\n$ kubectl {' '.join(command)}", highlight=False)
        console.print(await cluster.kubectl(*command), highlight=False, end="", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(anyio.run(main))
