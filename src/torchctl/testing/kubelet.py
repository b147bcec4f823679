"""Simulates nodes: pods run and end according to a script, on a real control plane.

    async with ScriptedKubelet(admin, script=Script().when(role("worker"), Play(exit_code=1))):
        ...

It brings nodes with GPUs, a default StorageClass whose claims are bound, and a gang scheduler for pods that name
another scheduler than the default one. kube-scheduler and kube-controller-manager do the rest.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import anyio

from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.client.client import Client
from torchctl.runtime.clock import Clock, SystemClock
from torchctl.runtime.kinds import Key
from torchctl.testing.binder import Binder
from torchctl.testing.fleet import Fleet, NodeSpec, default_nodes
from torchctl.testing.logfiles import LogFiles
from torchctl.testing.persist import Persistence
from torchctl.testing.players import Players
from torchctl.testing.podlogs import serve_logs
from torchctl.testing.podstreams import PodPorts
from torchctl.testing.script import Part, Play, Script
from torchctl.testing.volumes import Provisioner

__all__ = ["NodeSpec", "Part", "Play", "Script", "ScriptedKubelet", "default_nodes"]


class ScriptedKubelet:
    """Plays all nodes of a cluster. May be entered in one task and left in another, as fixtures are.

    Args:
        client: Acts for the kubelets, the provisioner and the gang scheduler; an administrator's.
        script: Decides what happens to pods. `script` may be replaced at any time, for later pods.
        nodes: The nodes, which are deleted at the end.
        binds_gangs: Bind pods of other schedulers than the default one; False if their scheduler runs.
        at_once: The maximum number of requests under way at once.
        clock: For times and waits.

    Attributes:
        ports: The ports on which pods listen, for those who forward one.
        logs: Logs that a test writes; a pod without one has the log of its play.
    """

    def __init__(
        self,
        client: Client,
        *,
        script: Script | None = None,
        nodes: Sequence[NodeSpec] | None = None,
        binds_gangs: bool = True,
        at_once: int = 16,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        clock = clock or SystemClock()
        self.ports = PodPorts()
        self.logs = LogFiles()
        persist = Persistence(at_once)
        self._cache = Cache(client, clock=clock)
        self._fleet = Fleet(client, nodes if nodes is not None else default_nodes(), persist=persist, clock=clock)
        self._provisioner = Provisioner(client, self._cache, persist)
        self._binder = Binder(client, self._cache, self._fleet, self._provisioner)
        self._binds_gangs = binds_gangs
        self._players = Players(
            client,
            self._cache,
            self._fleet,
            self._provisioner,
            script=script or Script(),
            persist=persist,
            clock=clock,
        )
        self._task: asyncio.Task[None] | None = None
        self._leave = anyio.Event()

    @property
    def script(self) -> Script:
        return self._players.script

    @script.setter
    def script(self, script: Script) -> None:
        self._players.script = script

    async def lose(self, node: str) -> None:
        """Silences a node: its pods stay as they are, and it reports nothing."""
        await self._fleet.lose(node)

    async def restore(self, node: str) -> None:
        """Brings a lost node back, which then reports what happened on it meanwhile."""
        await self._fleet.restore(node)
        self._binder.wake()

    def end(self, namespace: str, name: str, exit_code: int = 0) -> None:
        """Lets a pod end now that runs, or is being stopped and takes its time.

        Raises:
            KeyError: No such pod is on our nodes.
        """
        self._players.end(Key(namespace, name), exit_code)

    async def __aenter__(self) -> Self:
        ready = anyio.Event()
        self._task = asyncio.create_task(self._run(ready))
        waiting = asyncio.create_task(ready.wait())
        try:
            await asyncio.wait({self._task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self._task.done():
            await self._task
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._leave.set()
        await self._task

    async def _run(self, ready: anyio.Event) -> None:
        async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
            await tasks.start(self._cache.run)
            await self._provisioner.create_class()
            await self._cache.wait_synced(30.0)
            self._fleet.port = await stack.enter_async_context(serve_logs(self._players.log, self.ports, self.logs))
            await self._fleet.create()
            for part in (self._fleet, self._provisioner, self._players):
                tasks.start_soon(part.run)
            if self._binds_gangs:
                tasks.start_soon(self._binder.run)
            ready.set()
            await self._leave.wait()
            tasks.cancel_scope.cancel()
        await self._fleet.delete()
