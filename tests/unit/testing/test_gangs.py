"""Gangs are bound whole or not at all, within the room and the labels of the nodes."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from torchctl.runtime.kinds import Key, ObjectMeta
from torchctl.testing.gangs import POD_GROUP_NAME, Machine, place
from torchctl.testing.nodekinds import Container, Pod, PodSpec, PodStatus, Resources

GPU = "nvidia.com/gpu"


def a_pod(
    name: str,
    *,
    gpus: int = 1,
    group: str = "",
    node: str = "",
    phase: str = "Pending",
    scheduler: str = "kai-scheduler",
    selector: dict[str, str] | None = None,
) -> Pod:
    return Pod(
        ObjectMeta(name=name, namespace="n", uid=name, annotations={POD_GROUP_NAME: group} if group else {}),
        PodSpec(
            (Container("c", resources=Resources({GPU: str(gpus), "cpu": "1"})),),
            node_name=node,
            node_selector=selector or {},
            scheduler_name=scheduler,
        ),
        PodStatus(phase),
    )


def machine(name: str, gpus: int = 8, **labels: str) -> Machine:
    return Machine(name, labels, {GPU: gpus})


GANG = [a_pod(f"g-{index}", gpus=8, group="g") for index in range(3)]


def names(placed: list[tuple[Pod, str]]) -> dict[str, str]:
    return {pod.metadata.name: node for pod, node in placed}


def test_a_gang_is_bound_when_all_of_it_has_room() -> None:
    nodes = [machine("a"), machine("b"), machine("c")]
    assert names(place(GANG, {Key("n", "g"): 3}, nodes)) == {"g-0": "a", "g-1": "b", "g-2": "c"}


def test_a_gang_waits_as_a_whole_for_the_last_node() -> None:
    assert place(GANG, {Key("n", "g"): 3}, [machine("a"), machine("b")]) == []


def test_a_gang_waits_for_the_last_of_its_pods() -> None:
    assert place(GANG[:2], {Key("n", "g"): 3}, [machine("a"), machine("b"), machine("c")]) == []


def test_pods_wait_for_the_group_that_they_name() -> None:
    assert place(GANG, {}, [machine("a"), machine("b"), machine("c")]) == []


def test_pods_beyond_the_minimum_are_bound_while_room_lasts() -> None:
    assert len(place(GANG, {Key("n", "g"): 1}, [machine("a"), machine("b")])) == 2


def test_a_late_member_joins_those_that_are_bound() -> None:
    bound = [a_pod("g-0", gpus=8, group="g", node="a", phase="Running")]
    placed = place([*bound, GANG[1]], {Key("n", "g"): 2}, [machine("a"), machine("b")])
    assert names(placed) == {"g-1": "b"}


def test_pod_being_bound_takes_room_and_stays_where_it_is() -> None:
    nodes = [machine("a"), machine("b")]
    placed = place(GANG[:2], {Key("n", "g"): 2}, nodes, {"g-0": "a"})
    assert names(placed) == {"g-1": "b"}


def test_a_pod_without_a_group_is_bound_alone() -> None:
    assert names(place([a_pod("p")], {}, [machine("a")])) == {"p": "a"}


def test_pods_of_the_default_scheduler_only_take_room() -> None:
    mine, its = a_pod("p", gpus=8), a_pod("q", gpus=8, scheduler="default-scheduler", node="a")
    assert names(place([mine, its, a_pod("r", scheduler="default-scheduler")], {}, [machine("a"), machine("b")])) == {
        "p": "b"
    }


def test_pods_that_ended_take_no_room() -> None:
    ended = a_pod("q", gpus=8, node="a", phase="Succeeded")
    assert names(place([a_pod("p", gpus=8), ended], {}, [machine("a")])) == {"p": "a"}


def test_a_node_selector_is_kept() -> None:
    nodes = [machine("a", kind="A100"), machine("b", kind="H100")]
    assert names(place([a_pod("p", selector={"kind": "H100"})], {}, nodes)) == {"p": "b"}


groups = st.dictionaries(st.sampled_from(["g", "h", "i"]), st.integers(1, 4))
members = st.lists(
    st.tuples(st.sampled_from(["g", "h", "i", ""]), st.integers(0, 8), st.sampled_from(["", "", "a"])), max_size=12
)


@given(groups, members, st.lists(st.integers(0, 8), max_size=4))
def test_no_node_is_overfull_and_no_gang_is_torn(
    least: dict[str, int], drawn: list[tuple[str, int, str]], sizes: list[int]
) -> None:
    pods = [a_pod(f"p-{index}", gpus=gpus, group=group, node=node) for index, (group, gpus, node) in enumerate(drawn)]
    nodes = [machine(f"m-{index}", gpus) for index, gpus in enumerate(sizes)]
    placed = place(pods, {Key("n", group): count for group, count in least.items()}, nodes)

    used: Counter[str] = Counter()
    for pod, node in placed:
        used[node] += int((pod.spec.containers[0].resources.requests or {})[GPU])
        assert not pod.spec.node_name
    assert all(used[node.name] <= node.capacity[GPU] for node in nodes)
    bound = Counter(group for group, _, node in drawn if node)
    chosen = Counter(pod.metadata.annotations.get(POD_GROUP_NAME, "") for pod, _ in placed)
    for group, count in chosen.items():
        assert not group or count + bound[group] >= least[group]
