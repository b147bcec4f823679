"""The simulated world: an API server, a clock, and the seed that everything is drawn from."""

import random
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from torchctl.runtime.kinds import Key, Kind
from torchctl.testing.fake.objects import Body, Objects
from torchctl.testing.fake.ownership import UPDATE, Actor
from torchctl.testing.fake.served import Served
from torchctl.testing.fake.server import FakeApiServer
from torchctl.testing.sim.agenda import Agenda
from torchctl.testing.virtualtime import EPOCH, VirtualClock

__all__ = ["World"]

T = TypeVar("T")

MANAGER = "kube-controller-manager"


class World:
    """The state that all parts of a simulation share.

    Attributes:
        server: The API server.
        agenda: What is to happen.
        clock: The true time.
        away: The API server does not answer; components wait until it does.
    """

    def __init__(self, kinds: Iterable[Served], seed: int) -> None:
        self.seed = seed
        self.clock = VirtualClock()
        self.agenda = Agenda()
        self.server = FakeApiServer([*kinds], clock=self.clock, seed=seed, collects=False)
        self.away = False
        self._served = {served.kind: served for served in self.server.kinds}

    @property
    def objects(self) -> Objects:
        return self.server.objects

    @property
    def now(self) -> str:
        return self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    @property
    def now_s(self) -> float:
        """Seconds since the epoch."""
        return EPOCH.timestamp() + self.clock.monotonic()

    def chance(self, purpose: str) -> random.Random:
        """Returns a source of random numbers of its own, so that one part's draws do not shift another's."""
        return random.Random(f"{self.seed} {purpose}")

    def served(self, kind: Kind[Any]) -> Served:
        return self._served[kind]

    def find(self, kind: Kind[Any], key: Key) -> Body | None:
        return self.objects.find(self._served[kind], key)

    def all(self, kind: Kind[Any]) -> list[Body]:
        return self.objects.all(self._served[kind])

    # Writing, as a component of the control plane.

    def create(self, kind: Kind[Any], namespace: str, body: Body) -> Body:
        return self.server.act(lambda objects: objects.create(self._served[kind], namespace, body, None))

    def delete(self, kind: Kind[Any], key: Key, **options: Any) -> None:
        self.server.act(lambda objects: objects.delete(self._served[kind], key, options))

    def change(self, kind: Kind[Any], key: Key, change: Callable[[Body], Body], manager: str = MANAGER) -> None:
        actor = Actor(manager, UPDATE)
        self.server.act(lambda objects: objects.change(self._served[kind], key, change, actor))

    def report(self, kind: Kind[Any], key: Key, status: Body, manager: str = MANAGER) -> None:
        """Replaces the status of an object."""
        actor = Actor(manager, UPDATE, "status")
        self.server.act(
            lambda objects: objects.change(self._served[kind], key, lambda old: {**old, "status": status}, actor)
        )
