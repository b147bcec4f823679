"""What pods get at admission counts for their gang before they exist."""

from typing import Any

import msgspec
import pytest
from gangobjects import GPU, TEMPLATE, a_job, a_node, seen

from torchctl.api.capacity import LimitRange, RuntimeClass
from torchctl.controllers.coordinator.admitted import PodDefaults, admitted, spec_of
from torchctl.controllers.coordinator.core import decide
from torchctl.controllers.coordinator.shapes import namespace_demand, requests_of, shape_of, unnamed_of
from torchctl.controllers.coordinator.values import Toleration

QUOTA_NAMES = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")


def limit_range(request: dict[str, str], limit: dict[str, str] | None = None, type_: str = "Container") -> LimitRange:
    item = {"type": type_, "defaultRequest": request, "default": limit or {}}
    return msgspec.convert({"metadata": {"name": "l"}, "spec": {"limits": [item]}}, LimitRange)


def pod(requests: dict[str, str], limits: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "resources": {"requests": requests, "limits": limits or {}}}], **more}


@pytest.mark.parametrize(
    ("spec", "requests"),
    [
        (pod({}), {"cpu": 2000, "memory": 2**30}),
        (pod({}, {GPU: "8"}), {"cpu": 2000, "memory": 2**30, GPU: 8}),
        (pod({"cpu": "500m"}), {"cpu": 500, "memory": 2**30}),
        (pod({}, {"cpu": "4"}), {"cpu": 4000, "memory": 2**30}),
        ({"containers": [{"name": "a"}, {"name": "b"}]}, {"cpu": 4000, "memory": 2**31}),
        ({"containers": [], "initContainers": [{"name": "a"}]}, {"cpu": 2000, "memory": 2**30}),
    ],
)
def test_containers_get_the_requests_that_they_lack(spec: dict[str, Any], requests: dict[str, int]) -> None:
    defaults = PodDefaults((limit_range({"cpu": "2", "memory": "1Gi"}),))
    assert requests_of(admitted(spec, defaults)) == requests


@pytest.mark.parametrize(
    ("spec", "memory"),
    [
        (pod({}, resources={"limits": {"memory": "9Gi"}}), 9),
        (pod({"memory": "3Gi"}, resources={"limits": {"memory": "9Gi"}}), 3),
        (pod({}, {"memory": "3Gi"}, resources={"limits": {"memory": "9Gi"}}), 3),
        (pod({}, resources={"limits": {"memory": "9Gi"}, "requests": {"memory": "5Gi"}}), 5),
    ],
)
def test_a_pod_asks_for_its_own_limit_before_defaults(spec: dict[str, Any], memory: int) -> None:
    """The API server fills that in before its LimitRanger fills in what containers lack."""
    for defaults in (PodDefaults(), PodDefaults((limit_range({"memory": "1Gi"}),))):
        assert requests_of(admitted(spec, defaults)) == {"memory": memory * 2**30}


@pytest.mark.parametrize(
    "more", [{"workspace": {"size": "1Gi"}}, {"hotReload": "Restart"}, {"rendezvous": {"preflight": True}}]
)
def test_the_operators_own_container_counts(more: dict[str, Any]) -> None:
    """Its pods ask for that much even if their trainer asks for nothing but GPUs."""
    template = {"pod": {"spec": pod({}, {GPU: "8"})}}
    assert requests_of(spec_of(template)) == {GPU: 8}
    found = requests_of(spec_of(template | more))
    assert found == {GPU: 8, "cpu": 100, "memory": 2**27, "ephemeral-storage": 2**26}


def test_default_limits_count_in_a_quota_of_limits() -> None:
    defaults = PodDefaults((limit_range({}, {"memory": "2Gi"}),))
    assert dict(namespace_demand(admitted(pod({}), defaults), 2))["limits.memory"] == 2**32


@pytest.mark.parametrize(
    ("spec", "unnamed"),
    [
        (pod({}, {"cpu": "1", "memory": "1Gi"}), ()),
        (pod({"cpu": "1", "memory": "0"}), ("limits.cpu", "limits.memory")),
        (pod({}, {"cpu": "1"}), ("limits.memory", "memory", "requests.memory")),
        (pod({}, {"cpu": "1"}, resources={"limits": {"memory": "9Gi"}}), ()),
        (pod({}, {"cpu": "1", "memory": "1"}, initContainers=[{"name": "c"}]), tuple(sorted(QUOTA_NAMES))),
    ],
)
def test_each_container_names_what_a_quota_counts(spec: dict[str, Any], unnamed: tuple[str, ...]) -> None:
    assert unnamed_of(spec) == tuple((name, "c") for name in unnamed)
    filled = unnamed_of(admitted(spec, PodDefaults((limit_range({}, {"cpu": "1", "memory": "2Gi"}),))))
    assert filled == ()


def test_the_operators_own_container_is_refused_by_no_quota() -> None:
    template = {"workspace": {"size": "1Gi"}, "pod": {"spec": pod({}, {"cpu": "1", "memory": "1Gi"})}}
    assert unnamed_of(spec_of(template)) == ()


def test_the_most_of_several_limit_ranges_counts() -> None:
    """Nobody says which of them the API server takes."""
    ranges = (limit_range({"cpu": "1"}), limit_range({"cpu": "1500m"}), limit_range({"cpu": "9"}, type_="Pod"))
    assert requests_of(admitted(pod({}), PodDefaults(ranges))) == {"cpu": 1500}


def test_a_runtime_class_adds_overhead_and_chooses_nodes() -> None:
    body = {
        "metadata": {"name": "kata"},
        "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"kata": "yes"}, "tolerations": [{"key": "kata", "operator": "Exists"}]},
    }
    defaults = PodDefaults((), (msgspec.convert(body, RuntimeClass),))
    spec = pod({"cpu": "1"}, nodeSelector={"pool": "a"}, runtimeClassName="kata")
    found = shape_of(admitted(spec, defaults), {})
    assert found.requests == (("cpu", 1250),)
    assert found.selector == (("kata", "yes"), ("pool", "a"))
    assert found.tolerations == (Toleration("kata", "Exists"),)
    for other in (spec | {"runtimeClassName": "gone"}, pod({"cpu": "1"})):
        assert shape_of(admitted(other, defaults), {}).requests == (("cpu", 1000),)


def test_defaults_of_a_namespace_count_for_its_jobs_alone() -> None:
    """Each pod gets 3 of the node's 4 CPUs at admission, so that two of them never share a node of few GPUs."""
    item = {"type": "Container", "defaultRequest": {"cpu": "3"}}

    def limit_range(namespace: str) -> LimitRange:
        return msgspec.convert(
            {"metadata": {"name": "l", "namespace": namespace}, "spec": {"limits": [item]}}, LimitRange
        )

    pod = {"metadata": {}, "spec": {"containers": [{"name": "trainer", "resources": {"limits": {GPU: "4"}}}]}}
    for namespace, let_in in (("team", 0), ("other", 1)):
        state = seen(
            a_job(), template=TEMPLATE | {"pod": pod}, nodes=(a_node(),), limit_ranges=(limit_range(namespace),)
        )
        assert len(decide(state).let_in) == let_in
