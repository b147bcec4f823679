"""The sync pods of a namespace, played by real receivers: what is sent to a job arrives, and its pod ends."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from torchctl.api.kube import POD, Pod
from torchctl.api.labels import ROLE, ROLE_SYNC
from torchctl.api.names import UPLOAD_PORT
from torchctl.runtime.client.client import Client
from torchctl.runtime.kinds import Key
from torchctl.testing.kubelet import ScriptedKubelet
from torchctl.testing.ports import reserve
from torchctl.workspace.core import Limits
from torchctl.workspace.receive import receive

__all__ = ["receiving_pods"]

PERIOD_S = 0.1
WAIT_S = 60.0


@asynccontextmanager
async def receiving_pods(admin: Client, kubelet: ScriptedKubelet, namespace: str, claims: Path) -> AsyncIterator[None]:
    """Runs a receiver for each sync pod of the namespace that runs; each has a directory of its own below `claims`."""
    begun: set[str] = set()
    async with anyio.create_task_group() as tasks:

        async def look() -> None:
            while True:
                pods = await admin.list(POD, namespace=namespace, labels=f"{ROLE}={ROLE_SYNC}")
                for pod in pods:
                    if pod.status.phase == "Running" and pod.metadata.uid not in begun:
                        begun.add(pod.metadata.uid)
                        tasks.start_soon(_receive, kubelet, pod, claims / pod.metadata.uid)
                await anyio.sleep(PERIOD_S)

        tasks.start_soon(look)
        yield
        tasks.cancel_scope.cancel()


async def _receive(kubelet: ScriptedKubelet, pod: Pod, claim: Path) -> None:
    await anyio.Path(claim).mkdir(parents=True)
    key = Key(pod.metadata.namespace, pod.metadata.name)
    with reserve(1) as (port,):
        kubelet.ports.open[key, UPLOAD_PORT] = port
    await receive(claim, port=port, token=pod.metadata.uid, timeout_s=WAIT_S, limits=Limits())
    kubelet.end(key.namespace, key.name)
