"""The digest of a history: of every change of every object, with its time."""

import hashlib
import json

import anyio

from torchctl.testing.fake.objects import Changed
from torchctl.testing.sim.world import World

__all__ = ["Journal"]


class Journal:
    """Follows all changes. Two histories with the same digest are the same."""

    def __init__(self, world: World) -> None:
        self.changes = 0
        self._digest = hashlib.sha256()
        world.objects.listeners.append(self._note)

    def __repr__(self) -> str:
        return f"<Journal of {self.changes} changes: {self.digest[:12]}>"

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def _note(self, changed: Changed) -> None:
        self.changes += 1
        told = [anyio.current_time(), changed.type, str(changed.served.kind), changed.new]
        self._digest.update(json.dumps(told, sort_keys=True).encode())
