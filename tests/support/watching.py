"""Config maps and widgets to watch, a handler that hears of them, and a cache that runs for as long as a test."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
from clusters import established
from waiting import until

from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.cache.informer import Change
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import NotFound
from torchctl.runtime.kinds import Kind, ObjectMeta
from torchctl.testing.controlplane import ControlPlane

__all__ = [
    "CONFIG_MAP",
    "WIDGET",
    "WIDGET_CRD",
    "ConfigMap",
    "Heard",
    "Widget",
    "config_map",
    "create_widget",
    "running",
]


class ConfigMap(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}


class Widget(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", ConfigMap)
WIDGET = Kind("cache.test", "v1", "Widget", "widgets", Widget)

WIDGET_CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.cache.test}
spec:
  group: cache.test
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
"""


def config_map(name: str, namespace: str, **data: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "labels": {"app": "cache"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


async def create_widget(control_plane: ControlPlane, admin: Client, namespace: str, name: str) -> None:
    await control_plane.kubectl("apply", "--filename=-", input=WIDGET_CRD)
    await established(control_plane)

    async def is_served() -> bool:
        try:
            await admin.list(WIDGET, namespace=namespace)
        except NotFound:
            return False
        return True

    await until(is_served)
    body = {"apiVersion": "cache.test/v1", "kind": "Widget", "metadata": {"name": name, "namespace": namespace}}
    await admin.create(WIDGET, body)


class Heard:
    """A handler on whose changes a test can wait."""

    def __init__(self) -> None:
        self.types: list[tuple[str, str]] = []
        self._more = anyio.Event()

    def on_event(self, event: Change[Any]) -> None:
        self.types.append((event.type, event.key.name))
        self._more.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._more = anyio.Event()
            await self._more.wait()


@asynccontextmanager
async def running(cache: Cache, *, within_s: float = 60.0) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        await tasks.start(cache.run)
        with anyio.fail_after(within_s):
            yield
        tasks.cancel_scope.cancel()
