"""What pods get at admission counts for their gang before they exist."""

from typing import Any

import msgspec
import pytest

from torchctl.api.capacity import LimitRange, RuntimeClass
from torchctl.controllers.coordinator.admitted import PodDefaults, admitted
from torchctl.controllers.coordinator.shapes import namespace_demand, requests_of, shape_of
from torchctl.controllers.coordinator.values import Toleration

GPU = "nvidia.com/gpu"


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


def test_default_limits_count_in_a_quota_of_limits() -> None:
    defaults = PodDefaults((limit_range({}, {"memory": "2Gi"}),))
    assert dict(namespace_demand(admitted(pod({}), defaults), 2))["limits.memory"] == 2**32


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
