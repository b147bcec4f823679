"""Gangs that ask for the same are looked at once, and hear what each of them would hear."""

import copy
import gc
import random
from dataclasses import replace
from typing import Any

from effort import examples
from gangobjects import NOW, QUEUED, TEMPLATE, a_job, a_queue
from gangs_waiting import NOW_S, after, gang, holding, node, nodes, placed, shape, state, without
from hypothesis import given, settings
from hypothesis import strategies as st

from torchctl.controllers.coordinator import alike
from torchctl.controllers.coordinator.alike import Kind
from torchctl.controllers.coordinator.core import decide
from torchctl.controllers.coordinator.decision import Why
from torchctl.controllers.coordinator.observed import Observed
from torchctl.controllers.coordinator.plan import state_of
from torchctl.controllers.coordinator.readings import Readings
from torchctl.controllers.coordinator.values import Demand, Limits, PodShape, Preemption, Queue, Waiting
from torchctl.controllers.settings import CoordinatorSettings
from torchctl.runtime.kinds import Key


def test_only_gangs_that_share_objects_are_of_one_kind() -> None:
    one = gang("one", 2, 4)
    assert replace(one, key="two", since_s=0.0, priority=1, lasts_s=1.0).kind is one.kind
    assert replace(one, pods=3).kind is not one.kind
    assert replace(one, shape=unshared(one).shape).kind is not one.kind
    assert replace(one, unnamed=(("cpu", "trainer"),)).kind is not one.kind


def test_jobs_whose_templates_say_the_same_are_of_one_kind() -> None:
    """Each job has a ControllerRevision of its own."""
    readings = Readings()
    early = _kinds(readings, one=TEMPLATE, other=TEMPLATE | {"nodes": 3})
    late = _kinds(readings, one=TEMPLATE, other=TEMPLATE | {"nodes": 3}, two=copy.deepcopy(TEMPLATE))
    assert late["two"] is late["one"] is early["one"]
    assert late["other"] is early["other"] is not early["one"]


def test_kinds_go_with_their_gangs() -> None:
    kept = unshared(gang("kept"))  # shapes that choose the same nodes share a kind, too
    before = len(alike._KINDS)
    some = [unshared(replace(kept, key=f"g{at}")) for at in range(5)]
    assert len(alike._KINDS) == before + 5
    del some
    gc.collect()
    assert len(alike._KINDS) <= before


def test_the_one_that_room_is_kept_for_hears_of_itself() -> None:
    """Those behind it that ask for the same wait for it."""
    full = [node("n0", used=8), node("n1")]
    runs = holding(gang("runs"), [("n0", 1)], ends_s=NOW_S + 60)
    large = [gang(key, 2, since_s=since_s) for key, since_s in (("kept", 0), ("next", 1))]
    small = [gang(key, 1, 1, since_s=2) for key in ("a", "b")]
    found = decide(state([*large, *small], full, [runs]))
    assert [(told.key, told.why, told.estimate_s) for told in found.told] == [
        ("kept", Why.NODES, NOW_S + 60),
        ("next", Why.NODES, None),
        ("a", Why.BEHIND, None),
        ("b", Why.BEHIND, None),
    ]


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(150))
def test_sharing_objects_changes_no_decision(seed: int) -> None:
    rng = random.Random(seed)
    preemption = rng.choice([*Preemption])
    queues = [Queue(key="q", preemption=preemption, cohort="c", quota=Limits(gpus=16)), Queue(key="r", cohort="c")]
    now = state([], nodes(rng.randint(1, 4)), [], queues, settings=CoordinatorSettings(reserve_after_s=5))
    for number in range(12):
        new = [_any_gang(rng, f"g{number}-{at}", now.now_s) for at in range(rng.randint(0, 3))]
        now = replace(now, waiting=(*now.waiting, *new), now_s=now.now_s + rng.randint(0, 5))
        decision = decide(now)
        assert decide(replace(now, waiting=tuple(map(unshared, now.waiting)))) == decision
        now = placed(after(now, decision), rng, pods=rng.choice([0, 1, None]))
        now = without(now, [held.key for held in now.holdings if held.leaving_for or rng.random() < 0.1])


def _kinds(readings: Readings, **templates: dict[str, Any]) -> dict[str, Kind]:
    """The kinds of jobs that wait, by their names, which their templates have too."""
    observed = Observed(
        jobs=tuple(a_job(name, QUEUED | {"queueRevision": name}) for name in templates),
        templates={Key("team", name): template for name, template in templates.items()},
        queues=(a_queue(),),
    )
    found = state_of(observed, CoordinatorSettings(), NOW, readings)
    return {gang.key.removeprefix("team/"): gang.kind for gang in found.waiting}


def unshared(of: Waiting) -> Waiting:
    """Returns an equal gang that has no object in common with others."""
    asked = of.shape
    return replace(of, shape=PodShape(asked.requests, one_per_node=asked.one_per_node), demand=Demand(*of.demand))


def _any_gang(rng: random.Random, key: str, now_s: float) -> Waiting:
    pods, gpus = rng.choice([(1, 1), (2, 4), (2, 8), (4, 8)])
    return gang(
        key,
        pods,
        gpus,
        queue=rng.choice("qr"),
        since_s=now_s,
        priority=rng.randint(0, 1),
        lasts_s=rng.choice([None, 20.0]),
        not_before_s=rng.choice([0.0, 0.0, 0.0, now_s + 3]),
        shape=shape(gpus),
    )
