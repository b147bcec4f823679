"""A real control plane as an object: etcd, kube-apiserver, kube-controller-manager and kube-scheduler.

It ends with the process that started it, even if that is killed. It holds no task group, so it may be entered in one
task and left in another, as fixtures are.
"""

import os
import shutil
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
import anyio
import anyio.to_thread

from torchctl.runtime.client.client import Client, connect
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.credentials import StaticCredentials
from torchctl.runtime.client.tls import TlsFiles
from torchctl.testing.assets import Assets, ensure
from torchctl.testing.components import COMPONENTS, ENVIRONMENT, Layout, Options, Ports, command_line
from torchctl.testing.credentials import Credentials
from torchctl.testing.kubeconfig import write_kubeconfig
from torchctl.testing.ports import reserve
from torchctl.testing.process import ManagedProcess
from torchctl.testing.scratch import Scratch

__all__ = ["CommandFailed", "ComponentFailed", "ControlPlane", "Options"]

_START_ATTEMPTS = 5
_POLL_S = 0.05


class ComponentFailed(Exception):
    """A component ended or was not ready in time. The message names its log."""

    def __init__(self, process: ManagedProcess, what: str) -> None:
        self.component = process.name
        self.log = process.log
        self.port_lost = "address already in use" in process.tail(100)
        super().__init__(f"{process.name} {what}; the end of {process.log}:\n{process.tail()}")


class CommandFailed(Exception):
    """kubectl ended with a status other than 0; `stderr` is its output."""

    def __init__(self, arguments: Sequence[str], status: int, stderr: str) -> None:
        self.status = status
        self.stderr = stderr
        super().__init__(f"kubectl {' '.join(arguments)}: exit status {status}: {stderr.strip()}")


class ControlPlane:
    """A control plane that is ready when entered and gone when left.

        async with ControlPlane() as cluster:
            print(await cluster.kubectl("get", "namespaces"))

    Args:
        assets: the programs; None finds, downloads or builds them (minutes, the first time).
        directory: keeps data, keys and logs, and is left behind. None takes a temporary directory, which is
            removed at the end unless an exception passes through: then it stays and the exception names it.
        components: the components to start, which must include etcd and kube-apiserver.
        options: addresses and further flags.

    Raises:
        ComponentFailed: when entered, if a component does not get ready.
    """

    def __init__(
        self,
        *,
        assets: Assets | None = None,
        directory: Path | None = None,
        components: Sequence[str] = COMPONENTS,
        options: Options | None = None,
    ) -> None:
        self.components = tuple(name for name in COMPONENTS if name in components)
        if self.components[:2] != COMPONENTS[:2]:
            raise ValueError("a control plane has at least etcd and kube-apiserver")
        self.options = options or Options()
        self._assets = assets
        self._directory = directory
        self._scratch: Scratch | None = None
        self._processes: dict[str, ManagedProcess] = {}
        self._stopped: set[str] = set()

    def __repr__(self) -> str:
        return f"<ControlPlane {list(self._processes.values())}>"

    async def __aenter__(self) -> Self:
        self._assets = self._assets or await anyio.to_thread.run_sync(ensure)
        self._layout = Layout(self._root())
        self._credentials = Credentials(self._layout, self.options)
        try:
            await self._start_all()
        except BaseException as error:
            self._end(error)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(error)

    @property
    def host(self) -> str:
        """The API server's URL."""
        return f"https://127.0.0.1:{self._ports.apiserver}"

    @property
    def ca(self) -> Path:
        """The certificate authority that signed the API server's certificate, PEM."""
        return self._layout.ca

    @property
    def logs(self) -> Path:
        """A directory with one log per component."""
        return self._layout.logs

    @property
    def audit_log(self) -> Path:
        """One JSON line per request that was answered, level Metadata (see `torchctl.testing.audit`)."""
        return self._layout.audit_log

    @property
    def admin_kubeconfig(self) -> Path:
        return self._layout.kubeconfig("admin")

    @property
    def signing_key(self) -> Path:
        """The key that signs service account tokens, with which a test can make an expired one."""
        return self._layout.token_key

    def connection(self, user: str = "admin", groups: Sequence[str] = ()) -> Connection:
        """Returns a user's connection: the admin's uses a token, any other name a client certificate."""
        if token := self._credentials.token(user):
            return self._token_connection(token)
        certificate, key = self._credentials.client_files(user, groups)
        return Connection(self.host, TlsFiles(ca=str(self.ca), certificate=str(certificate), key=str(key)))

    async def service_account_connection(self, namespace: str, name: str, lifetime_s: int = 3600) -> Connection:
        """Returns a service account's connection, with a token from the TokenRequest API."""
        token = await self.service_account_token(namespace, name, lifetime_s)
        return self._token_connection(token, namespace)

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[Client]:
        """Yields a client with the rights of the admin."""
        async with connect(self.connection()) as client:
            yield client

    def kubeconfig(self, user: str, groups: Sequence[str] = ()) -> Path:
        """Writes a kubeconfig with a client certificate: any user, any groups, no rights until RBAC grants them."""
        certificate, key = self._credentials.client_files(user, groups)
        entry = {"client-certificate": str(certificate), "client-key": str(key)}
        path = certificate.with_suffix(".kubeconfig")
        return write_kubeconfig(path, server=self.host, ca=self.ca, user=entry)

    async def service_account_kubeconfig(self, namespace: str, name: str, lifetime_s: int = 3600) -> Path:
        """Writes a kubeconfig that acts as a service account, with a token from the TokenRequest API."""
        token = await self.service_account_token(namespace, name, lifetime_s)
        path = self._layout.root / f"{namespace}-{name}.kubeconfig"
        return write_kubeconfig(path, server=self.host, ca=self.ca, user={"token": token}, namespace=namespace)

    async def service_account_token(self, namespace: str, name: str, lifetime_s: int = 3600) -> str:
        """Returns a service account's token, valid for at least 600 s. Raises CommandFailed without such an account."""
        arguments = ("create", "token", name, f"--namespace={namespace}", f"--duration={lifetime_s}s")
        return (await self.kubectl(*arguments)).strip()

    async def kubectl(
        self, *arguments: str, input: str | None = None, kubeconfig: Path | None = None, timeout_s: float = 60.0
    ) -> str:
        """Runs kubectl, as admin unless `kubeconfig` is given, and returns its output.

        Raises:
            CommandFailed: its exit status was not 0.
            TimeoutError: it did not end in time and was killed.
        """
        command = [str(self._programs.path("kubectl")), *arguments]
        environment = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig or self.admin_kubeconfig),
            "KUBECACHEDIR": str(self._layout.root / "kubectl-cache"),
        }
        with anyio.fail_after(timeout_s):
            text = input.encode() if input is not None else b""
            done = await anyio.run_process(command, input=text, env=environment, check=False)
        if done.returncode:
            raise CommandFailed(arguments, done.returncode, done.stderr.decode(errors="replace"))
        return done.stdout.decode(errors="replace")

    def process(self, component: str) -> ManagedProcess:
        """The process of a component. Raises KeyError when it does not belong to this control plane."""
        return self._processes[component]

    async def start(self, component: str) -> None:
        """Starts a stopped component, on its old port, and waits until it is ready.

        Components that ended by themselves meanwhile are restarted too, as the kubelet does on a cluster: some end if
        they cannot reach the API server while they start. If kube-apiserver is started, the components that watch it
        are restarted: their state is old, and client-go's back-off (30 s and a jitter of as much, after several
        outages) would keep them from reconnecting.
        """
        self._stopped.discard(component)
        if not self.process("kube-apiserver").running:
            for name in self.components[2:]:
                self.process(name).kill()
        for name in self.components:
            if name not in self._stopped:
                await self._start(name)

    async def _start(self, component: str) -> None:
        if not self.process(component).running:
            self.process(component).start()
        await self._ready(component)

    async def stop(self, component: str, *, grace_s: float = 2.0) -> None:
        """Stops a component: SIGTERM, and SIGKILL after `grace_s` (0: at once). No write is lost."""
        self._stopped.add(component)
        await self.process(component).stop(grace_s)

    async def restart(self, component: str, *, grace_s: float = 2.0, flags: Sequence[str] | None = None) -> None:
        """Stops a component, starts it and waits until it is ready.

        Args:
            flags: The component's further arguments from now on, in place of those of the options; None keeps them.
        """
        await self.stop(component, grace_s=grace_s)
        if flags is not None:
            self.options = replace(self.options, flags={**self.options.flags, component: tuple(flags)})
            self._processes[component] = self._process(component)
        await self.start(component)

    def pause(self, component: str) -> None:
        """Freezes a component with SIGSTOP: its connections stay open, but it does not answer."""
        self.process(component).pause()

    def resume(self, component: str) -> None:
        """Resumes a paused component."""
        self.process(component).resume()

    @property
    def _programs(self) -> Assets:
        assert self._assets is not None, "the control plane has not been entered"
        return self._assets

    def _token_connection(self, token: str, namespace: str = "default") -> Connection:
        credentials = StaticCredentials(f"Bearer {token}")
        return Connection(self.host, TlsFiles(ca=str(self.ca)), namespace=namespace, credentials=credentials)

    def _root(self) -> Path:
        if self._directory is not None:
            return self._directory.resolve()
        self._scratch = Scratch("torchctl-control-plane-")
        return self._scratch.path

    async def _start_all(self) -> None:
        for attempt in range(_START_ATTEMPTS):
            try:
                await self._start_once()
                return
            except ComponentFailed as failure:
                if not failure.port_lost or attempt == _START_ATTEMPTS - 1:
                    raise
                self._kill()
                for log in self._layout.logs.iterdir():
                    log.unlink()

    async def _start_once(self) -> None:
        with reserve(4) as ports:
            self._ports = Ports(*ports)
            self._write_kubeconfigs()
            self._processes = {name: self._process(name) for name in self.components}
        # kube-apiserver waits for etcd; the others give up if they cannot reach kube-apiserver in time.
        for component in ("etcd", "kube-apiserver"):
            self.process(component).start()
        await self._ready("kube-apiserver")
        others = self.components[2:]
        for component in others:
            self.process(component).start()
        for component in others:
            await self._ready(component)

    def _process(self, component: str) -> ManagedProcess:
        arguments = command_line(component, self._layout, self._ports, self.options)
        argv = [str(self._programs.path(component)), *arguments]
        log = self._layout.logs / f"{component}.log"
        return ManagedProcess(component, argv, log, {**ENVIRONMENT, **os.environ})

    def _write_kubeconfigs(self) -> None:
        for user in ("admin", "system:kube-controller-manager", "system:kube-scheduler"):
            token = {"token": self._credentials.token(user)}
            write_kubeconfig(self._layout.kubeconfig(user), server=self.host, ca=self.ca, user=token)

    async def _ready(self, component: str) -> None:
        process = self.process(component)
        async with self._session() as session:
            with anyio.move_on_after(self.options.start_timeout_s):
                while not await self._is_ready(session, component):
                    self._notice_failure(component)
                    await anyio.sleep(_POLL_S)
                return
        raise ComponentFailed(process, f"was not ready after {self.options.start_timeout_s:g} s")

    def _notice_failure(self, component: str) -> None:
        """Raises if the component has ended, or one that started before it, which it may be waiting for."""
        for name in self.components[: self.components.index(component) + 1]:
            process = self.process(name)
            if name not in self._stopped and process.returncode is not None:
                raise ComponentFailed(process, f"ended with status {process.returncode}")

    async def _is_ready(self, session: aiohttp.ClientSession, component: str) -> bool:
        ports = self._ports
        match component:
            case "etcd":
                return bool(await _body(session, f"http://127.0.0.1:{ports.etcd}/health"))
            case "kube-apiserver":
                return bool(await _body(session, f"{self.host}/readyz"))
            case "kube-controller-manager":
                # It reports ok before any controller runs, and without this account no pod can be created.
                health = await _body(session, f"https://127.0.0.1:{ports.controller_manager}/healthz?verbose")
                account = f"{self.host}/api/v1/namespaces/default/serviceaccounts/default"
                return "serviceaccount-controller ok" in health and bool(await _body(session, account))
            case _:
                return bool(await _body(session, f"https://127.0.0.1:{ports.scheduler}/healthz"))

    @asynccontextmanager
    async def _session(self) -> AsyncGenerator[aiohttp.ClientSession]:
        context = ssl.create_default_context(cafile=self._layout.ca)
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, force_close=True),
            headers={"Authorization": f"Bearer {self._credentials.token('admin')}"},
            timeout=aiohttp.ClientTimeout(total=5),
        ) as session:
            yield session

    def _end(self, error: BaseException | None) -> None:
        self._kill()
        if self._scratch and error:
            shutil.rmtree(self._layout.data, ignore_errors=True)
            self._scratch.keep()
            error.add_note(f"The control plane's logs are kept in {self.logs}")
        elif self._scratch:
            self._scratch.remove()

    def _kill(self) -> None:
        # No await: this has to work while the caller is being cancelled, and there is no state to save.
        for process in reversed(self._processes.values()):
            process.kill()


async def _body(session: aiohttp.ClientSession, url: str) -> str:
    """Returns the body of a GET; empty unless it succeeds."""
    try:
        async with session.get(url) as response:
            return await response.text() if response.status == 200 else ""
    except (aiohttp.ClientError, TimeoutError):
        return ""
