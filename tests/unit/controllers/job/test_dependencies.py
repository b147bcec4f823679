"""A job waits for the jobs that it names, says for which, and a knot of jobs that wait for each other is named."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from world import World

from torchctl.api.conditions import JobReason
from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.controllers.finding import Finding
from torchctl.controllers.indexes import JOBS_BY_DEPENDENCY, dependencies_of
from torchctl.controllers.job.steps.dependencies import assess
from torchctl.controllers.job.upstream import (
    MOST,
    is_awaited,
    jobs_that_wait,
    jobs_waited_for,
    upstream,
    upstream_turned,
)
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.cache.informer import Change
from torchctl.runtime.kinds import Key, Kind


def a_job(
    name: str, *waits: str, phase: str = "Pending", met: str = "", deleting: bool = False, failed: str = ""
) -> TorchrunJob:
    """A job that waits for others to succeed; `name!` is one that has to run. `met` is the reason of its condition."""
    wanted = [{"job": one.rstrip("!"), **({"condition": "Running"} if one.endswith("!") else {})} for one in waits]
    conditions = [{"type": "DependenciesMet", "status": "True", "reason": met, "message": "so it was"}] if met else []
    conditions += [{"type": "Failed", "status": "True", "reason": failed}] if failed else []
    body = {
        "metadata": {
            "name": name,
            "namespace": "team",
            **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}),
        },
        "spec": {"jobQueue": "research", "numNodes": 1, "command": "a", "dependsOn": wanted},
        "status": {"phase": phase, "conditions": conditions},
    }
    return msgspec.convert(body, TORCHRUN_JOB.type, dec_hook=TORCHRUN_JOB.dec_hook)


@dataclass
class Shelf:
    """Stands for the cache: jobs by name, with the index of whom they depend on."""

    jobs: dict[str, TorchrunJob]
    reads: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, *jobs: TorchrunJob) -> "Shelf":
        return cls({job.metadata.name: job for job in jobs})

    def get(self, kind: Kind[Any], key: Key) -> TorchrunJob | None:
        assert (kind, key.namespace) == (TORCHRUN_JOB, "team")
        self.reads.append(key.name)
        return self.jobs.get(key.name)

    def by_index(self, kind: Kind[Any], index: str, value: str) -> Iterable[TorchrunJob]:
        assert (kind, index) == (TORCHRUN_JOB, JOBS_BY_DEPENDENCY)
        return [job for job in self.jobs.values() if value in dependencies_of(job)]

    def judged(self, name: str) -> Finding:
        return assess(self.jobs[name], upstream(cast(Cache, self), self.jobs[name]))

    def waiting(self, *sides: TorchrunJob | None) -> set[str]:
        """Who is woken by a change of a job, of which both sides are given."""
        return {key.name for job in sides if job is not None for key in jobs_that_wait(cast(Cache, self), job)}


def change(old: TorchrunJob | None, new: TorchrunJob | None) -> Change[TorchrunJob]:
    return Change(TORCHRUN_JOB, "updated", old, new)


def judged(job: TorchrunJob, *others: TorchrunJob) -> Finding:
    return Shelf.of(job, *others).judged(job.metadata.name)


def test_a_job_that_names_no_other_waits_for_none() -> None:
    assert judged(a_job("train")) == Finding(True, JobReason.NO_DEPENDENCIES, "the job depends on no other job")


@pytest.mark.parametrize("phase", ["", "Pending", "Queued", "Starting", "Running", "Restarting", "Suspended"])
def test_a_job_that_has_not_succeeded_is_waited_for(phase: str) -> None:
    found = judged(a_job("train", "prep"), a_job("prep", phase=phase))
    assert (found.ok, found.reason, found.warn) == (False, "WaitingForDependency", False)
    assert found.message == "waits for TorchrunJob prep to succeed; this job goes on by itself then"


@pytest.mark.parametrize(
    ("phase", "condition", "met"),
    [
        ("Succeeded", "", True),
        ("Running", "", False),
        ("Running", "!", True),
        ("Succeeded", "!", True),
        ("Starting", "!", False),
        ("Restarting", "!", False),
    ],
)
def test_succeeded_meets_both_wishes_and_running_only_its_own(phase: str, condition: str, met: bool) -> None:
    found = judged(a_job("train", f"prep{condition}"), a_job("prep", phase=phase))
    assert (found.ok, found.reason) == ((True, "DependenciesMet") if met else (False, "WaitingForDependency"))
    assert "TorchrunJob prep" in found.message


def test_missing_jobs_are_named_with_what_to_do() -> None:
    """The message also names the jobs that exist and are waited for."""
    found = judged(a_job("train", "a", "b", "c!", "d"), a_job("c"), a_job("d", phase="Succeeded"))
    assert (found.reason, found.warn) == ("DependencyNotFound", True)
    assert found.message == (
        "TorchrunJob a does not exist: create it; TorchrunJob b does not exist: create it; waits for TorchrunJob c to "
        "run; this job goes on by itself then"
    )


@pytest.mark.parametrize("condition", ["", "!"])
def test_a_job_fails_with_its_dependency_and_says_why(condition: str) -> None:
    prep = a_job("prep", phase="Failed", failed="WorkerFailed")
    found = judged(a_job("train", "missing", f"prep{condition}"), prep)
    assert (found.ok, found.reason, found.warn) == (False, "DependencyFailed", True)
    assert found.message.startswith("TorchrunJob prep has failed (WorkerFailed): ")


@pytest.mark.parametrize("phase", ["Failed", "Running", "Pending"])
def test_a_job_that_is_being_deleted_counts_as_missing(phase: str) -> None:
    """A job that is being deleted can be submitted again."""
    found = judged(a_job("train", "prep!"), a_job("prep", phase=phase, deleting=True))
    assert (found.reason, found.warn) == ("DependencyNotFound", True)
    assert "TorchrunJob prep is being deleted: create it again" in found.message


def test_a_succeeded_job_is_enough_even_while_being_deleted() -> None:
    assert judged(a_job("train", "prep"), a_job("prep", phase="Succeeded", deleting=True)).ok


@pytest.mark.parametrize("others", [[], [a_job("prep", phase="Failed")], [a_job("prep", "train")]])
def test_dependencies_met_once_stay_met(others: list[TorchrunJob]) -> None:
    """Later changes of the other jobs do not matter."""
    shelf = Shelf.of(a_job("train", "prep", met="DependenciesMet"), *others)
    assert (shelf.judged("train").ok, shelf.judged("train").reason) == (True, "DependenciesMet")
    assert shelf.reads == []


# Cycles.


def test_each_job_of_a_cycle_names_its_own_path() -> None:
    shelf = Shelf.of(a_job("a", "b"), a_job("b", "c!"), a_job("c", "a"))
    said = {name: shelf.judged(name) for name in "abc"}
    assert {one.reason for one in said.values()} == {"DependencyCycle"}
    assert all(one.warn and not one.ok for one in said.values())
    for name, path in (("a", "a -> b -> c -> a"), ("b", "b -> c -> a -> b"), ("c", "c -> a -> b -> c")):
        assert f", {path}: none of them can start; delete one" in said[name].message


def test_a_job_that_waits_for_a_cycle_names_it() -> None:
    shelf = Shelf.of(a_job("train", "b"), a_job("other", "c"), a_job("b", "c"), a_job("c", "a"), a_job("a", "b"))
    for name in ("train", "other"):
        assert shelf.judged(name).reason == "DependencyCycle"
        assert ", a -> b -> c -> a: " in shelf.judged(name).message


def test_a_broken_cycle_holds_nobody_up() -> None:
    """A cycle is broken if one of its jobs has left it."""
    jobs = (a_job("a", "b"), a_job("b", "c", met="DependenciesMet", phase="Running"), a_job("c", "a"))
    assert {Shelf.of(*jobs).judged(name).reason for name in "ac"} == {"WaitingForDependency"}


def test_a_failure_ends_a_cycle() -> None:
    shelf = Shelf.of(a_job("a", "b", "prep"), a_job("b", "a"), a_job("prep", phase="Failed"))
    assert shelf.judged("a").reason == "DependencyFailed"


def test_a_long_cycle_is_cut_in_the_message() -> None:
    names = [f"job-{index}" for index in range(40)]
    shelf = Shelf.of(*(a_job(name, after) for name, after in zip(names, [*names[1:], names[0]], strict=True)))
    message = shelf.judged("job-0").message
    assert "job-0 -> job-1 -> " in message
    assert message.partition(":")[0].endswith("job-9 -> ... -> job-0")
    assert len(message) < 512


def test_a_chain_is_read_up_to_a_bound() -> None:
    shelf = Shelf.of(*(a_job(f"job-{index}", f"job-{index + 1}") for index in range(2 * MOST)))
    assert shelf.judged("job-0").reason == "WaitingForDependency"
    assert len(shelf.reads) == MOST


NAMES = "abcdef"
PHASES = ("Pending", "Running", "Succeeded", "Failed")


@st.composite
def graphs(draw: st.DrawFn, phases: tuple[str, ...] = PHASES) -> Shelf:
    """Some jobs of which any may name any other, also such as do not exist."""
    there = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    jobs = []
    for name in there:
        wanted = draw(st.lists(st.sampled_from(NAMES.replace(name, "")), max_size=3, unique=True))
        waits = [one + draw(st.sampled_from(("", "!"))) for one in wanted]
        phase = draw(st.sampled_from(phases))
        through = phase in ("Running", "Succeeded") or draw(st.booleans() if phase == "Failed" else st.just(False))
        jobs.append(a_job(name, *waits, phase=phase, met="DependenciesMet" if through else ""))
    return Shelf.of(*jobs)


def still_waits(job: TorchrunJob, others: Mapping[str, TorchrunJob]) -> list[str]:
    """For whom a job still waits, written down once more: Failed and latched jobs wait for nobody."""
    if job.status.phase == "Failed" or job.status.conditions:
        return []
    enough = {"Succeeded": ("Succeeded",), "Running": ("Running", "Succeeded")}
    return [
        wanted.job
        for wanted in job.spec.depends_on
        if wanted.job not in others or others[wanted.job].status.phase not in enough[wanted.condition]
    ]


def knots(jobs: Mapping[str, TorchrunJob]) -> set[str]:
    """The jobs that no order can start, however the others fare: what is left when all that can start has."""
    left = {name: still_waits(job, jobs) for name, job in jobs.items()}
    while free := [name for name, waits in left.items() if not any(one in left for one in waits)]:
        for name in free:
            del left[name]
    return set(left)


@given(graphs())
def test_a_cycle_is_reported_exactly_if_no_order_works(shelf: Shelf) -> None:
    """No order works if none would let the job start."""
    stuck = knots(shelf.jobs)
    for name, job in shelf.jobs.items():
        if not still_waits(job, shelf.jobs):
            continue
        found = shelf.judged(name)
        if found.reason == JobReason.DEPENDENCY_FAILED:
            assert any(
                shelf.jobs[one].status.phase == "Failed" for one in still_waits(job, shelf.jobs) if one in shelf.jobs
            )
            continue
        assert (found.reason == JobReason.DEPENDENCY_CYCLE) == (name in stuck)
        if name in stuck:
            path = cycle_named(found)
            assert path[0] == path[-1]
            assert len(set(path)) == len(path) - 1 >= 2
            for one, after in pairwise(path):
                assert after in still_waits(shelf.jobs[one], shelf.jobs)


def begun(job: TorchrunJob, phase: str) -> TorchrunJob:
    waits = [wanted.job + ("!" if wanted.condition == "Running" else "") for wanted in job.spec.depends_on]
    return a_job(job.metadata.name, *waits, phase=phase, met="DependenciesMet")


@given(graphs(phases=("Pending",)), st.sets(st.sampled_from(NAMES)))
def test_every_job_ends_unless_one_is_missing_or_cyclic(shelf: Shelf, failing: set[str]) -> None:
    """Each job runs as soon as it may; what then still waits says why, and nobody is forgotten."""
    live = replace(shelf, jobs=dict(shelf.jobs))
    woken = set(live.jobs)
    while woken:
        name = min(woken)
        woken.discard(name)
        job = live.jobs[name]
        if job.status.phase in ("Succeeded", "Failed"):
            continue
        if job.status.phase == "Running":
            after = begun(job, "Failed" if name in failing else "Succeeded")
        elif (found := live.judged(name)).ok:
            after = begun(job, "Running")
        elif found.reason == JobReason.DEPENDENCY_FAILED:
            after = msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, phase="Failed"))
        else:
            continue
        live.jobs[name] = after
        assert upstream_turned(change(job, after))
        woken |= {name} | live.waiting(job, after)
    for name, job in live.jobs.items():
        if job.status.phase == "Pending":
            held = set(still_waits(job, live.jobs))
            assert any(one not in live.jobs or live.jobs[one].status.phase == "Pending" for one in held)
            assert not any(live.jobs[one].status.phase == "Failed" for one in held if one in live.jobs)
            assert (live.judged(name).reason == JobReason.DEPENDENCY_CYCLE) == (name in knots(live.jobs))


# Who is woken.


def test_a_change_wakes_only_direct_dependents() -> None:
    shelf = Shelf.of(
        a_job("prep"),
        a_job("train", "prep"),
        a_job("report", "train"),
        a_job("runs", "prep", met="DependenciesMet"),
        a_job("other", "elsewhere"),
        a_job("ended", "prep", phase="Failed"),
    )
    assert shelf.waiting(shelf.jobs["prep"]) == {"train"}


def test_a_cycle_that_closes_or_opens_wakes_all_dependents() -> None:
    closing = a_job("a", "b")
    shelf = Shelf.of(closing, a_job("b", "a"), a_job("train", "b"), a_job("report", "train"))
    assert shelf.waiting(None, closing) == {"a", "b", "train", "report"}
    del shelf.jobs["a"]
    assert shelf.waiting(closing, None) == {"b", "train", "report"}


def test_a_job_between_a_cycle_and_its_dependents_wakes_them() -> None:
    """A new job that connects a cycle with waiting jobs wakes all of these."""
    between = a_job("between", "a")
    shelf = Shelf.of(a_job("a", "b"), a_job("b", "a"), between, a_job("train", "between"), a_job("report", "train"))
    assert shelf.waiting(None, between) == {"train", "report"}


def test_a_cycle_is_assumed_unless_all_upstream_is_read() -> None:
    chain = [a_job(f"job-{index}", f"job-{index + 1}") for index in range(2 * MOST)]
    shelf = Shelf.of(a_job("report", "train"), a_job("train", "job-0"), *chain)
    assert shelf.waiting(chain[0]) == {"train", "report"}


def cycle_named(found: Finding) -> list[str]:
    assert found.reason == JobReason.DEPENDENCY_CYCLE
    return found.message.partition(", ")[2].partition(":")[0].split(" -> ")


@st.composite
def changes(draw: st.DrawFn) -> tuple[Shelf, TorchrunJob | None, TorchrunJob | None]:
    """Jobs that mostly wait for each other, and one of them before and after a change."""
    jobs: dict[str, TorchrunJob] = {}
    for name in NAMES:
        wanted = draw(st.lists(st.sampled_from(NAMES.replace(name, "")), max_size=2, unique=True))
        waits = [one + draw(st.sampled_from(("", "!"))) for one in wanted]
        job = jobs[name] = a_job(name, *waits)
        sides = [None, job, a_job(name, *waits, phase="Failed"), begun(job, "Running"), begun(job, "Succeeded")]
        if name == NAMES[0]:
            old, new = draw(st.permutations(sides))[:2]
        elif draw(st.integers(0, 3)) == 3:
            other = draw(st.sampled_from(sides))
            jobs = {**jobs, name: other} if other is not None else {one: jobs[one] for one in jobs if one != name}
    return Shelf(jobs), old, new


@given(changes())
def test_a_job_that_is_not_woken_is_judged_as_before(change_of: Any) -> None:
    """Or names a cycle that is there still, where there are now several to choose from."""
    shelf, old, new = change_of
    before, after = (
        Shelf({one: job for one, job in {**shelf.jobs, NAMES[0]: side}.items() if job is not None})
        for side in (old, new)
    )
    assert upstream_turned(change(old, new))
    for one in set(before.jobs) & set(after.jobs) - after.waiting(old, new) - {NAMES[0]}:
        said, says = before.judged(one), after.judged(one)
        if said != says:
            assert says.reason == JobReason.DEPENDENCY_CYCLE
            for waits, wanted in pairwise(cycle_named(said)):
                assert wanted in still_waits(after.jobs[waits], after.jobs)


def test_only_what_can_be_waited_for_wakes_others() -> None:
    before = a_job("prep", phase="Pending")
    assert upstream_turned(change(None, before))
    assert upstream_turned(change(before, None))
    assert not upstream_turned(change(before, a_job("prep", phase="Syncing")))
    for after in (
        a_job("prep", phase="Running"),
        a_job("prep", phase="Failed"),
        a_job("prep", deleting=True),
        a_job("prep", met="NoDependencies"),
    ):
        assert upstream_turned(change(before, after))
        assert not upstream_turned(change(after, after))


def test_a_job_in_the_first_list_wakes_nobody() -> None:
    """Every job is looked at then."""
    assert not upstream_turned(Change(TORCHRUN_JOB, "added", None, a_job("prep"), initial=True))


def test_a_job_that_starts_or_stops_waiting_wakes_its_upstream() -> None:
    assert jobs_waited_for(a_job("train", "prep", "data")) == (Key("team", "prep"), Key("team", "data"))
    assert jobs_waited_for(a_job("train")) == ()


def test_a_job_is_awaited_while_it_can_hold_others_up() -> None:
    def awaited(*others: TorchrunJob) -> bool:
        return is_awaited(cast(Cache, Shelf.of(a_job("prep"), *others)), a_job("prep"))

    assert awaited(a_job("train", "data", "prep"))
    assert not awaited()
    assert not awaited(a_job("train", "data"))
    assert not awaited(a_job("train", "prep", met="DependenciesMet"))
    assert not awaited(a_job("train", "prep", phase="Failed"))
    assert not awaited(a_job("train", "prep", deleting=True))


# In the life of a job.


def let(w: World, **upstream: TorchrunJob | None) -> World:
    w.seen = replace(w.seen, upstream=upstream)
    return w


WAITS = "{jobQueue: research, numNodes: 1, command: python a.py, dependsOn: [{job: prep}]}"


@pytest.mark.parametrize("prep", [None, a_job("prep"), a_job("prep", phase="Running")])
def test_a_job_that_waits_has_conditions_and_nothing_else(world: type[World], prep: TorchrunJob | None) -> None:
    w = let(world(WAITS), prep=prep)
    w.settle()
    assert (w.phase, w.objects, w.status.queue_revision) == ("Pending", {}, "")
    for later in ("WorkspaceReady", "Admitted", "WorkersReady"):
        assert w.condition(later)[:2] == ("False", "NotStarted")
    assert w.message("WorkspaceReady") == "waits for the jobs that it depends on"


def test_nothing_is_made_before_status_says_dependencies_are_met(world: type[World]) -> None:
    w = let(world(WAITS), prep=a_job("prep"))
    w.settle()
    let(w, prep=a_job("prep", phase="Succeeded"))
    w.step()
    assert w.objects == {}
    assert w.condition("DependenciesMet")[:2] == ("True", "DependenciesMet")
    let(w, prep=None)
    w.settle()
    assert w.has("Job", "demo")


def test_an_awaited_job_outlives_its_time_to_live(world: type[World]) -> None:
    w = world(
        "{jobQueue: research, numNodes: 1, command: python a.py, runPolicy: {ttlSecondsAfterFinished: 60}}",
    )
    w.settle()
    w.worker(0, "Succeeded")
    w.job_is("Complete")
    w.settle()
    w.seen = replace(w.seen, awaited=True)
    w.later(3600)
    w.step()
    assert (w.last.actions.remove, w.look_again_s()) == ((), None)
    w.seen = replace(w.seen, awaited=False)
    w.step()
    assert [removal.kind for removal in w.last.actions.remove] == [TORCHRUN_JOB]


def test_a_job_freezes_its_queue_once_dependencies_are_met(world: type[World]) -> None:
    w = let(world(WAITS), prep=a_job("prep"))
    w.settle()
    w.has_queue("image: later:2")
    w.settle()
    let(w, prep=a_job("prep", phase="Succeeded"))
    w.settle()
    assert w.trainer()["image"] == "later:2"


def test_a_failure_that_is_passed_on_is_reported_once(world: type[World]) -> None:
    """The failure of a dependency ends the job."""
    w = let(world(WAITS), prep=a_job("prep"))
    w.settle()
    let(w, prep=a_job("prep", phase="Failed", failed="WorkerFailed"))
    w.settle()
    assert w.phase == "Failed"
    assert w.condition("Failed")[:2] == ("True", "DependencyFailed")
    assert [event[:2] for event in w.events] == [("Warning", "DependencyFailed")]
    let(w, prep=a_job("prep", phase="Succeeded"))
    w.settle()
    assert (w.phase, w.objects) == ("Failed", {})
