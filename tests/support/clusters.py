"""What a cluster has before anything of a test: our kinds and rights, the kinds of KAI, Volcano and Kueue."""

import json
import os
import re
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import JOB, POD
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.errors import NotFound
from torchctl.runtime.kinds import Kind, PartialObject
from torchctl.testing.controlplane import CommandFailed, ControlPlane, Options

__all__ = [
    "CONFIG",
    "KAI_CRDS",
    "KUEUE_CRDS",
    "OPERATOR",
    "OPERATOR_NAMESPACE",
    "VOLCANO_CRDS",
    "WITHOUT_ENDPOINTS",
    "clear",
    "established",
    "install",
    "install_kai",
    "install_kueue",
    "install_volcano",
    "known",
    "quota_noted",
]

CONFIG = Path(__file__).resolve().parents[2] / "config"
OPERATOR_NAMESPACE = "torchctl-system"
OPERATOR = f"system:serviceaccount:{OPERATOR_NAMESPACE}:torchctl"
"""The operator's account, as the audit log names it."""

KAI_CRDS = "TORCHCTL_KAI_CRDS"
"""Environment variable: a directory with the CRDs that KAI-Scheduler ships."""

VOLCANO_CRDS = "TORCHCTL_VOLCANO_CRDS"
"""The same of Volcano."""

KUEUE_CRDS = "TORCHCTL_KUEUE_CRDS"
"""The same of Kueue."""

WITHOUT_ENDPOINTS = Options(
    flags={
        "kube-controller-manager": (
            "--controllers=*,-endpoints-controller,-endpointslice-controller,-endpointslice-mirroring-controller",
        )
    }
)
"""Options of a control plane on which nobody connects to a Service: a tenth of all writes were endpoints."""

MINIMAL_KAI_CRDS = Path(__file__).parent / "kai"
MINIMAL_VOLCANO_CRDS = Path(__file__).parent / "volcano"
MINIMAL_KUEUE_CRDS = Path(__file__).parent / "kueue"
DAY_S = 86_400
"""Nobody renews the operator's token here, and a slow machine has hours of work with it."""
ESTABLISHED = ("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")


async def install(cluster: ControlPlane) -> Connection:
    """CRDs, rights and policies from config/; returns the operator's service account, which they are given to."""
    await cluster.kubectl("apply", "-f", str(CONFIG / "manager" / "namespace.yaml"))
    for part in ("crd", "rbac", "admission"):
        await cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(CONFIG / part))
    await established(cluster)
    await known(cluster, "trj", "trq")
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


async def known(cluster: ControlPlane, *names: str) -> None:
    """Returns once kubectl finds kinds by these names: seconds after they are established, on a busy machine."""
    for name in names:
        await until(partial(_is_known, cluster, name))


async def _is_known(cluster: ControlPlane, name: str) -> bool:
    try:
        await cluster.kubectl("explain", name)
    except CommandFailed as failure:
        if not re.search("doesn't have a resource type|couldn't find resource", failure.stderr):
            raise
        return False
    return True


async def quota_noted(cluster: ControlPlane, namespace: str, name: str) -> None:
    """Returns once a quota holds as it was written: until then kube-apiserver goes by what it was, or refuses all."""

    async def look() -> bool:
        quota = json.loads(await cluster.kubectl("get", "quota", name, f"--namespace={namespace}", "-ojson"))
        return bool(quota["spec"]["hard"] == quota.get("status", {}).get("hard"))

    await until(look)


async def install_kai(cluster: ControlPlane) -> None:
    """KAI's kinds, without KAI: the real ones where `TORCHCTL_KAI_CRDS` says where they are."""
    await _install_kinds(cluster, os.environ.get(KAI_CRDS) or str(MINIMAL_KAI_CRDS))


async def install_volcano(cluster: ControlPlane) -> None:
    """Volcano's kinds, without Volcano: the real ones where `TORCHCTL_VOLCANO_CRDS` says where they are."""
    await _install_kinds(cluster, os.environ.get(VOLCANO_CRDS) or str(MINIMAL_VOLCANO_CRDS))


async def install_kueue(cluster: ControlPlane) -> None:
    """Kueue's kinds, without Kueue: the real ones where `TORCHCTL_KUEUE_CRDS` says where they are."""
    await _install_kinds(cluster, os.environ.get(KUEUE_CRDS) or str(MINIMAL_KUEUE_CRDS))


async def _install_kinds(cluster: ControlPlane, directory: str) -> None:
    await cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", directory)
    await established(cluster)


_CLEARED: tuple[Kind[Any], ...] = (
    TORCHRUN_JOB,
    TORCHRUN_QUEUE,
    JOB,
    *(
        Kind("apps", "v1", name, f"{name.lower()}s", PartialObject)
        for name in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")
    ),
    POD,
)
"""Pods come last: whoever made one makes it again."""


async def clear(admin: Client, namespace: str) -> None:
    """Deletes what makes pods in a namespace, and its pods, unwaited; the namespace is kept.

    To delete it takes 74 requests of kube-controller-manager, or 154; and if a finalizer is left in it, whose owner is
    gone with the test, as many again every few seconds until the end: half of all requests of a run.
    """
    for kind in _CLEARED:
        with suppress(NotFound):  # a test that needs none of our kinds has not installed them
            await admin.delete_collection(kind, namespace=namespace)
