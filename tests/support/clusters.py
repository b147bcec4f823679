"""What a cluster has before anything of a test: our kinds and rights, KAI's kinds."""

import json
import os
from contextlib import suppress
from pathlib import Path

from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import JOB, POD
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.errors import NotFound
from torchctl.testing.controlplane import CommandFailed, ControlPlane

__all__ = [
    "CONFIG",
    "KAI_CRDS",
    "OPERATOR",
    "OPERATOR_NAMESPACE",
    "clear",
    "established",
    "install",
    "install_kai",
    "quota_noted",
]

CONFIG = Path(__file__).resolve().parents[2] / "config"
OPERATOR_NAMESPACE = "torchctl-system"
OPERATOR = f"system:serviceaccount:{OPERATOR_NAMESPACE}:torchctl"
"""The operator's account, as the audit log names it."""

KAI_CRDS = "TORCHCTL_KAI_CRDS"
"""Environment variable: a directory with the CRDs that KAI-Scheduler ships."""

MINIMAL_KAI_CRDS = Path(__file__).parent / "kai"
DAY_S = 86_400
"""Nobody renews the operator's token here, and a slow machine has hours of work with it."""
ESTABLISHED = ("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")


async def install(cluster: ControlPlane) -> Connection:
    """CRDs, rights and policies from config/; returns the operator's service account, which they are given to."""
    await cluster.kubectl("apply", "-f", str(CONFIG / "manager" / "namespace.yaml"))
    for part in ("crd", "rbac", "admission"):
        await cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(CONFIG / part))
    await established(cluster)
    return await cluster.service_account_connection(OPERATOR_NAMESPACE, "torchctl", DAY_S)


async def established(cluster: ControlPlane) -> None:
    """Returns once all CRDs are served. Of a new CRD without any condition `kubectl wait` says that it is broken."""

    async def look() -> bool:
        try:
            await cluster.kubectl(*ESTABLISHED)
        except CommandFailed as failure:
            if "accessor error" not in failure.stderr:
                raise
            return False
        return True

    await until(look)


async def quota_noted(cluster: ControlPlane, namespace: str, name: str) -> None:
    """Returns once a quota holds as it was written: until then kube-apiserver goes by what it was, or refuses all."""

    async def look() -> bool:
        quota = json.loads(await cluster.kubectl("get", "quota", name, f"--namespace={namespace}", "-ojson"))
        return bool(quota["spec"]["hard"] == quota.get("status", {}).get("hard"))

    await until(look)


async def install_kai(cluster: ControlPlane) -> None:
    """KAI's kinds, without KAI: the real ones where `TORCHCTL_KAI_CRDS` says where they are."""
    directory = os.environ.get(KAI_CRDS) or str(MINIMAL_KAI_CRDS)
    await cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", directory)
    await established(cluster)


async def clear(admin: Client, namespace: str) -> None:
    """Deletes jobs, queues and pods of a namespace, unwaited, and keeps the namespace.

    To delete it takes 74 requests of kube-controller-manager, or 154; and if a finalizer is left in it, whose owner is
    gone with the test, as many again every few seconds until the end: half of all requests of a run.
    """
    for kind in (TORCHRUN_JOB, TORCHRUN_QUEUE, JOB, POD):
        with suppress(NotFound):  # a test that needs none of our kinds has not installed them
            await admin.delete_collection(kind, namespace=namespace)
