"""A control plane with our kinds on it, and the operator beside it as a process of its own."""

import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.runtime.client.client import Client
from torchctl.runtime.kinds import LEASE, Kind
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.nodekinds import NODE

__all__ = ["NAMESPACE", "Cluster", "OperatorProcess", "cluster", "job_body", "operator"]

CONFIG = Path(__file__).resolve().parent.parent / "config"
IMAGE = "registry.example.com/torchctl:bench"
SYSTEM, ACCOUNT = "torchctl-system", "torchctl"
NAMESPACE = "bench"
READY_S = 60.0

NAMESPACES = Kind("", "v1", "Namespace", "namespaces", NODE.type, namespaced=False)
"""Only its metadata is read, so any type with metadata will do."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Attributes: `plane`, the control plane; `admin`, a client with all rights."""

    plane: ControlPlane
    admin: Client


@dataclass(frozen=True, slots=True)
class OperatorProcess:
    pid: int

    def rss(self) -> int:
        """Bytes of resident memory now, shared pages included."""
        return _status(self.pid, "VmRSS")

    def cpu_s(self) -> float:
        """Seconds of CPU that it used so far, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100


@asynccontextmanager
async def cluster() -> AsyncGenerator[Cluster]:
    """All components, the CRDs and rights of config/, a namespace and two queues: `plain`, and `code` with a claim."""
    async with ControlPlane() as plane, plane.client() as admin:
        await plane.kubectl("apply", "-f", str(CONFIG / "manager" / "namespace.yaml"))
        for part in ("crd", "rbac", "admission"):
            await plane.kubectl("apply", "--server-side", "-k", str(CONFIG / part))
        await plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        await admin.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        workspace = {"enabled": True, "size": "1Gi", "accessModes": ["ReadWriteMany"]}
        await admin.create(TORCHRUN_QUEUE, _queue("plain", {}))
        await admin.create(TORCHRUN_QUEUE, _queue("code", {"storage": {"workspace": workspace}}))
        yield Cluster(plane, admin)


@asynccontextmanager
async def operator(cluster: Cluster, *arguments: str) -> AsyncGenerator[OperatorProcess]:
    """`torchctl run` with the rights of config/rbac, leading; SIGTERM at the end."""
    kubeconfig = await cluster.plane.service_account_kubeconfig(SYSTEM, ACCOUNT)
    command = [sys.executable, "-m", "torchctl", "run", "--kubeconfig", str(kubeconfig), "--image", IMAGE]
    command += ["--lease-namespace", SYSTEM, "--metrics-port", "0", "--health-port", "0"]
    command += ["--bind-address", "127.0.0.1", "--log-format", "json", *arguments]
    with (cluster.plane.logs / "torchctl.log").open("ab") as log:
        process = await anyio.open_process(command, stdout=log, stderr=log)
        try:
            await _leading(cluster, Path(log.name))
            yield OperatorProcess(process.pid)
        finally:
            with anyio.CancelScope(shield=True):
                if process.returncode is None:
                    process.terminate()
                await process.wait()


def job_body(name: str, *, queue: str = "plain", nodes: int = 1) -> dict[str, object]:
    """A job of `nodes` pods; of queue `code` it fetches a workspace from git first."""
    workspace = {"source": "git", "url": "https://git.example.com/team/training.git", "ref": "main"}
    return {
        "apiVersion": "torchrun.ai/v1alpha1",
        "kind": "TorchrunJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "jobQueue": queue,
            "numNodes": nodes,
            "command": "python train.py",
            **({"volumes": {"workspace": workspace}} if queue == "code" else {}),
        },
    }


def _queue(name: str, spec: dict[str, object]) -> dict[str, object]:
    return {
        "apiVersion": "torchrun.ai/v1alpha1",
        "kind": "TorchrunQueue",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"image": "registry.example.com/trainer:1", **spec},
    }


async def _leading(cluster: Cluster, log: Path) -> None:
    """Waits until the operator holds its Lease: by then its caches are in sync, and it works."""
    began = time.monotonic()
    while time.monotonic() - began < READY_S:
        leases = await cluster.admin.list(LEASE, namespace=SYSTEM)
        if any(lease.spec.holder_identity for lease in leases):
            return
        await anyio.sleep(0.1)
    said = await anyio.Path(log).read_text()
    raise SystemExit(f"the operator does not lead after {READY_S:.0f} s:\n{said[-4000:]}")


def _status(pid: int, name: str) -> int:
    """A size in bytes from /proc/<pid>/status."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)
