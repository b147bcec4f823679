"""Kueue's own manager against a control plane. Who has its source builds it; nothing of it is here."""

import base64
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from clusters import established
from waiting import until

from torchctl.runtime.client.config import Connection
from torchctl.testing.certificates import Authority
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.ports import reserve
from torchctl.testing.process import ManagedProcess

__all__ = ["KUEUE_BIN", "MISSING", "Kueue", "running_kueue"]

KUEUE_BIN = "TORCHCTL_KUEUE_BIN"
"""Environment variable: a directory with Kueue's manager, and in `crds` and `webhook` what it is installed with."""

NEEDED = ("kueue", "crds", "webhook")
UNREACHABLE = "/nonexistent"
NAMESPACE = "kueue-system"
LOOPBACK = "127.0.0.1"
WEBHOOK_CERTIFICATES = "/webhook"
CERTIFICATES = (WEBHOOK_CERTIFICATES, "/etc/kueue/metrics/certs", "/visibility")
"""Where the manager looks for a certificate. The last two paths are compiled in."""


def _directory() -> Path:
    return Path(os.environ.get(KUEUE_BIN) or UNREACHABLE)


def _missing() -> str:
    if not os.environ.get(KUEUE_BIN):
        return f"{KUEUE_BIN} is not set: docs/testing.md says how to run Kueue's own manager"
    lacking = [name for name in NEEDED if not (_directory() / name).exists()]
    return f"{_directory()} has no {', '.join(lacking)}" if lacking else ""


MISSING = _missing()
"""Why Kueue's manager cannot be run here; empty where it can."""


def _configuration(webhook: int, health: int, visibility: int) -> dict[str, Any]:
    """What Kueue ships, as far as the cluster has the kinds, on ports of our own."""
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": LOOPBACK, "port": webhook, "certDir": WEBHOOK_CERTIFICATES},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "visibilityServer": {"bindAddress": LOOPBACK, "bindPort": visibility},
        "clientConnection": {"qps": 300, "burst": 500},
        "integrations": {"frameworks": ["batch/job", "pod"]},
    }


class Kueue:
    """The manager, and the webhooks that ask it.

    It runs in a root directory of its own, because two of the paths of its certificates cannot be chosen.
    """

    def __init__(self, cluster: ControlPlane, root: Path) -> None:
        self._cluster = cluster
        self._root = root
        self._authority = Authority("kueue-testing")
        with reserve(3) as ports:
            self._webhook, self._health, self._visibility = ports
        self._configuration = _configuration(*ports)
        others = () if os.geteuid() == 0 else ("--map-root-user",)
        argv = [shutil.which("unshare") or "unshare", *others, f"--root={root}", "--wd=/"]
        argv += ["/kueue", "--config=/config.yaml", "--kubeconfig=/kubeconfig"]
        self._process = ManagedProcess("kueue", argv, cluster.logs / "kueue.log", {})

    async def install(self) -> None:
        """Kueue's kinds and namespace, and the files of the root directory."""
        await self._cluster.kubectl("apply", "--server-side", "-f", str((_directory() / "crds").resolve()))
        await established(self._cluster)
        await self._cluster.kubectl("create", "namespace", NAMESPACE)
        shutil.copy(_directory() / "kueue", self._root / "kueue")
        pair = self._authority.server([LOOPBACK])
        for path in CERTIFICATES:
            directory = self._root / path.removeprefix("/")
            directory.mkdir(parents=True)
            (directory / "tls.crt").write_bytes(pair.certificate)
            (directory / "tls.key").write_bytes(pair.key)
        (self._root / "config.yaml").write_text(yaml.safe_dump(self._configuration))
        flat = await self._cluster.kubectl("config", "view", "--raw", "--flatten")
        (self._root / "kubeconfig").write_text(flat)

    async def register_webhooks(self) -> None:
        """The shipped configurations, which ask the manager at its port and not through a Service."""
        shipped = yaml.safe_load_all(
            await self._cluster.kubectl("kustomize", str((_directory() / "webhook").resolve()))
        )
        for configuration in shipped:
            if configuration["kind"].endswith("WebhookConfiguration"):
                self._readdress(configuration)
                await self._cluster.kubectl("apply", "--server-side", "-f-", input=yaml.safe_dump(configuration))

    def _readdress(self, configuration: dict[str, Any]) -> None:
        bundle = base64.b64encode(self._authority.certificate).decode()
        for webhook in configuration["webhooks"]:
            url = f"https://{LOOPBACK}:{self._webhook}{webhook['clientConfig']['service']['path']}"
            webhook["clientConfig"] = {"url": url, "caBundle": bundle}

    async def start(self) -> None:
        """Starts the manager and returns once its webhooks answer."""
        self._process.start()
        await until(self._is_ready, timeout_s=60)

    async def stop(self) -> None:
        """Ends the manager. The webhooks stay registered, so whatever they are asked about is refused."""
        await self._process.stop()

    def kill(self) -> None:
        self._process.kill()

    def check(self) -> None:
        """Raises AssertionError with the end of the log if the manager has ended by itself."""
        process = self._process
        assert process.running, f"{process.name} ended with status {process.returncode}:\n{process.tail(30)}"

    @property
    def visibility(self) -> Connection:
        """To the server of places itself, which a cluster reaches by an APIService, as administrator."""
        known = self._cluster.connection()
        return replace(known, host=f"https://{LOOPBACK}:{self._visibility}", tls=replace(known.tls, verify=False))

    async def _is_ready(self) -> bool:
        self.check()
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://{LOOPBACK}:{self._health}/readyz") as answer,
            ):
                return answer.status == 200
        except aiohttp.ClientConnectionError:
            return False


@asynccontextmanager
async def running_kueue(cluster: ControlPlane, root: Path) -> AsyncIterator[Kueue]:
    """Kueue's manager as administrator, with its webhooks; its kinds are installed first.

    Args:
        root: An empty directory, which becomes the manager's root.
    """
    kueue = Kueue(cluster, root)
    await kueue.install()
    try:
        await kueue.start()
        await kueue.register_webhooks()
        yield kueue
        kueue.check()
    finally:
        kueue.kill()
