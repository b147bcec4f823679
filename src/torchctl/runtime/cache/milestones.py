"""Lets tasks wait until an informer has reached a version, or an object has changed or gone."""

import heapq
from itertools import count

import anyio

from torchctl.runtime.kinds import Key

__all__ = ["Milestones"]


class Milestones:
    """The tasks that wait for an informer. Costs nothing while nobody waits."""

    def __init__(self) -> None:
        self._versions: list[tuple[int, int, anyio.Event]] = []
        self._keys: dict[Key, anyio.Event] = {}
        self._order = count()

    def __repr__(self) -> str:
        return f"<Milestones versions={len(self._versions)} keys={len(self._keys)}>"

    async def version(self, version: int) -> None:
        """Waits until `reached` is called with `version` or more."""
        event = anyio.Event()
        entry = (version, next(self._order), event)
        heapq.heappush(self._versions, entry)
        try:
            await event.wait()
        finally:
            if not event.is_set():
                self._versions.remove(entry)
                heapq.heapify(self._versions)

    async def change(self, key: Key) -> None:
        """Waits until the object of that key changes or goes."""
        event = self._keys.setdefault(key, anyio.Event())
        try:
            await event.wait()
        finally:
            if not event.is_set() and not event.statistics().tasks_waiting:
                self._keys.pop(key, None)

    def reached(self, version: int) -> None:
        while self._versions and self._versions[0][0] <= version:
            heapq.heappop(self._versions)[2].set()

    def changed(self, key: Key) -> None:
        if self._keys and (event := self._keys.pop(key, None)):
            event.set()
