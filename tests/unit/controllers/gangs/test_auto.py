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


def test_auto_waits_while_it_may_not_see_a_scheduler(world: type[World]) -> None:
    """A 403 says neither that the scheduler is there nor that it is not, and the choice holds for ever."""
    w = world(TWO, AUTO)
    w.lacks(KAI_PODGROUP)
    w.may_not_read(VOLCANO_PODGROUP)
    w.settle()
    assert w.condition("Accepted") == (
        "False",
        "PodGroupsRefused",
        "scheduler auto waits: the operator may not read podgroups.scheduling.volcano.sh: podgroups is forbidden; give "
        "its ServiceAccount the rights of this version, this job goes on by itself then",
    )
    assert (w.look_again_s(), [*w.objects]) == (30, [])
    w.may_not_read()
    w.settle()
    assert taken(w) == "volcano"


@pytest.mark.parametrize(("job", "queue"), [(TWO, AUTO), (ELASTIC, AUTO), (TWO, "{image: a:1}")])
def test_refusal_of_another_scheduler_delays_no_job(world: type[World], job: str, queue: str) -> None:
    w = world(job, queue)
    w.may_not_read(*EVERY[1:])
    w.settle()
    assert w.has("Job", "demo")


@pytest.mark.parametrize("scheduler", ["kai-scheduler", "volcano", "kubernetes"])
def test_named_scheduler_that_is_kept_from_us_is_not_missing(world: type[World], scheduler: str) -> None:
    w = world(TWO, f"{{image: a:1, scheduling: {{scheduler: {scheduler}}}}}")
    w.may_not_read(*EVERY)
    w.settle()
    status, reason, message = w.condition("Admitted")
    assert (status, reason, "install" in message) == ("False", "PodGroupsRefused", False)
    assert message.startswith("the operator may not read podgroups.")
    assert (w.look_again_s(), w.has("Job", "demo")) == (30, False)
    w.may_not_read()
    w.settle()
    assert w.has("Job", "demo")


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


@pytest.mark.parametrize("scheduler", ["auto", "kubernetes", "volcano"])
def test_another_gang_scheduler_beside_a_kai_queue_is_refused(world: type[World], scheduler: str) -> None:
    w = started(world, queue=f"{{image: a:1, kaiQueue: gpus, scheduling: {{scheduler: {scheduler}}}}}", there=EVERY)
    assert "leave scheduling.scheduler out" in w.condition("QueueFound")[2]


def test_every_kind_of_pod_group_can_be_chosen() -> None:
    assert {kind for _, kind in ORDER} == set(GROUP_KINDS)


@given(st.sets(st.sampled_from(EVERY)), st.booleans())
def test_choice_is_there_and_can_take_the_job(absent: set[Kind[Any]], elastic: bool) -> None:
    """None is taken only if none would do."""
    name = choose(absent, elastic=elastic)
    usable = [one for one, kind in ORDER if kind not in absent and not (elastic and one == "kubernetes")]
    assert name == (usable[0] if usable else "")
