"""A queue may leave the gang scheduler to the operator, which takes the first that is there and says which."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from world import World

from torchctl.api.kube import KAI_PODGROUP
from torchctl.api.nativegangs import NATIVE_PODGROUP
from torchctl.api.volcano import VOLCANO_PODGROUP
from torchctl.controllers.gangs.choice import ORDER, choose
from torchctl.controllers.gangs.groups import GROUP_KINDS
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.runtime.kinds import Kind

TWO = "{jobQueue: research, numNodes: 2, command: a}"
ELASTIC = "{jobQueue: research, numNodes: 3, command: a, elastic: {minNodes: 2, maxNodes: 4}}"
AUTO = "{image: a:1, scheduling: {scheduler: auto}}"
EVERY = (KAI_PODGROUP, VOLCANO_PODGROUP, NATIVE_PODGROUP)


def started(
    world: type[World], job: str = TWO, queue: str = AUTO, *, there: tuple[Kind[Any], ...] = (), default: str = ""
) -> World:
    """A job of a cluster that serves these kinds of PodGroups."""
    w = world(job, queue)
    w.settings = replace(w.settings, default_scheduler=default)
    w.lacks(*(kind for kind in EVERY if kind not in there))
    w.settle()
    return w


def taken(w: World) -> str:
    return FrozenTemplate.load(w.revision.data).gang_scheduler.name


@pytest.mark.parametrize(
    ("there", "job", "scheduler", "pods"),
    [
        (EVERY, TWO, "kai-scheduler", "kai-scheduler"),
        (EVERY[1:], TWO, "volcano", "volcano"),
        (EVERY[2:], TWO, "kubernetes", None),
        ((), TWO, "", None),
        (EVERY[1:], ELASTIC, "volcano", "volcano"),
        (EVERY[2:], ELASTIC, "", None),
    ],
)
def test_auto_takes_the_first_that_is_there(
    world: type[World], there: tuple[Kind[Any], ...], job: str, scheduler: str, pods: str | None
) -> None:
    w = started(world, job, there=there)
    assert taken(w) == scheduler
    assert w.spec("Job", "demo")["template"]["spec"].get("schedulerName") == pods
    assert w.condition("Admitted")[2].endswith(f"; scheduler auto took {scheduler or 'none'}")


def test_admitted_job_still_says_what_auto_took(world: type[World]) -> None:
    w = started(world, there=EVERY[1:]).runs()
    assert w.condition("Admitted") == ("True", "Admitted", "all 2 pods are placed; scheduler auto took volcano")
    w.settle()
    assert w.condition("Admitted")[2].count("auto") == 1


def test_scheduler_that_is_installed_later_changes_no_job(world: type[World]) -> None:
    w = started(world)
    w.lacks()
    w.settle()
    assert (taken(w), [kind for kind, _ in w.objects if kind == "PodGroup"]) == ("", [])


def test_auto_without_a_gang_takes_none(world: type[World]) -> None:
    w = started(world, queue="{image: a:1, scheduling: {scheduler: auto, gang: false}}", there=EVERY)
    assert (taken(w), w.condition("Admitted")[:2]) == ("", ("True", "NoGang"))


@pytest.mark.parametrize(
    ("queue", "scheduler"),
    [
        ("{image: a:1}", "volcano"),
        ("{image: a:1, scheduling: {scheduler: default-scheduler}}", ""),
        ("{image: a:1, kaiQueue: gpus}", "kai-scheduler"),
        ("{image: a:1, scheduling: {volcanoQueue: train}}", "volcano"),
        ("{image: a:1, scheduling: {scheduler: kubernetes}}", "kubernetes"),
    ],
)
@pytest.mark.parametrize("default", ["auto", "volcano"])
def test_operators_default_is_for_queues_that_name_none(
    world: type[World], queue: str, scheduler: str, default: str
) -> None:
    there = EVERY[1:] if scheduler != "kai-scheduler" else EVERY
    assert taken(started(world, queue=queue, there=there, default=default)) == scheduler


def test_auto_beside_a_kai_queue_is_refused(world: type[World]) -> None:
    w = started(world, queue="{image: a:1, kaiQueue: gpus, scheduling: {scheduler: auto}}", there=EVERY)
    assert "leave scheduling.scheduler auto out" in w.condition("QueueFound")[2]


def test_every_kind_of_pod_group_can_be_chosen() -> None:
    assert {kind for _, kind in ORDER} == set(GROUP_KINDS)


@given(st.sets(st.sampled_from(EVERY)), st.booleans())
def test_choice_is_there_and_can_take_the_job(absent: set[Kind[Any]], elastic: bool) -> None:
    """None is taken only if none would do."""
    name = choose(absent, elastic=elastic)
    usable = [one for one, kind in ORDER if kind not in absent and not (elastic and one == "kubernetes")]
    assert name == (usable[0] if usable else "")
