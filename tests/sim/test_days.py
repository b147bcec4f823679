"""Random days of a simulated cluster: drawn, lived through, judged, shrunk and replayed."""

import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import JOB, POD
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.runtime.kinds import EVENT, Key
from torchctl.testing import virtualtime
from torchctl.testing.gangs import POD_GROUP_NAME
from torchctl.testing.sim import World
from torchctl.testing.sim.days.actions import Day, Evict, Fail, Fate, Submit, read_day, write_day
from torchctl.testing.sim.days.causes import unfounded
from torchctl.testing.sim.days.drawing import draw
from torchctl.testing.sim.days.jobs import KINDS, job, queues
from torchctl.testing.sim.days.living import Told, live
from torchctl.testing.sim.days.resting import STILL_S, Motion
from torchctl.testing.sim.days.rules import Rules, at_rest, without_queues
from torchctl.testing.sim.days.shrinking import cut, shorten, shrink
from torchctl.testing.sim.days.telling import Telling
from torchctl.testing.sim.kinds import cluster_kinds

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).parent / "failures"
FAILURES = sorted(KEPT.glob("*.json"))
"""Days that once broke a rule, shrunk."""

STARVES = Day(1, 0.3, (Submit(1.0, "job", "gang", 9, Fate(60)),))
"""A gang of nine nodes waits for ever in a cluster of eight."""


@cache
def short_day(seed: int) -> Told:
    return live(draw(seed, 0.3))


@pytest.mark.parametrize("seed", range(2))
def test_no_rule_breaks_on_a_short_day(seed: int) -> None:
    told = short_day(seed)
    assert told.broken == ()
    assert told.ends.total() > 1


def test_a_day_lived_twice_is_the_same() -> None:
    assert live(draw(1, 0.3)).digest == short_day(1).digest


@pytest.mark.parametrize("path", FAILURES, ids=lambda path: path.stem)
def test_days_that_broke_a_rule_break_none_now(path: Path) -> None:
    assert live(read_day(path.read_text())).broken == ()


def test_failing_day_is_kept_shrunk_where_tests_find_it(tmp_path: Path) -> None:
    """Beside days of the same seed that are there already."""
    kept = tmp_path / KEPT.relative_to(ROOT)
    kept.mkdir(parents=True)
    (tmp_path / "day.json").write_text(write_day(STARVES))
    (kept / "seed-1.json").write_text("another day")
    argv = [sys.executable, "-m", "torchctl.testing.sim", "--replay", "day.json"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    (file,) = {*kept.glob("*.json")} - {kept / "seed-1.json"}
    assert (kept / "seed-1.json").read_text() == "another day"
    assert str(file.relative_to(tmp_path)) in done.stdout
    day = read_day(file.read_text())
    assert day.actions == STARVES.actions
    assert day.hours < STARVES.hours


def test_days_are_read_as_they_are_written() -> None:
    for day in (draw(3, 5), cut(draw(3, 5), 60.0)):
        assert read_day(write_day(day)) == day


@given(st.sets(st.integers(0, 60), min_size=1, max_size=4))
def test_shrinking_leaves_what_is_needed(needed: set[int]) -> None:
    assert {*shorten([*range(61)], lambda items: needed <= {*items})} == needed


def test_a_day_is_cut_where_it_broke_a_rule() -> None:
    day = draw(1, 5)
    first = cut(day, 3600.0)
    assert (first.hours, first.rests) == (1.0, False)
    assert first.actions == tuple(action for action in day.actions if action.at_s <= 3600)
    assert cut(day, 9e9) == day


def test_shrinking_gives_up_after_so_many_days() -> None:
    lived: list[Day] = []

    def passes(day: Day) -> bool:
        lived.append(day)
        return False

    shrink(draw(1, 5), passes, most=3)
    assert len(lived) == 3


def test_shrinking_gives_up_after_so_long() -> None:
    times, lived = iter(range(100)), list[Day]()

    def fails(day: Day) -> bool:
        lived.append(day)
        return True

    found = shrink(draw(1, 5), fails, longest_s=4, now_s=lambda: float(next(times, 100)))
    assert found == lived[-1]
    assert len(lived) == 3


def test_a_shrunk_day_ends_soon_after_its_last_action() -> None:
    day = draw(1, 5)
    found = shrink(day, lambda day: day.actions[0] == draw(1, 5).actions[0])
    assert found.actions == day.actions[:1]
    assert found.hours < 1


def test_a_day_that_never_rests_is_given_up_soon() -> None:
    told = live(STARVES)
    assert "job: is Queued at the end of the day" in told.broken[0]
    assert told.seconds < STILL_S + 3600


def test_jobs_that_never_end_are_given_up_though_things_happen() -> None:
    async def main() -> list[bool]:
        world, found = World(cluster_kinds(), 1), list[bool]()
        motion = Motion(world.clock)
        world.objects.listeners.append(motion.on_change)
        submitted(world)
        for attempt in range(1, 10):
            await world.clock.sleep(3600)
            has(world, attempt=attempt)
            found.append(motion.is_in_vain)
        return found

    assert virtualtime.run(main) == [False] * 8 + [True]


def submitted(world: World, kind: str = "plain") -> str:
    body = job(Submit(0, "job", kind, 2, Fate(10)))
    uid: str = world.create(TORCHRUN_JOB, "team", body)["metadata"]["uid"]
    return uid


def has(world: World, **status: Any) -> None:
    world.report(TORCHRUN_JOB, Key("team", "job"), status)


def made(world: World, uid: str, attempt: int = 0) -> Key:
    labels = {"torchrun.ai/job-uid": uid, "torchrun.ai/attempt": str(attempt), "torchrun.ai/role": "worker"}
    name = f"job-r{attempt}"
    template: dict[str, Any] = {"spec": {"containers": []}}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": labels}}
    world.create(JOB, "team", {**body, "spec": {"template": template}})
    return Key("team", name)


def runs(world: World, uid: str, attempt: int = 0, annotations: dict[str, str] | None = None) -> Key:
    labels = {"torchrun.ai/job-uid": uid, "torchrun.ai/attempt": str(attempt), "torchrun.ai/role": "worker"}
    meta = {"name": f"pod-{attempt}", "labels": labels, "annotations": annotations or {}}
    world.create(POD, "team", {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": []}})
    return Key("team", f"pod-{attempt}")


def loses_a_worker(world: World, uid: str, attempt: int = 0) -> None:
    world.delete(POD, runs(world, uid, attempt))


def runs_again(world: World, uid: str) -> None:
    has(world, phase="Failed")
    has(world, phase="Running")


def is_made_twice(world: World, uid: str) -> None:
    world.delete(JOB, made(world, uid))
    made(world, uid)


def is_made_after_the_end(world: World, uid: str) -> None:
    has(world, phase="Succeeded")
    made(world, uid)


def overlaps(world: World, uid: str) -> None:
    runs(world, uid)
    made(world, uid, attempt=1)


def counts_twice(world: World, uid: str) -> None:
    loses_a_worker(world, uid)
    has(world, restarts={"total": 1, "byCause": {"Error": 1}})
    has(world, restarts={"total": 2, "byCause": {"Error": 2}})


def forgets_an_incident(world: World, uid: str) -> None:
    loses_a_worker(world, uid)
    has(world, restarts={"total": 1, "byCause": {"Error": 1}})
    has(world, restarts={"total": 0, "byCause": {}})


def miscounts(world: World, uid: str) -> None:
    loses_a_worker(world, uid)
    has(world, restarts={"total": 1, "byCause": {}})


def restarts_for_nothing(world: World, uid: str) -> None:
    has(world, attempt=1)


def goes_back(world: World, uid: str) -> None:
    loses_a_worker(world, uid)
    has(world, attempt=1, restarts={"total": 1, "byCause": {"Error": 1}})
    has(world, attempt=0, restarts={"total": 1, "byCause": {"Error": 1}})


def restarts_without_a_loss(world: World, uid: str) -> None:
    has(world, restarts={"total": 1, "byCause": {"Error": 1}})


def half_a_gang(world: World, uid: str) -> None:
    pod = runs(world, uid, annotations={POD_GROUP_NAME: "pg"})
    world.change(POD, pod, lambda old: {**old, "spec": {**old["spec"], "nodeName": "node-0"}})
    world.report(POD, pod, {"phase": "Running"})


@pytest.mark.parametrize(
    "breach",
    [
        half_a_gang,
        runs_again,
        is_made_twice,
        is_made_after_the_end,
        overlaps,
        counts_twice,
        forgets_an_incident,
        miscounts,
        restarts_for_nothing,
        goes_back,
        restarts_without_a_loss,
    ],
    ids=lambda breach: breach.__name__,
)
def test_breaches_are_noticed(breach: Callable[[World, str], None]) -> None:
    async def main() -> list[str]:
        world, rules = World(cluster_kinds(), 1), Rules()
        world.objects.listeners.append(rules.on_change)
        uid = submitted(world)
        assert rules.broken == []
        breach(world, uid)
        return rules.broken

    assert len(virtualtime.run(main)) == 1


@pytest.mark.parametrize(
    ("deleted", "phase", "broken"), [(False, "Succeeded", 1), (True, "Succeeded", 0), (True, "Failed", 1)]
)
def test_a_doubted_end_may_be_trained_once_more(deleted: bool, phase: str, broken: int) -> None:
    """The kubelet and a person delete a pod that has ended in the same way. One that failed completes no Job."""

    async def main() -> list[str]:
        world, rules = World(cluster_kinds(), 1), Rules()
        world.objects.listeners.append(rules.on_change)
        uid = submitted(world)
        first, pod = made(world, uid), runs(world, uid)
        world.change(POD, pod, lambda old: {**old, "metadata": {**old["metadata"], "finalizers": ["job-tracking"]}})
        world.report(POD, pod, {"phase": phase})
        if deleted:
            world.delete(POD, pod)
        world.report(JOB, first, {"conditions": [{"type": "Complete", "status": "True"}]})
        made(world, uid, attempt=1)
        return rules.broken

    assert len(virtualtime.run(main)) == broken


TURNED = {"phase": "Pending", "conditions": [{"type": "Accepted", "status": "False", "reason": "InvalidSpec"}]}


@pytest.mark.parametrize(("times", "broken"), [(1, 0), (2, 1)])
def test_events_that_tell_of_something_twice_are_noticed(times: int, broken: int) -> None:
    async def main() -> list[str]:
        world, found = World(cluster_kinds(), 1), list[str]()
        world.objects.listeners.append(Telling(found).on_change)
        uid = submitted(world)
        has(world, **TURNED)
        told = {"involvedObject": {"kind": "TorchrunJob", "name": "job", "uid": uid}, "reason": "InvalidSpec"}
        told |= {"message": "", "reportingComponent": "torchctl", "metadata": {"name": "told"}}
        for count in range(1, times + 1):
            event = told | {"apiVersion": "v1", "kind": "Event", "count": count}
            if count == 1:
                world.create(EVENT, "team", event)
            else:
                world.change(EVENT, Key("team", "told"), partial(counted, count))
        return found

    assert len(virtualtime.run(main)) == broken


def counted(count: int, event: dict[str, Any]) -> dict[str, Any]:
    return {**event, "count": count}


def test_what_queues_leave_behind_is_noticed() -> None:
    async def main() -> list[str]:
        world = World(cluster_kinds(), 1)
        for queue in queues():
            world.create(TORCHRUN_QUEUE, "team", queue)
        return without_queues(world.objects, world.server.kinds)

    assert len(virtualtime.run(main)) == len(queues())


def test_causes_that_nobody_brought_about_are_noticed() -> None:
    day = Day(1, 1, (Submit(0, "job", "plain", 2, Fate(10)), Evict(1, "job", 0), Fail(1, "other", 0, 1)))
    assert unfounded(day, {"job": {"Evicted": 2}, "other": {"Error": 1}}) == []
    assert len(unfounded(day, {"job": {"Error": 1, "NodeLost": 1}})) == 2


def test_leaks_and_unfinished_jobs_are_noticed_at_rest() -> None:
    async def main() -> list[str]:
        world = World(cluster_kinds(), 1)
        uid = submitted(world)
        runs(world, uid)
        made(world, "nobody")
        return at_rest(world.objects, world.server.kinds)

    unfinished, running, leaked = virtualtime.run(main)
    assert "job: is new" in unfinished
    assert "pod-0: runs although" in running
    assert "job-r0: its TorchrunJob is gone" in leaked


def test_each_kind_of_job_ends_when_nothing_happens_to_it() -> None:
    day = Day(1, 0.1, tuple(Submit(1.0, f"job-{kind}", kind, 2, Fate(60)) for kind in KINDS))
    told = live(day)
    assert (told.broken, dict(told.ends)) == ((), {"Succeeded": len(KINDS)})
