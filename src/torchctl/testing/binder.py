"""Binds the pods of other schedulers than the default one, a gang at a time."""

from typing import Any

import anyio

from torchctl.api.names import DEFAULT_SCHEDULER
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.cache.change import Change
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import ApiError
from torchctl.runtime.kinds import key_of
from torchctl.testing.fleet import Fleet
from torchctl.testing.gangs import place
from torchctl.testing.nodekinds import BINDING, POD, POD_GROUP, Pod
from torchctl.testing.volumes import Provisioner

__all__ = ["Binder"]


class Binder:
    """A minimal gang scheduler: either all pods of a group get a node, or none does."""

    def __init__(self, client: Client, cache: Cache, fleet: Fleet, provisioner: Provisioner) -> None:
        self._client = client
        self._fleet = fleet
        self._provisioner = provisioner
        self._pods = cache.register(POD)
        self._groups = cache.register(POD_GROUP, optional=True)
        self._waiting: set[str] = set()
        self._assumed: dict[str, str] = {}
        self._changed = anyio.Event()

    async def run(self) -> None:
        """Works until cancelled; the cache must be running."""
        self._pods.add_handler(self)
        self._groups.add_handler(self)
        async with anyio.create_task_group() as tasks:
            while True:
                changed = self._changed
                if self._waiting:
                    for pod, node in self._place():
                        self._assumed[pod.metadata.uid] = node
                        tasks.start_soon(self._bind, pod, node)
                await changed.wait()

    def wake(self) -> None:
        """Tries to place waiting pods again, because something has changed."""
        self._changed.set()
        self._changed = anyio.Event()

    def on_event(self, change: Change[Any]) -> None:
        if isinstance(change.object, Pod):
            self._note(change.object, gone=change.new is None)
        self.wake()

    def _note(self, pod: Pod, *, gone: bool) -> None:
        uid = pod.metadata.uid
        if gone or pod.spec.node_name or pod.is_terminal:
            self._assumed.pop(uid, None)
            self._waiting.discard(uid)
        elif pod.spec.scheduler_name != DEFAULT_SCHEDULER:
            self._waiting.add(uid)

    def _place(self) -> list[tuple[Pod, str]]:
        groups = {key_of(group): group.spec.min_member for group in self._groups.reader.list()}
        return place(self._pods.reader.list(), groups, self._fleet.machines, self._assumed)

    async def _bind(self, pod: Pod, node: str) -> None:
        meta = pod.metadata
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        self._provisioner.consume(pod.claims)
        try:
            # Not repeated on a conflict, which means that the pod has a node, is being deleted, or is another one.
            await self._client.create(BINDING, body, name=meta.name, subresource="binding")
        except ApiError:
            self._assumed.pop(meta.uid, None)
