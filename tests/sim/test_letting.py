"""The rules of days with the coordinator: each breach is noticed, and what is right is none."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import POD
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.runtime.kinds import Key
from torchctl.testing import virtualtime
from torchctl.testing.sim import World
from torchctl.testing.sim.days.actions import AddNode, AdjustQueue, Day, Fate, Intrude, Prioritise, RemoveNode, Submit
from torchctl.testing.sim.days.gang import LATE_S
from torchctl.testing.sim.days.jobs import COORDINATED, KINDS, job, queues
from torchctl.testing.sim.days.letting import LONG_SINCE_S, LONGEST_HALF_S, MOST_ROUNDS, RESERVE_S, Letting
from torchctl.testing.sim.days.living import live
from torchctl.testing.sim.days.reasons import LONGEST_UNTRUE_S
from torchctl.testing.sim.days.room import LONGEST_EMPTY_S
from torchctl.testing.sim.kinds import NODE, cluster_kinds

Json = dict[str, Any]

WAITS: Json = {"phase": "Queued", "admission": {"place": 1}}
LET_IN: Json = {"letInTime": "2026-01-01T00:00:00Z"}


def submitted(world: World, name: str, kind: str, nodes: int = 1) -> Key:
    world.create(TORCHRUN_JOB, "team", job(Submit(0, name, kind, nodes, Fate(10))))
    return Key("team", name)


def told(world: World, key: Key, **admission: Any) -> None:
    world.report(TORCHRUN_JOB, key, {"phase": "Running", "admission": admission})


def let_in(world: World, name: str, kind: str, nodes: int = 1) -> Key:
    key = submitted(world, name, kind, nodes)
    told(world, key, **LET_IN)
    return key


def leaves(world: World, key: Key, preemptor: str, at: str = "01") -> None:
    told(world, key, **LET_IN, preemptedFor=f"team/{preemptor}", takenBackTime=f"2026-01-01T00:{at}:00Z")


def has_pod(world: World, name: str, index: int = 0, node: str = "", gpus: int = 8) -> None:
    uid = next(body["metadata"]["uid"] for body in world.all(TORCHRUN_JOB) if body["metadata"]["name"] == name)
    labels = {"torchrun.ai/job-uid": uid, "torchrun.ai/attempt": "0", "torchrun.ai/role": "worker"}
    meta = {"name": f"{name}-{index}", "labels": labels}
    trainer = {"name": "trainer", "resources": {"requests": {"nvidia.com/gpu": str(gpus)}}}
    spec = {"containers": [trainer], **({"nodeName": node} if node else {})}
    world.create(POD, "team", {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


def a_pod_before_the_let_in(world: World) -> None:
    told(world, submitted(world, "job", "plain"), place=1)
    has_pod(world, "job")


def more_gpus_than_the_quota(world: World) -> None:
    let_in(world, "one", "modest", 4)
    let_in(world, "two", "modest", 3)


def more_gpus_than_the_cohort_owns(world: World) -> None:
    let_in(world, "one", "owner", 4)
    let_in(world, "two", "borrower", 3)


def more_jobs_than_the_quota(world: World) -> None:
    for name in ("one", "two", "three", "four"):
        let_in(world, name, "borrower")


def preemption_of_an_equal(world: World) -> None:
    submitted(world, "two", "modest")
    leaves(world, let_in(world, "one", "modest"), "two")


def preemption_of_another_cohort(world: World) -> None:
    submitted(world, "two", "owner")
    leaves(world, let_in(world, "one", "modest"), "two")


def preemption_for_a_queue_that_does_not(world: World) -> None:
    submitted(world, "two", "plain")
    leaves(world, let_in(world, "one", "modest"), "two")


def more_victims_than_needed(world: World) -> None:
    submitted(world, "big", "urgent", 2)
    for name in ("one", "two", "three"):
        leaves(world, let_in(world, name, "modest"), "big")


def endless_preemption(world: World) -> None:
    submitted(world, "big", "urgent", 2)
    for number in range(MOST_ROUNDS + 1):
        leaves(world, let_in(world, f"job-{number}", "modest"), "big", at=f"{number:02}")
        world.delete(TORCHRUN_JOB, Key("team", f"job-{number}"))


def let_in_twice(world: World) -> None:
    told(world, let_in(world, "job", "modest"), letInTime="2026-01-01T00:05:00Z")


def told_to_wait_after_the_let_in(world: World) -> None:
    world.report(TORCHRUN_JOB, let_in(world, "job", "modest"), WAITS)


@pytest.mark.parametrize(
    "breach",
    [
        a_pod_before_the_let_in,
        more_gpus_than_the_quota,
        more_gpus_than_the_cohort_owns,
        more_jobs_than_the_quota,
        preemption_of_an_equal,
        preemption_of_another_cohort,
        preemption_for_a_queue_that_does_not,
        more_victims_than_needed,
        endless_preemption,
        let_in_twice,
        told_to_wait_after_the_let_in,
    ],
    ids=lambda breach: breach.__name__,
)
def test_breaches_are_noticed(breach: Callable[[World], None]) -> None:
    assert len(watched(breach)) == 1


def begun(world: World, broken: list[str], nodes: int = 20, behind_s: float = 0.0) -> None:
    """Has nodes, queues and the rules."""
    world.objects.listeners.append(Letting(world.clock, broken, lambda: behind_s).on_change)
    for queue in queues(coordinated=True):
        world.create(TORCHRUN_QUEUE, "team", queue)
    for number in range(nodes):
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{number}"}}
        world.create(NODE, "", body)
        world.report(NODE, Key("", f"node-{number}"), {"allocatable": {"nvidia.com/gpu": "8"}})


def watched(act: Callable[[World], None]) -> list[str]:
    async def main() -> list[str]:
        world, broken = World(cluster_kinds(), 1), list[str]()
        begun(world, broken)
        act(world)
        return broken

    return virtualtime.run(main)


def all_that_is_right(world: World) -> None:
    low = let_in(world, "low", "modest", 4)
    has_pod(world, "low", node="node-0")
    submitted(world, "big", "urgent", 2)
    leaves(world, low, "big")
    submitted(world, "owned", "owner")
    leaves(world, let_in(world, "lent", "borrower", 4), "owned")


def test_what_is_right_breaks_no_rule() -> None:
    assert watched(all_that_is_right) == []


@pytest.mark.parametrize(("taken", "broken"), [(True, []), (False, ["big: gangs of [1, 4] pods leave for 2"])])
def test_another_gang_may_leave_once_others_took_places(taken: bool, broken: list[str]) -> None:
    """In the same second, as times in records have it: one that was let in needs what the first leaves then."""

    def act(world: World) -> None:
        submitted(world, "big", "urgent", 2)
        first, second = let_in(world, "one", "modest"), let_in(world, "two", "modest", 4)
        leaves(world, first, "big")
        if taken:
            spec = {"containers": [], "nodeName": "node-0"}
            world.create(POD, "team", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "theirs"}, "spec": spec})
        leaves(world, second, "big")

    assert watched(act) == broken


@pytest.mark.parametrize(("placed", "broken"), [(1, 1), (2, 0)])
def test_half_a_gang_is_noticed_after_a_while(placed: int, broken: int) -> None:
    async def main() -> list[str]:
        world, found = World(cluster_kinds(), 1), list[str]()
        begun(world, found)
        let_in(world, "job", "modest", 2)
        for index in range(placed):
            has_pod(world, "job", index, node=f"node-{index}")
        assert found == []
        await virtualtime.VirtualClock().sleep(LONGEST_HALF_S + 1)
        submitted(world, "other", "modest")
        return found

    assert len(virtualtime.run(main)) == broken


def test_a_quota_counts_for_a_moment_after_it_is_lowered() -> None:
    async def main(seconds: float) -> list[str]:
        world, found = World(cluster_kinds(), 1), list[str]()
        begun(world, found)
        lowered = {"spec": {"quota": {"gpus": 8}}}
        world.change(TORCHRUN_QUEUE, Key("team", "ranked"), lambda old: {**old, **lowered})
        await world.clock.sleep(seconds)
        let_in(world, "job", "modest", 2)
        return found

    assert [len(virtualtime.run(partial(main, seconds))) for seconds in (1, LATE_S + 1)] == [0, 1]


@pytest.mark.parametrize(("seconds", "behind_s", "broken"), [(1, 0, 0), (LATE_S + 1, 0, 1), (LATE_S + 1, 30, 0)])
def test_a_node_counts_for_a_moment_after_it_went(seconds: float, behind_s: float, broken: int) -> None:
    """Its pods may have been seen to go before the node: each has a watch, and that of nodes may be silent."""

    async def main() -> list[str]:
        world, found = World(cluster_kinds(), 1), list[str]()
        begun(world, found, 2, behind_s)
        for number in range(2):
            let_in(world, f"job-{number}", "modest")
            has_pod(world, f"job-{number}", node=f"node-{number}")
        world.delete(NODE, Key("", "node-1"))
        world.delete(POD, Key("team", "job-1-0"))
        world.delete(TORCHRUN_JOB, Key("team", "job-1"))
        await world.clock.sleep(seconds)
        let_in(world, "next", "modest")
        return found

    assert len(virtualtime.run(main)) == broken


def no_room_for_all_of_a_gang(world: World) -> None:
    let_in(world, "one", "modest", 2)
    let_in(world, "two", "urgent", 2)


def test_a_gang_that_is_let_in_without_room_is_noticed() -> None:
    async def main(nodes: int) -> list[str]:
        world, found = World(cluster_kinds(), 1), list[str]()
        begun(world, found, nodes)
        no_room_for_all_of_a_gang(world)
        return found

    assert [len(virtualtime.run(partial(main, nodes))) for nodes in (3, 4)] == [1, 0]


NAMES, GONE = ["node-0", "node-1", "node-2"], ["node-3", "node-4"]


@pytest.mark.parametrize(
    ("other", "own", "broken"),
    [
        ({}, {}, 1),
        ({"avoidNodes": NAMES}, {}, 0),
        ({"avoidNodes": NAMES[:2]}, {}, 1),
        ({"onlyNodes": GONE}, {}, 0),
        ({"onlyNodes": [*GONE, *NAMES[:1]]}, {}, 1),
        ({"avoidNodes": NAMES}, {"onlyNodes": NAMES[:2]}, 1),
        ({"avoidNodes": NAMES}, {"avoidNodes": NAMES[:1]}, 1),
        ({"avoidNodes": NAMES}, {"onlyNodes": NAMES}, 0),
    ],
)
def test_room_counts_on_the_nodes_that_gangs_may_use(other: Json, own: Json, broken: int) -> None:
    """A gang of three pods is let in on three nodes beside one that lacks its pods, because two more nodes went."""

    async def main() -> list[str]:
        world, found = World(cluster_kinds(), 1), list[str]()
        begun(world, found, 5)
        told(world, submitted(world, "other", "modest", 2), **LET_IN, **other)
        for name in GONE:
            world.delete(NODE, Key("", name))
        await world.clock.sleep(LATE_S + 1)
        told(world, submitted(world, "own", "urgent", 3), **LET_IN, **own)
        return found

    assert len(virtualtime.run(main)) == broken


@pytest.mark.parametrize(
    ("others", "own", "broken"),
    [
        ([{"onlyNodes": ["node-2", "node-3"]}, {"onlyNodes": ["node-3"]}], {"avoidNodes": ["node-3", "node-4"]}, 1),
        ([{"onlyNodes": ["node-2", "node-3"]}, {}], {"onlyNodes": NAMES}, 1),
        ([{"onlyNodes": ["node-2", "node-3"]}, {"onlyNodes": ["node-4"]}], {"onlyNodes": NAMES}, 0),
        ([{}], {"onlyNodes": NAMES[:2]}, 1),
        ([{}], {"onlyNodes": NAMES}, 0),
    ],
)
def test_each_gang_finds_room_on_its_own_nodes(others: list[Json], own: Json, broken: int) -> None:
    """A gang of three pods is let in on four nodes; there is one place for others, and not each may take it."""

    async def main() -> list[str]:
        world, found = World(cluster_kinds(), 1), list[str]()
        begun(world, found, 5)
        for number, other in enumerate(others):
            told(world, submitted(world, f"other-{number}", "modest"), **LET_IN, **other)
        world.delete(NODE, Key("", "node-4"))
        await world.clock.sleep(LATE_S + 1)
        told(world, submitted(world, "own", "urgent", 3), **LET_IN, **own)
        return found

    assert len(virtualtime.run(main)) == broken


@pytest.mark.parametrize(("half_free", "broken"), [(False, 1), (True, 0)])
def test_half_a_node_is_no_room_beside_a_whole_pod(half_free: bool, broken: int) -> None:
    """The only empty node is about to be taken by a gang that nodes are brought for."""

    async def main() -> list[str]:
        world, found = World(cluster_kinds(), 1), list[str]()
        begun(world, found, 2)
        let_in(world, "there", "plain")
        has_pod(world, "there", node="node-0", gpus=4 if half_free else 8)
        let_in(world, "whole", "brought")
        await world.clock.sleep(LATE_S + 1)
        let_in(world, "half", "plain")
        return found

    assert len(virtualtime.run(main)) == broken


def test_room_that_fits_no_pod_is_shared_with_nobody() -> None:
    """Both gangs may use a node by their records; half of it is taken, and their pods need all of it."""

    async def main() -> list[str]:
        world, found = World(cluster_kinds(), 1), list[str]()
        begun(world, found, 5)
        let_in(world, "half", "plain")
        has_pod(world, "half", node="node-3", gpus=4)
        told(world, submitted(world, "other", "modest"), **LET_IN, avoidNodes=NAMES)
        world.delete(NODE, Key("", "node-4"))
        await world.clock.sleep(LATE_S + 1)
        let_in(world, "own", "urgent", 3)
        return found

    assert virtualtime.run(main) == []


def test_a_pod_that_succeeded_needs_no_room_once_gone() -> None:
    """Its node went, and it with that; its Job makes no other one for the index."""

    async def main(phase: str) -> list[str]:
        world, found = World(cluster_kinds(), 1), list[str]()
        begun(world, found, 5)
        let_in(world, "other", "modest", 2)
        for index in range(2):
            has_pod(world, "other", index, f"node-{3 + index}")
        world.report(POD, Key("team", "other-1"), {"phase": phase})
        world.delete(NODE, Key("", "node-4"))
        world.delete(POD, Key("team", "other-1"))
        await world.clock.sleep(LATE_S + 1)
        let_in(world, "own", "urgent", 3)
        return found

    assert [len(virtualtime.run(partial(main, phase))) for phase in ("Failed", "Succeeded")] == [1, 0]


def test_a_gang_without_gpus_needs_no_room() -> None:
    async def main() -> list[str]:
        world, found = World(cluster_kinds(), 1), list[str]()
        begun(world, found, 2)
        let_in(world, "half", "modest", 2)
        world.delete(NODE, Key("", "node-1"))
        await world.clock.sleep(LATE_S + 1)
        let_in(world, "next", "served")
        return found

    assert virtualtime.run(main) == []


async def looks(world: World, seconds: float) -> None:
    """Lets time pass; something happens now and then."""
    for number in range(int(seconds // 100)):
        await world.clock.sleep(100)
        submitted(world, f"other-{seconds:g}-{number}", "plain")


@pytest.mark.parametrize(("nodes", "broken"), [(2, True), (1, False)])
def test_nodes_that_stay_empty_while_a_job_waits_are_noticed(nodes: int, broken: bool) -> None:
    async def main() -> list[str]:
        world, found = World(cluster_kinds(), 1), list[str]()
        begun(world, found, nodes)
        world.report(TORCHRUN_JOB, submitted(world, "job", "modest", 2), WAITS)
        await looks(world, LONGEST_EMPTY_S + 300)
        return found

    assert bool(virtualtime.run(main)) is broken


@pytest.mark.parametrize(
    ("reason", "nodes", "waits_for", "broken"),
    [
        ("QuotaShort", 1, {}, True),
        ("QuotaShort", 1, {"waitsFor": "team/other"}, False),
        ("QuotaShort", 7, {}, False),
        ("NodesShort", 2, {}, True),
        ("NodesShort", 5, {}, False),
        ("NeverFits", 2, {}, True),
        ("NeverFits", 5, {}, False),
        ("RoomKept", 2, {}, False),
    ],
)
def test_a_gang_that_is_told_what_is_false_is_noticed(
    reason: str, nodes: int, waits_for: dict[str, str], broken: bool
) -> None:
    async def main() -> list[str]:
        world, found = World(cluster_kinds(), 1), list[str]()
        begun(world, found, 4)
        record = {**WAITS["admission"], "reason": reason, **waits_for}
        world.report(TORCHRUN_JOB, submitted(world, "job", "modest", nodes), {**WAITS, "admission": record})
        await looks(world, LONGEST_UNTRUE_S + 300)
        return found

    assert bool(virtualtime.run(main)) is broken


@pytest.mark.parametrize(("reserved", "broken"), [(False, 1), (True, 0)])
def test_a_gang_that_passes_one_that_waits_long_is_noticed(reserved: bool, broken: int) -> None:
    async def main() -> list[str]:
        world, found = World(cluster_kinds(), 1), list[str]()
        begun(world, found, 4)
        let_in(world, "first", "modest", 2)
        for index in range(2):
            has_pod(world, "first", index, node=f"node-{index}")
        told = WAITS | {"admission": {**WAITS["admission"], "reserved": reserved}}
        world.report(TORCHRUN_JOB, submitted(world, "large", "modest", 3), told)
        await looks(world, RESERVE_S + LONG_SINCE_S + 300)
        let_in(world, "small", "modest")
        return found

    assert len(virtualtime.run(main)) == broken


def test_each_kind_of_job_ends_when_it_is_let_in() -> None:
    kinds = sorted(COORDINATED.keys() - KINDS.keys())
    submits = tuple(Submit(1.0, f"job-{kind}", kind, 2, Fate(60)) for kind in kinds)
    told = live(Day(1, 0.1, submits, coordinated=True))
    assert (told.broken, dict(told.ends)) == ((), {"Succeeded": len(kinds)})


def test_jobs_end_although_places_nodes_and_quotas_change() -> None:
    fate = Fate(600)
    actions = (
        Submit(1.0, "whole", "modest", 4, fate),
        Intrude(2.0, 4, 8, 400.0),
        Submit(30.0, "owned", "owner", 4, fate),
        RemoveNode(200.0, "node-1"),
        Submit(201.0, "lent", "borrower", 2, fate),
        Prioritise(210.0, "lent", 20),
        AdjustQueue(220.0, "lender", 2, 8),
        AddNode(600.0, "node-99"),
    )
    told = live(Day(1, 0.5, actions, coordinated=True))
    assert (told.broken, dict(told.ends)) == ((), {"Succeeded": 3})
