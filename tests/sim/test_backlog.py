"""How old the view of a process may be after its network was silent."""

import random

import anyio
import pytest

from torchctl.runtime.client import requests
from torchctl.runtime.client.errors import Timeout
from torchctl.runtime.client.exchange import LineStream
from torchctl.runtime.kinds import Key
from torchctl.testing import virtualtime
from torchctl.testing.sim import World
from torchctl.testing.sim.backlog import DECIDES_S, Backlog
from torchctl.testing.sim.kinds import NODE, cluster_kinds
from torchctl.testing.sim.wire import Wire

WATCH = requests.watch(NODE, resource_version="0", timeout_s=300)
PATIENCE_S = 70.0


def test_a_view_is_as_old_as_what_is_kept_back() -> None:
    backlog = Backlog()
    assert backlog.age_s(5) == 0
    backlog.keep("nodes", 10)
    backlog.keep("pods", 30)
    backlog.keep("nodes", 40)
    assert backlog.age_s(50) == 40


def test_a_decision_made_before_may_be_written_a_moment_later() -> None:
    backlog = Backlog()
    backlog.keep("nodes", 10)
    backlog.clear("nodes", 50)
    backlog.clear("pods", 50)
    assert backlog.age_s(49 + DECIDES_S) == 39 + DECIDES_S
    assert backlog.age_s(50 + DECIDES_S) == 0


@pytest.mark.parametrize(("again_s", "age_s"), [(51.0, 90.0), (50 + DECIDES_S, 50 - DECIDES_S)])
def test_a_watch_silent_again_at_once_shows_nothing_new(again_s: float, age_s: float) -> None:
    backlog = Backlog()
    backlog.keep("nodes", 10)
    backlog.clear("nodes", 50)
    backlog.keep("nodes", again_s)
    assert backlog.age_s(100) == age_s


def test_a_watch_is_silent_until_its_client_gives_it_up() -> None:
    """What comes while the network is parted is lost, and the same stream shows nothing afterwards."""

    async def main() -> list[float]:
        world, ages = World(cluster_kinds(), 1), list[float]()
        wire = Wire(world, random.Random(1))
        world.create(NODE, "", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "before"}})
        async with wire.stream(WATCH) as stream, anyio.create_task_group() as tasks:
            assert b"before" in await stream.readlines(PATIENCE_S)
            began_s, wire.parted = anyio.current_time(), True
            tasks.start_soon(gives_up, stream)
            await anyio.sleep(10)
            world.delete(NODE, Key("", "before"))
            await anyio.sleep(20)
            wire.parted = False
            ages.append(wire.behind_s)
        ages.append(anyio.current_time() - began_s)
        async with wire.stream(WATCH):
            await anyio.sleep(DECIDES_S)
        return [*ages, wire.behind_s]

    async def gives_up(stream: LineStream) -> None:
        with pytest.raises(Timeout):
            await stream.readlines(PATIENCE_S)

    assert virtualtime.run(main) == pytest.approx([20.0, PATIENCE_S, 0.0])
