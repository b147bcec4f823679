"""Fit: all pods of a gang now, wherever kube-scheduler puts what is let in, or none."""

import random
from dataclasses import replace
from typing import Any

import pytest
from effort import examples
from gangs_waiting import GPU, NOW_S, after, gang, holding, let_in, node, nodes, placed, shape, state
from hypothesis import given, settings
from hypothesis import strategies as st

from torchctl.controllers.coordinator.core import decide
from torchctl.controllers.coordinator.decision import Why
from torchctl.controllers.coordinator.matching import matches
from torchctl.controllers.coordinator.values import NodeInfo, PodShape, Requirement, State, Taint, Toleration
from torchctl.controllers.settings import CoordinatorSettings

GPU_TAINT = Taint(GPU, "", "NoSchedule")


def test_one_of_two_large_gangs_is_let_in() -> None:
    there = state([gang("a", 8, since_s=1), gang("b", 8, since_s=2)], nodes(8))
    decision = decide(there)
    assert let_in(decision) == ["a"]
    (told,) = decision.told
    assert (told.key, told.place, told.why) == ("b", 1, Why.NODES)
    assert told.message == "0 of 8 pods with 8 nvidia.com/gpu each find a node now, 8 short"
    assert let_in(decide(after(there, decision))) == []


def test_what_is_let_in_and_not_placed_counts() -> None:
    first = holding(gang("a", 3), let_in_s=NOW_S - 1)
    assert let_in(decide(state([gang("b", 2)], nodes(4), [first]))) == []
    assert let_in(decide(state([gang("b", 1)], nodes(4), [first]))) == ["b"]


def test_small_pods_may_break_every_node_of_a_large_gang() -> None:
    """Of 2 nodes, kube-scheduler may put a pod of one GPU on each: then no pod of eight fits."""
    small, large = gang("small", 2, 1, since_s=1), gang("large", 1, 8, since_s=2)
    there = state([small, large], nodes(2))
    assert let_in(decide(there)) == ["small"]
    on_one = holding(small, [("n0", 2)])
    assert let_in(decide(state([large], [node("n0", used=2), node("n1")], [on_one]))) == ["large"]


def test_one_pod_may_break_several_small_places() -> None:
    """A pod of three GPUs takes two places of two, also those of a gang that is being placed."""
    pair = holding(gang("pair", 1, shape=shape(2, selector=(("pool", "a"),))))
    there = [node("a", 4, labels={"pool": "a"}), node("b", 3), node("c", 3)]
    assert let_in(decide(state([gang("odd", 1, 3)], there, [pair]))) == []
    assert let_in(decide(state([gang("even", 1, 2)], there, [pair]))) == ["even"]


@pytest.mark.parametrize(
    ("asked", "labels", "taints", "fits"),
    [
        ({}, {}, (), True),
        ({"selector": (("pool", "a"),)}, {"pool": "a"}, (), True),
        ({"selector": (("pool", "a"),)}, {"pool": "b"}, (), False),
        ({}, {}, (GPU_TAINT,), False),
        ({}, {}, (Taint("x", "", "PreferNoSchedule"),), True),
        ({"tolerations": (Toleration(GPU, "Exists"),)}, {}, (GPU_TAINT,), True),
        ({"tolerations": (Toleration(GPU, "Exists", effect="NoExecute"),)}, {}, (GPU_TAINT,), False),
        ({"tolerations": (Toleration(operator="Exists"),)}, {}, (GPU_TAINT, Taint("x", "y", "NoExecute")), True),
        ({"tolerations": (Toleration("x", "Equal", "y"),)}, {}, (Taint("x", "y", "NoSchedule"),), True),
        ({"tolerations": (Toleration("x", "Equal", "z"),)}, {}, (Taint("x", "y", "NoSchedule"),), False),
        ({"tolerations": (Toleration("x", "Gt", "3"),)}, {}, (Taint("x", "5", "NoSchedule"),), True),
        ({"tolerations": (Toleration("x", "Sideways", "3"),)}, {}, (Taint("x", "3", "NoSchedule"),), False),
        ({"affinity": ((Requirement("z", "In", ("a", "b")),),)}, {"z": "b"}, (), True),
        ({"affinity": ((Requirement("z", "In", ("a",)),), (Requirement("y", "Exists"),))}, {"y": ""}, (), True),
        ({"affinity": ((Requirement("z", "In", ("a",)), Requirement("y", "Exists")),)}, {"y": ""}, (), False),
        ({"affinity": ((Requirement("z", "NotIn", ("a",)),),)}, {}, (), True),
        ({"affinity": ((Requirement("z", "DoesNotExist"),),)}, {"z": ""}, (), False),
        ({"affinity": ((Requirement("z", "Gt", ("3",)),),)}, {"z": "4"}, (), True),
        ({"affinity": ((Requirement("z", "Lt", ("3",)),),)}, {"z": "no"}, (), False),
        ({"affinity": ((Requirement("z", "Near", ("a",)),),)}, {"z": "a"}, (), False),
        ({"affinity": ((),)}, {}, (), False),
    ],
)
def test_nodes_match_as_kube_scheduler_judges(
    asked: dict[str, Any], labels: dict[str, str], taints: tuple[Taint, ...], fits: bool
) -> None:
    assert matches(shape(1, **asked), labels, taints) is fits


def test_affinity_may_name_a_node() -> None:
    asked = shape(8, affinity=((Requirement("metadata.name", "In", ("n1",)),),))
    assert let_in(decide(state([gang("a", 1, shape=asked)], [node("n1", used=1), node("n2")]))) == []
    assert let_in(decide(state([gang("a", 1, shape=asked)], nodes(2)))) == ["a"]


def test_pods_that_exclude_each_other_need_a_node_each() -> None:
    asked = shape(1, one_per_node=True)
    assert let_in(decide(state([gang("a", 3, shape=asked)], nodes(2)))) == []
    assert let_in(decide(state([gang("a", 2, shape=asked)], nodes(2)))) == ["a"]


def test_no_node_takes_two_pods_that_exclude_each_other() -> None:
    """The second pod needs n1, of which one GPU is left: a pod of somebody else might take it."""
    half = holding(gang("half", 2, shape=shape(1, one_per_node=True)), [("n0", 1)], has_run=False)
    there = [node("n0", used=1), node("n1", used=7)]
    assert let_in(decide(state([gang("a", 1, 1)], there, [half]))) == []
    assert let_in(decide(state([gang("a", 1, 1)], [*there, node("n2")], [half]))) == ["a"]
    elsewhere = replace(half, placed=(("gone", 1),))
    assert let_in(decide(state([gang("a", 1, 1)], there, [elsewhere]))) == ["a"]


def test_nodes_take_so_many_pods() -> None:
    assert let_in(decide(state([gang("a", 3, 0)], [node("n", pods=2)]))) == []
    assert let_in(decide(state([gang("a", 2, 0)], [node("n", pods=2)]))) == ["a"]


def test_a_gang_with_unknown_limits_is_placed_alone() -> None:
    """It fits by what is known; it and others are not placed on the same nodes at the same time."""
    odd = gang("odd", 1, 1, since_s=1, shape=shape(1, unmodelled=("topologySpreadConstraints",)))
    plain = gang("plain", 1, 1, since_s=2)
    there = state([odd, plain], nodes(4))
    decision = decide(there)
    assert let_in(decision) == ["odd"]
    being_placed = after(there, decision)
    assert let_in(decide(being_placed)) == []
    assert let_in(decide(placed(being_placed, random.Random(1)))) == ["plain"]
    assert let_in(decide(state([odd], nodes(4), [holding(plain)]))) == []


@pytest.mark.parametrize(
    ("asked", "there", "message"),
    [
        (gang("a"), (), "the cluster has no nodes: the job is let in once there are enough"),
        (
            gang("a", 12),
            nodes(8),
            "the nodes take 8 pods with 8 nvidia.com/gpu each even if nothing else runs, and the job has 12: "
            "numNodes 8 would fit",
        ),
        (
            gang("a", 2, 16),
            nodes(8),
            "no node that matches has 16 nvidia.com/gpu (the nearest node has 8 nvidia.com/gpu): "
            "pods with 8 nvidia.com/gpu would fit",
        ),
        (
            gang("a", shape=PodShape((("amd.com/gpu", 1), (GPU, 1)))),
            nodes(1),
            "no node that matches has 1 amd.com/gpu (the nearest node has 0 amd.com/gpu): "
            "ask for less of it, or bring nodes that have it",
        ),
        (
            gang("a", shape=shape(1, selector=(("pool", "h100"),))),
            (node("n", labels={"pool": "a100"}), node("m", labels={"pool": "l4"})),
            "no node has label pool=h100, it is a100, l4 there: correct nodeSelector, or label nodes",
        ),
        (
            gang("a", shape=shape(1, selector=(("pool", "h100"),))),
            nodes(1),
            "no node has label pool=h100, nor any other value of it: correct nodeSelector, or label nodes",
        ),
        (
            gang("a"),
            (node("n", taints=(GPU_TAINT,)),),
            "1 node would do if the pods tolerated taints (scheduling.tolerations): nvidia.com/gpu:NoSchedule",
        ),
        (
            gang("a", shape=shape(1, affinity=((Requirement("z", "Exists"),),))),
            nodes(1),
            "no node matches nodeSelector and required node affinity: correct them, or label nodes",
        ),
    ],
)
def test_a_gang_that_can_never_fit_hears_what_would(asked: Any, there: tuple[Any, ...], message: str) -> None:
    (told,) = decide(state([asked], there)).told
    assert (told.why, told.message, told.estimate_s) == (Why.NEVER_FITS, message, None)


def test_a_gang_that_can_never_fit_holds_up_nobody() -> None:
    huge = gang("huge", 100, since_s=0)
    decision = decide(state([huge, gang("a", 1, since_s=1)], nodes(2)))
    assert (let_in(decision), decision.reserved) == (["a"], ())


def test_a_gang_whose_pods_find_no_node_loses_its_place() -> None:
    bound_s = CoordinatorSettings().place_within_s
    half = holding(gang("half", 2), [("n0", 1)], let_in_s=NOW_S - bound_s, has_run=False)
    full = [node("n0", used=8), node("n1", used=8)]
    assert [(given.key, given.missing) for given in decide(state([], full, [half])).take_back] == [("half", 1)]
    younger = holding(gang("half", 2), [("n0", 1)], let_in_s=NOW_S - bound_s + 1, has_run=False)
    assert decide(state([], full, [younger])).take_back == ()


def test_a_gang_that_ran_is_not_taken_back() -> None:
    """It has lost a pod: that is an incident, and the job's own affair."""
    lost = holding(gang("lost", 2), [("n0", 1)], let_in_s=0.0, has_run=True)
    assert decide(state([], nodes(1), [lost])).take_back == ()


def test_a_gang_without_its_place_waits_for_a_pause() -> None:
    paused = gang("a", 1, not_before_s=NOW_S + 60)
    decision = decide(state([paused, gang("b", 1)], nodes(2)))
    assert (let_in(decision), decision.told[0].why) == (["b"], Why.BACK_OFF)
    assert let_in(decide(state([paused], nodes(1), now_s=NOW_S + 60))) == ["a"]


def test_one_decision_lets_in_so_many() -> None:
    waiting = [gang(f"g{at}", 1, 1) for at in range(5)]
    decision = decide(state(waiting, nodes(4), settings=CoordinatorSettings(max_starts=2)))
    assert (len(decision.let_in), decision.more) == (2, True)
    assert {told.why for told in decision.told} == {Why.NEXT}


Drawn = tuple[int, int, str]
ALONE = st.sampled_from(["", "", "gang", "port"])
GANGS = st.lists(st.tuples(st.integers(1, 6), st.sampled_from([0, 1, 2, 3, 4, 8]), ALONE), min_size=1, max_size=12)
"""Pods, GPUs of each, and whom they exclude from a node: nobody, each other, or whoever takes the same port."""

FEW_GANGS = st.lists(st.tuples(st.integers(1, 3), st.sampled_from([1, 2]), ALONE), min_size=2, max_size=5)
FEW_NODES = st.lists(st.tuples(st.sampled_from([2, 4]), st.integers(0, 3)), min_size=2, max_size=4)
"""Small enough that each place counts."""

CLUSTERS = st.lists(st.tuples(st.sampled_from([2, 4, 8]), st.integers(0, 3)), min_size=1, max_size=8)


PORT = "hostPort/TCP/29500"


def drawn_shape(gpus: int, alone: str) -> PodShape:
    ports = ((PORT, 1),) if alone == "port" else ()
    return PodShape((*ports, (GPU, gpus)), one_per_node=alone == "gang")


def drawn_node(name: str, gpus: int, used: int) -> NodeInfo:
    given = node(name, gpus, used=min(gpus, used))
    return replace(given, allocatable={**given.allocatable, PORT: 1})


def cluster(gangs: list[Drawn], there: list[tuple[int, int]]) -> State:
    waiting = [
        gang(f"g{at}", pods, gpus, since_s=float(at), shape=drawn_shape(gpus, alone))
        for at, (pods, gpus, alone) in enumerate(gangs)
    ]
    return state(waiting, [drawn_node(f"n{at}", gpus, used) for at, (gpus, used) in enumerate(there)])


@given(drawn=st.tuples(GANGS, CLUSTERS) | st.tuples(FEW_GANGS, FEW_NODES), seed=st.integers(0, 2**32))
@settings(max_examples=examples(500))
def test_never_half_a_gang_wherever_pods_are_placed(
    drawn: tuple[list[Drawn], list[tuple[int, int]]], seed: int
) -> None:
    """Decision after decision, with the pods of all gangs placed in any order on any node that takes them."""
    gangs, there = drawn
    rng, now = random.Random(seed), cluster(gangs, there)
    for _ in range(2 * len(gangs)):
        now = after(now, decide(now))
        now = placed(now, rng, pods=rng.choice([0, 1, 2, 4, None]))
    placed(now, rng)


@given(gangs=GANGS, there=CLUSTERS)
@settings(max_examples=examples(200))
def test_a_gang_alone_is_let_in_exactly_if_it_fits(gangs: list[Drawn], there: list[tuple[int, int]]) -> None:
    now = cluster(gangs[:1], there)
    pods, gpus, alone = gangs[0]
    places = [(n.allocatable[GPU] - n.used[GPU]) // gpus if gpus else 110 for n in now.nodes]
    slots = sum(min(place, 1) if alone else place for place in places)
    assert bool(decide(now).let_in) is (slots >= pods)


@given(gangs=GANGS, there=CLUSTERS, seed=st.integers(0, 2**32))
@settings(max_examples=examples(150))
def test_the_order_of_the_input_means_nothing(gangs: list[Drawn], there: list[tuple[int, int]], seed: int) -> None:
    now, rng = cluster(gangs, there), random.Random(seed)
    shuffled = state(rng.sample(now.waiting, len(now.waiting)), rng.sample(now.nodes, len(now.nodes)), now_s=now.now_s)
    assert decide(shuffled) == decide(now)
