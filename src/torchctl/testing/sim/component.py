"""A component of the control plane: it looks at one object at a time, a moment after something about it changed."""

import random
from abc import ABC, abstractmethod

import anyio

from torchctl.testing.fake.objects import Changed
from torchctl.testing.fake.rejection import Rejection
from torchctl.testing.sim.world import World

__all__ = ["Component"]

RETRY_S = 1.0


class Component(ABC):
    """Calls `look` for keys some time after they were woken. A key that waits already is not woken twice.

    Args:
        least_s, most_s: Bounds of the time between a change and the look at it, which is drawn.
    """

    def __init__(self, world: World, name: str, least_s: float, most_s: float) -> None:
        self.world = world
        self.name = name
        self.chance: random.Random = world.chance(name)
        self._delay_s = (least_s, most_s)
        self._due: dict[object, float] = {}
        world.objects.listeners.append(self.on_change)

    @abstractmethod
    def on_change(self, changed: Changed) -> None:
        """Wakes the keys that a change concerns."""

    @abstractmethod
    def look(self, key: object) -> None:
        """Looks at what a key names, as it is now."""

    def wake(self, key: object, after_s: float | None = None) -> None:
        """Looks at a key soon, or after so many seconds; the earlier time counts."""
        after_s = self.chance.uniform(*self._delay_s) if after_s is None else after_s
        due = anyio.current_time() + after_s
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            self.world.agenda.after(after_s, lambda: self._look(key, due))

    def _look(self, key: object, due: float) -> None:
        if self._due.get(key) != due:
            return
        del self._due[key]
        if self.world.away:
            self.wake(key, RETRY_S)
            return
        try:
            self.look(key)
        except Rejection as rejection:
            if rejection.code not in (404, 409):
                raise
            self.wake(key, RETRY_S)
