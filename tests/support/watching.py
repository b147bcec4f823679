"""Config maps to watch, a handler that hears what becomes of them, and a cache that runs for as long as a test."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec

from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.cache.informer import Change
from torchctl.runtime.kinds import Kind, ObjectMeta

__all__ = ["CONFIG_MAP", "ConfigMap", "Heard", "config_map", "running"]


class ConfigMap(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}


CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", ConfigMap)


def config_map(name: str, namespace: str, **data: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": namespace, "labels": {"app": "cache"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


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
