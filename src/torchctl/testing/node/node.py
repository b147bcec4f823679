"""One node as an object: namespaces, containerd, kubelet, kube-proxy, CoreDNS and a pool of volumes."""

import shutil
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import anyio.to_thread

from torchctl.testing.assets import Assets, ensure
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.node import configuration
from torchctl.testing.node.kubeconfig import portable
from torchctl.testing.node.leftovers import make_cgroups, new_directory, remove_cgroups, sweep
from torchctl.testing.node.namespaces import Namespaces
from torchctl.testing.node.network import Network, connect
from torchctl.testing.node.volumes import make_pool
from torchctl.testing.process import ManagedProcess
from torchctl.testing.programs import GROUPS

__all__ = ["LocalNode", "NodeFailed"]

_INSIDE = Namespaces.inside
_COREDNS_USER = "torchctl:coredns"
_START_TIMEOUT_S = 60.0
_POLL_S = 0.2


class NodeFailed(Exception):
    """A component of the node ended or was not ready in time; the message ends with its log."""

    def __init__(self, what: str, process: ManagedProcess) -> None:
        super().__init__(f"{what}; the end of {process.log}:\n{process.tail()}")


class LocalNode:
    """A node that is Ready when entered, and gone with all its processes, mounts and rules when left.

    Args:
        control_plane: running, with `network.control_plane_options()`.
        sandbox_image: the name of the image that keeps a pod's namespaces; any image whose command waits will do.
        images: OCI archives to load first; the sandbox image has to be in one of them.
        name: the node's name.
        volumes: the number of volumes of 100Gi in the default storage class.
        assets: kubelet, kube-proxy and coredns; None finds, fetches or builds them.

    Raises:
        NodeFailed: when entered, if a component does not get ready.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        network: Network,
        *,
        sandbox_image: str,
        images: Sequence[Path] = (),
        name: str = "node",
        volumes: int = 16,
        assets: Assets | None = None,
    ) -> None:
        self.control_plane = control_plane
        self.network = network
        self.name = name
        self._sandbox_image = sandbox_image
        self._images = tuple(images)
        self._volumes = volumes
        self._assets = assets
        self._processes: dict[str, ManagedProcess] = {}

    def __repr__(self) -> str:
        return f"<LocalNode {self.name} {list(self._processes.values())}>"

    async def __aenter__(self) -> Self:
        self._assets = self._assets or await anyio.to_thread.run_sync(partial(ensure, GROUPS["node"]))
        await anyio.to_thread.run_sync(sweep)
        self.directory = new_directory()
        self.logs.mkdir()
        self._namespaces = Namespaces(self.directory)
        try:
            await self._start()
        except BaseException as error:
            await self._end(error)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(error)

    @property
    def logs(self) -> Path:
        """A directory with one log per component; a pod's logs come from the API."""
        return self.directory / "logs"

    async def load_image(self, archive: Path) -> None:
        """Loads an OCI archive. Raises subprocess.CalledProcessError when containerd refuses it."""
        await self.run(*self._ctr, "images", "import", "--digests=false", str(archive))

    async def run(self, *command: str) -> str:
        """Runs a command inside the node and returns what it printed. Raises subprocess.CalledProcessError."""
        done = await anyio.run_process([*self._namespaces.enter, *command])
        return done.stdout.decode(errors="replace")

    async def start_dns(self) -> None:
        """Starts CoreDNS, as entering the node does. Raises NodeFailed."""
        await self._launch("coredns", self._dns_answers)

    async def stop_dns(self) -> None:
        """Stops CoreDNS: pods resolve no name until `start_dns`."""
        await self._processes["coredns"].stop(grace_s=0)

    @property
    def _ctr(self) -> Sequence[str]:
        return ("ctr", f"--address={_INSIDE}/containerd.sock", "--namespace=k8s.io")

    async def _start(self) -> None:
        await self._namespaces.start()
        make_cgroups(self.directory.name)
        await anyio.to_thread.run_sync(connect, self.network, self._namespaces.pid, self._namespaces.enter)
        self._write_configuration()
        self._processes = {name: self._process(name, argv) for name, argv in self._commands().items()}
        await self._launch("containerd", self._containerd_answers)
        async with anyio.create_task_group() as group:
            group.start_soon(self._create_objects)
            for archive in self._images:
                group.start_soon(self.load_image, archive)
            group.start_soon(self._launch, "kube-proxy", self._services_work)
            group.start_soon(self._launch, "coredns", self._dns_answers)
            group.start_soon(self._launch, "kubelet", self._node_ready)

    def _commands(self) -> dict[str, list[str]]:
        assert self._assets is not None, "the node has not been entered"
        program = self._assets.path
        return {
            "containerd": ["containerd", f"--config={_INSIDE}/containerd.toml"],
            "kubelet": [
                str(program("kubelet")),
                f"--config={_INSIDE}/kubelet.json",
                f"--kubeconfig={_INSIDE}/kubelet.kubeconfig",
                f"--root-dir={_INSIDE}/kubelet",
                f"--cert-dir={_INSIDE}/kubelet/pki",
                f"--hostname-override={self.name}",
                f"--node-ip={self.network.node}",
            ],
            "kube-proxy": [
                str(program("kube-proxy")),
                f"--config={_INSIDE}/kube-proxy.json",
                f"--hostname-override={self.name}",
            ],
            "coredns": [str(program("coredns")), f"-conf={_INSIDE}/Corefile"],
        }

    def _process(self, name: str, argv: Sequence[str]) -> ManagedProcess:
        return ManagedProcess(name, [*self._namespaces.enter, *argv], self.logs / f"{name}.log")

    def _write_configuration(self) -> None:
        files = {
            "containerd.toml": configuration.containerd(_INSIDE, self._sandbox_image),
            "cni/10-torchctl.conflist": configuration.cni(self.network, _INSIDE),
            "kubelet.json": configuration.kubelet(self.network, _INSIDE, self.directory.name),
            "kube-proxy.json": configuration.kube_proxy(self.network, _INSIDE),
            "Corefile": configuration.corefile(self.network, _INSIDE),
            "kubelet.kubeconfig": self._kubeconfig(f"system:node:{self.name}", ["system:nodes"]),
            "kube-proxy.kubeconfig": self._kubeconfig("system:kube-proxy"),
            "coredns.kubeconfig": self._kubeconfig(_COREDNS_USER),
        }
        for name, content in files.items():
            path = self.directory / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)

    def _kubeconfig(self, user: str, groups: Sequence[str] = ()) -> str:
        return portable(self.control_plane.kubeconfig(user, groups), self.network.host)

    async def _create_objects(self) -> None:
        volumes = make_pool(self.name, self.directory / "volumes", _INSIDE / "volumes", self._volumes, "100Gi")
        for objects in (configuration.coredns_role(_COREDNS_USER), volumes):
            await self.control_plane.kubectl("apply", "--server-side", "--filename=-", input=objects)

    async def _launch(self, name: str, ready: Callable[[], Awaitable[bool]]) -> None:
        process = self._processes[name]
        process.start()
        with anyio.move_on_after(_START_TIMEOUT_S):
            while not await ready():
                if not process.running:
                    raise NodeFailed(f"{name} ended with status {process.returncode}", process)
                await anyio.sleep(_POLL_S)
            return
        raise NodeFailed(f"{name} was not ready after {_START_TIMEOUT_S:g} s", process)

    async def _containerd_answers(self) -> bool:
        if not (self.directory / "containerd.sock").exists():
            return False
        command = [*self._namespaces.enter, *self._ctr, "version"]
        return (await anyio.run_process(command, check=False)).returncode == 0

    async def _node_ready(self) -> bool:
        path = "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}"
        selector = f"--field-selector=metadata.name={self.name}"
        return await self.control_plane.kubectl("get", "nodes", selector, f"--output={path}") == "True"

    async def _services_work(self) -> bool:
        return await _connects(self.network.node, 10256)

    async def _dns_answers(self) -> bool:
        return await _connects(self.network.node, 53)

    async def _end(self, error: BaseException | None) -> None:
        await self._namespaces.end()
        for process in self._processes.values():
            process.kill()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(remove_cgroups, self.directory.name)
        if error is None:
            shutil.rmtree(self.directory)
            return
        for path in self.directory.iterdir():
            if path != self.logs and path.is_dir():
                shutil.rmtree(path)
        error.add_note(f"The node's logs are kept in {self.logs}")


async def _connects(host: str, port: int) -> bool:
    try:
        stream = await anyio.connect_tcp(host, port)
    except OSError:
        return False
    await stream.aclose()
    return True
