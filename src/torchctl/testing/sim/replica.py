"""One process of the operator in the simulated world, which may be killed, frozen out or stopped."""

from collections.abc import Iterable
from datetime import datetime, timedelta

import anyio
from anyio.abc import TaskGroup

from torchctl.runtime.client.client import Client
from torchctl.runtime.leaderelection.elector import LeaderElector
from torchctl.runtime.leaderelection.fence import Fence
from torchctl.runtime.manager import Manager, Setup
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.settings import ElectionSettings, RuntimeSettings, ServerSettings
from torchctl.testing.sim.wire import Wire
from torchctl.testing.sim.world import World
from torchctl.testing.virtualtime import VirtualClock

__all__ = ["NAME", "NAMESPACE", "Replica"]

NAME, NAMESPACE = "torchctl", "torchctl-system"

SETTINGS = RuntimeSettings(
    workers=8,
    election=ElectionSettings(lease_name=NAME, lease_namespace=NAMESPACE),
    server=ServerSettings(metrics_port=None, health_port=None),
    loop_lag_limit_s=3600.0,
    sampling_period_s=3600.0,  # it was half of all wake-ups, and virtual time is never late
)


class SkewedClock(VirtualClock):
    """A clock whose wall time is wrong by `skew_s`; its monotonic time is right."""

    def __init__(self, skew_s: float) -> None:
        self._skew = timedelta(seconds=skew_s)

    def now(self) -> datetime:
        return super().now() + self._skew


class Replica:
    """A manager with the controllers of `setups`, over a wire of its own."""

    def __init__(self, world: World, number: int, setups: Iterable[Setup], *, skew_s: float = 0.0) -> None:
        chance = world.chance(f"replica {number}")
        clock, metrics = SkewedClock(skew_s), Metrics(process=False)
        fence = Fence(clock)
        self.wire = Wire(world, chance)
        client = Client(self.wire, clock=clock, rng=chance, fence=fence, field_manager=NAME)
        self.elector = LeaderElector(
            client, NAMESPACE, NAME, f"replica-{number}", SETTINGS.election, clock, fence, metrics=metrics, rng=chance
        )
        self.manager = Manager(
            client, settings=SETTINGS, metrics=metrics, clock=clock, elector=self.elector, rng=chance
        )
        for setup in setups:
            setup(self.manager)
        self._scope = anyio.CancelScope()
        self._stop = anyio.Event()
        self.ended = anyio.Event()

    def __repr__(self) -> str:
        return f"<Replica {self.elector.identity}>"

    @property
    def leads(self) -> bool:
        """Whether it would write now."""
        return self.elector.is_leader and not self.ended.is_set()

    def start(self, tasks: TaskGroup) -> None:
        tasks.start_soon(self._run)

    def kill(self) -> None:
        """Ends it on the spot: nothing that it was doing gets through, the release of its Lease neither."""
        self.wire.cut = True
        self._scope.cancel()

    def stop(self) -> None:
        """Stops it gracefully."""
        self._stop.set()

    async def _run(self) -> None:
        with self._scope:
            await self.manager.run(self._stop)
        self.ended.set()
