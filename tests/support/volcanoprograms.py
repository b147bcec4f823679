"""Volcano's own programs against a control plane. Who has their source builds them; nothing of them is here."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from clusters import established

from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.process import ManagedProcess

__all__ = ["MISSING", "VOLCANO_BIN", "running_volcano"]

VOLCANO_BIN = "TORCHCTL_VOLCANO_BIN"
"""Environment variable: a directory with Volcano's programs, and in `crds` the CRDs of the same version."""

NEEDED = ("vc-controller-manager", "vc-scheduler")
UNREACHABLE = "/nonexistent"
CONFIGURATION = """\
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: overcommit}, {name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}, {name: binpack}]
"""
"""The plugins that Volcano ships, and preemption, which it ships switched off. So one pod may be taken of a gang."""


def _directory() -> Path:
    return Path(os.environ.get(VOLCANO_BIN) or UNREACHABLE)


def _missing() -> str:
    if not os.environ.get(VOLCANO_BIN):
        return f"{VOLCANO_BIN} is not set: docs/testing.md says how to run Volcano's own programs"
    lacking = [name for name in (*NEEDED, "crds") if not (_directory() / name).exists()]
    return f"{_directory()} has no {', '.join(lacking)}" if lacking else ""


MISSING = _missing()
"""Why Volcano's programs cannot be run here; empty where they can."""


def _process(cluster: ControlPlane, program: str, *arguments: str) -> ManagedProcess:
    argv = [str(_directory() / program), f"--kubeconfig={cluster.admin_kubeconfig}", "--leader-elect=false", *arguments]
    return ManagedProcess(program, argv, cluster.logs / f"{program}.log", dict(os.environ))


@asynccontextmanager
async def running_volcano(cluster: ControlPlane, directory: Path) -> AsyncIterator[None]:
    """Scheduler and controllers, as administrator and without webhooks; Volcano's kinds are installed first.

    Args:
        directory: Where the scheduler's configuration is written.
    """
    await cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(_directory() / "crds"))
    await established(cluster)
    configuration = directory / "volcano-scheduler.conf"
    configuration.write_text(CONFIGURATION)
    scheduling = (f"--scheduler-conf={configuration}", "--cache-dumper=false")
    processes = [
        _process(cluster, "vc-controller-manager"),
        _process(cluster, "vc-scheduler", *scheduling),
    ]
    try:
        for process in processes:
            process.start()
        yield
        for process in processes:
            assert process.running, f"{process.name} ended with status {process.returncode}:\n{process.tail(30)}"
    finally:
        for process in processes:
            process.kill()
