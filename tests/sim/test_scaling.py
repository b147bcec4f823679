"""Gangs for which nodes are brought: the simulated autoscaler, the rules of their days, and defects that break them."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import POD
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.controllers.coordinator import core
from torchctl.controllers.coordinator.decision import TakeBack
from torchctl.runtime.kinds import Key
from torchctl.testing import virtualtime
from torchctl.testing.fleet import GPU, default_nodes
from torchctl.testing.script import Play, Script
from torchctl.testing.sim import Cluster, World
from torchctl.testing.sim.controllers import autoscaler
from torchctl.testing.sim.controllers.autoscaler import BROUGHT, GIVES_UP_S, MOST, Autoscaler
from torchctl.testing.sim.days.actions import Day, Fate, Submit
from torchctl.testing.sim.days.gang import LATE_S
from torchctl.testing.sim.days.jobs import job, queues
from torchctl.testing.sim.days.letting import LONGEST_HALF_S, Letting
from torchctl.testing.sim.days.living import live
from torchctl.testing.sim.days.scaling import LONGEST_IDLE_S, PROVISION_S
from torchctl.testing.sim.kinds import NODE, cluster_kinds

LATE = PROVISION_S + 2 * LATE_S + 60.0
LONG = Fate(9000)
FULL = (
    Submit(1.0, "one", "modest", 4, LONG),
    Submit(1.0, "two", "modest", 2, LONG),
    Submit(1.0, "our", "owner", 2, LONG),
)
"""All of the eight nodes that are there."""
RUSH = (Submit(60.0, "left", "brought", 3, Fate(600)), Submit(60.0, "right", "brought", 3, Fate(600)))
"""Six pods, for which four nodes come at most."""


def wants(name: str, gpus: int) -> dict[str, Any]:
    container = {"name": "main", "image": "image:1", "resources": {"limits": {GPU: str(gpus)}}}
    spec = {"containers": [container], "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(("pods", "gpus", "most"), [(2, 8, 2), (3, 4, 2), (9, 8, MOST), (2, 16, 0)])
def test_nodes_come_for_pods_without_one_and_go_when_idle(pods: int, gpus: int, most: int) -> None:
    async def main() -> list[int]:
        script, found = Script(fallback=lambda pod: Play(run_s=600.0)), []
        async with Cluster(1, (), script=script, nodes=default_nodes(0)).run(replicas=0) as cluster:
            Autoscaler(cluster.world, cluster.add_node, cluster.remove_node)
            for number in range(pods):
                cluster.world.create(POD, "team", wants(f"pod-{number}", gpus))
            for _ in range(12 if most else 1):
                await cluster.world.clock.sleep(GIVES_UP_S)
                found.append(sum(BROUGHT in node["metadata"]["labels"] for node in cluster.world.all(NODE)))
            phases = {pod["status"]["phase"] for pod in cluster.world.all(POD)}
            assert phases == (set() if most else {"Pending"})  # pods that have ended go with their nodes
        return found

    found = virtualtime.run(main)
    assert (max(found) <= most, found[-1]) == (True, 0)


def let_in(world: World, name: str, kind: str = "brought", nodes: int = 2) -> Key:
    world.create(TORCHRUN_JOB, "team", job(Submit(0, name, kind, nodes, Fate(10))))
    world.report(TORCHRUN_JOB, Key("team", name), {"phase": "Starting", "admission": {"letInTime": world.now}})
    return Key("team", name)


def has_a_node(world: World, key: Key, node: str, attempt: str = "0") -> None:
    uid = next(body["metadata"]["uid"] for body in world.all(TORCHRUN_JOB) if body["metadata"]["name"] == key.name)
    pod = wants(f"{key.name}-{attempt}-{node}", 8)
    given = {"torchrun.ai/job-uid": uid, "torchrun.ai/attempt": attempt, "torchrun.ai/role": "worker"}
    pod["metadata"]["labels"] = given
    pod["spec"]["nodeName"] = node
    world.create(POD, "team", pod)


def leaves(world: World, key: Key) -> None:
    admission = next(one for one in world.all(TORCHRUN_JOB) if one["metadata"]["name"] == key.name)["status"][
        "admission"
    ]
    world.report(
        TORCHRUN_JOB, key, {"phase": "Starting", "admission": {**admission, "takenBackTime": world.now, "misses": 1}}
    )


async def both_are_late(world: World) -> tuple[Key, Key]:
    """Two gangs hold a node each, and have lacked the other one for long."""
    first = let_in(world, "first")
    await world.clock.sleep(10)
    second = let_in(world, "second")
    has_a_node(world, first, "node-0")
    has_a_node(world, second, "node-1")
    await world.clock.sleep(LATE)
    return first, second


async def the_last_one_leaves(world: World) -> None:
    _, second = await both_are_late(world)
    leaves(world, second)


async def the_first_one_leaves(world: World) -> None:
    first, _ = await both_are_late(world)
    leaves(world, first)


async def both_leave(world: World) -> None:
    first, second = await both_are_late(world)
    leaves(world, second)
    leaves(world, first)


async def one_that_left_is_back_when_the_other_leaves(world: World) -> None:
    first, second = await both_are_late(world)
    leaves(world, second)
    world.delete(POD, Key("team", "second-0-node-1"), gracePeriodSeconds=0)
    world.report(TORCHRUN_JOB, second, {"phase": "Starting", "attempt": 1, "admission": again(world)})
    for node in ("node-1", "node-2"):
        has_a_node(world, second, node, attempt="1")
    await world.clock.sleep(LATE)
    leaves(world, first)


def again(world: World) -> dict[str, Any]:
    return {"attempt": 1, "letInTime": world.now}


async def a_third_is_let_in(world: World) -> None:
    await both_are_late(world)
    let_in(world, "third")


async def another_queue_goes_on(world: World) -> None:
    await both_are_late(world)
    let_in(world, "modest", "modest")


async def one_holds_half_for_ever(world: World) -> None:
    has_a_node(world, let_in(world, "first"), "node-0")
    await world.clock.sleep(LONGEST_HALF_S + 2 * PROVISION_S + 60)
    world.create(TORCHRUN_JOB, "team", job(Submit(0, "other", "plain", 1, Fate(10))))


async def one_waits_for_nothing(world: World) -> None:
    world.create(TORCHRUN_JOB, "team", job(Submit(0, "first", "brought", 2, Fate(10))))
    world.report(TORCHRUN_JOB, Key("team", "first"), {"phase": "Queued", "admission": {"place": 1}})
    for number in range(int(LONGEST_IDLE_S // 100) + 3):
        await world.clock.sleep(100)
        world.create(TORCHRUN_JOB, "team", job(Submit(0, f"other-{number}", "plain", 1, Fate(10))))


@pytest.mark.parametrize(
    ("story", "broken"),
    [
        (the_last_one_leaves, False),
        (another_queue_goes_on, False),
        (one_that_left_is_back_when_the_other_leaves, False),
        (the_first_one_leaves, True),
        (both_leave, True),
        (a_third_is_let_in, True),
        (one_holds_half_for_ever, True),
        (one_waits_for_nothing, True),
    ],
)
def test_breaches_are_noticed(story: Callable[[World], Awaitable[None]], broken: bool) -> None:
    async def main() -> list[str]:
        world, found = World(cluster_kinds(), 1), list[str]()
        world.objects.listeners.append(Letting(world.clock, found).on_change)
        for queue in queues(coordinated=True):
            world.create(TORCHRUN_QUEUE, "team", queue)
        for number in range(6):
            world.create(NODE, "", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{number}"}})
            world.report(NODE, Key("", f"node-{number}"), {"allocatable": {GPU: "8"}})
        await story(world)
        return found

    assert bool(virtualtime.run(main)) is broken


def test_two_gangs_that_lack_each_other_s_nodes_both_end() -> None:
    told = live(Day(1, 1.0, (*FULL, *RUSH), coordinated=True))
    assert (told.broken, dict(told.ends)) == ((), {"Succeeded": 5})


def all_late_leave(patch: pytest.MonkeyPatch) -> None:
    def everyone(holdings: Any, capacity: Any, now_s: float, settings: Any) -> tuple[TakeBack, ...]:
        late = (held for held in holdings if held.missing and not held.has_run and not held.leaving_for)
        return tuple(TakeBack(held.key, 1) for held in late if now_s - held.let_in_s > settings.provision_within_s)

    patch.setattr(core, "unplaced", everyone)


def lateness_holds_up_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(core, "nodes_are_late", lambda *_: False)
    patch.setattr(core, "unplaced", lambda *_: ())


@pytest.mark.parametrize("defect", [all_late_leave, lateness_holds_up_nobody])
def test_defects_break_a_rule(defect: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """In this history each of two gangs holds some of the three nodes that come."""
    defect(monkeypatch)
    monkeypatch.setattr(autoscaler, "MOST", 3)
    stay = (Submit(60.0, "left", "brought", 3, LONG), Submit(60.0, "right", "brought", 2, LONG))
    later = Submit(LATE + 100.0, "later", "brought", 1, Fate(600))
    assert live(Day(3, 0.5, (*FULL, *stay, later), rests=False, coordinated=True)).broken
