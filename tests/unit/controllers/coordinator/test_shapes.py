"""What is read from pod specs, and what makes a gang careful."""

from typing import Any

import pytest

from torchctl.controllers.coordinator.shapes import demand_of, namespace_demand, requests_of, scopes_of, shape_of
from torchctl.controllers.coordinator.values import Demand, Requirement, Toleration

GPU = "nvidia.com/gpu"
GIB = 2**30


def container(requests: dict[str, Any] | None = None, limits: dict[str, Any] | None = None, **more: Any) -> Any:
    return {"name": "c", "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


@pytest.mark.parametrize(
    ("spec", "requests"),
    [
        ({"containers": [container({"cpu": "500m", "memory": "1Gi"})]}, {"cpu": 500, "memory": GIB}),
        ({"containers": [container({"cpu": "0.1m"})]}, {"cpu": 1}),
        ({"containers": [container(limits={GPU: 8, "cpu": 4})]}, {GPU: 8, "cpu": 4000}),
        ({"containers": [container({"cpu": 1}, {"cpu": 4})]}, {"cpu": 1000}),
        ({"containers": [container({"cpu": 1}), container({"cpu": 2})]}, {"cpu": 3000}),
        ({"containers": [container({"cpu": 1})], "initContainers": [container({"cpu": 3})]}, {"cpu": 3000}),
        ({"containers": [container({"cpu": 4})], "initContainers": [container({"cpu": 3})]}, {"cpu": 4000}),
        (
            {
                "containers": [container({"cpu": 1})],
                "initContainers": [container({"cpu": 1}, restartPolicy="Always"), container({"cpu": 3})],
            },
            {"cpu": 4000},
        ),
        (
            {
                "containers": [container({"cpu": 3})],
                "initContainers": [container({"cpu": 3}), container({"cpu": 1}, restartPolicy="Always")],
            },
            {"cpu": 4000},
        ),
        ({"containers": [container({"cpu": 1})], "overhead": {"cpu": "250m"}}, {"cpu": 1250}),
        ({"containers": [{"name": "c"}], "initContainers": None}, {}),
        ({"containers": [container({"cpu": 1})], "resources": {"requests": {"cpu": 3}}}, {"cpu": 3000}),
        ({"containers": [container({"cpu": 5})], "resources": {"requests": {"cpu": 3}}}, {"cpu": 3000}),
        (
            {"containers": [container(limits={GPU: 8})], "resources": {"requests": {"cpu": 3}}, "overhead": {"cpu": 1}},
            {GPU: 8, "cpu": 4000},
        ),
    ],
)
def test_requests_are_those_that_kube_scheduler_counts(spec: dict[str, Any], requests: dict[str, int]) -> None:
    assert requests_of(spec) == requests


def test_a_shape_has_what_chooses_nodes() -> None:
    expressions = [{"key": "zone", "operator": "In", "values": ["a", "b"]}]
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": ["n0"]}]
    spec = {
        "containers": [container(limits={GPU: 8})],
        "nodeSelector": {"pool": "a100"},
        "tolerations": [{"key": GPU, "operator": "Exists"}, {"key": "x", "value": "y", "effect": "NoSchedule"}],
        "affinity": {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}],
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": expressions, "matchFields": fields}]
                },
            }
        },
    }
    shape = shape_of(spec, {})
    assert shape.requests == ((GPU, 8),)
    assert shape.selector == (("pool", "a100"),)
    assert shape.tolerations == (Toleration(GPU, "Exists"), Toleration("x", "Equal", "y", "NoSchedule"))
    assert shape.affinity == ((Requirement("zone", "In", ("a", "b")), Requirement("metadata.name", "NotIn", ("n0",))),)
    assert (shape.one_per_node, shape.unmodelled) == (False, ())


def anti(topology: str = "kubernetes.io/hostname", **selector: Any) -> dict[str, Any]:
    term = {"topologyKey": topology, "labelSelector": selector}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


SPREAD = {"maxSkew": 1, "topologyKey": "zone"}


@pytest.mark.parametrize(
    ("spec", "alone", "unmodelled"),
    [
        (anti(matchLabels={"job": "x"}), True, ("affinity.podAntiAffinity",)),
        (anti(matchLabels={"job": "other"}), False, ("affinity.podAntiAffinity",)),
        (anti("zone", matchLabels={"job": "x"}), False, ("affinity.podAntiAffinity",)),
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            False,
            ("affinity.podAffinity",),
        ),
        ({"topologySpreadConstraints": [SPREAD]}, False, ("topologySpreadConstraints",)),
        ({"topologySpreadConstraints": [SPREAD | {"whenUnsatisfiable": "ScheduleAnyway"}]}, False, ()),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, False, ("volumes",)),
        ({"volumes": [{"name": "v", "emptyDir": {}}]}, False, ()),
        ({"resourceClaims": [{"name": "gpu"}]}, False, ("resourceClaims",)),
    ],
)
def test_what_is_not_computed_makes_a_gang_careful(
    spec: dict[str, Any], alone: bool, unmodelled: tuple[str, ...]
) -> None:
    found = shape_of({"containers": [container()], **spec}, {"job": "x"})
    assert (found.one_per_node, found.unmodelled) == (alone, unmodelled)


@pytest.mark.parametrize(
    ("spec", "ports"),
    [
        ({"hostNetwork": True, "containers": [container(ports=[{"containerPort": 1}])]}, ["hostPort/TCP/1"]),
        ({"containers": [container(ports=[{"containerPort": 1}])]}, []),
        ({"containers": [container(ports=[{"hostPort": 1, "protocol": "UDP"}])]}, ["hostPort/UDP/1"]),
        (
            {"containers": [container(ports=[{"hostPort": 1}]), container(ports=[{"hostPort": 2}])]},
            ["hostPort/TCP/1", "hostPort/TCP/2"],
        ),
        ({"initContainers": [container(ports=[{"hostPort": 1}])]}, []),
        ({"initContainers": [container(ports=[{"hostPort": 1}], restartPolicy="Always")]}, ["hostPort/TCP/1"]),
    ],
)
def test_a_pod_takes_the_ports_of_its_node(spec: dict[str, Any], ports: list[str]) -> None:
    found = shape_of({"containers": [], **spec}, {})
    assert (found.requests, found.one_per_node) == (tuple((port, 1) for port in ports), False)


ELSEWHERE = {"topologyKey": "zone", "namespaces": ["other"]}


@pytest.mark.parametrize(
    ("spec", "scopes"),
    [
        ({}, {"BestEffort", "NotTerminating"}),
        ({"containers": [container(limits={GPU: 8})]}, {"BestEffort", "NotTerminating"}),
        ({"containers": [container(limits={"cpu": 1})]}, {"NotBestEffort", "NotTerminating"}),
        ({"overhead": {"cpu": "250m"}}, {"BestEffort", "NotTerminating"}),
        ({"activeDeadlineSeconds": 60}, {"BestEffort", "Terminating"}),
        ({"priorityClassName": "high"}, {"BestEffort", "NotTerminating", "PriorityClass=high"}),
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [ELSEWHERE]}}},
            {"BestEffort", "NotTerminating", "CrossNamespacePodAffinity"},
        ),
        (
            {
                "affinity": {
                    "podAntiAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": ELSEWHERE}]
                    }
                }
            },
            {"BestEffort", "NotTerminating", "CrossNamespacePodAffinity"},
        ),
    ],
)
def test_a_pod_is_in_the_scopes_that_kubernetes_finds(spec: dict[str, Any], scopes: set[str]) -> None:
    found = scopes_of({"containers": [container()], **spec})
    assert {f"{name}={value}".rstrip("=") for name, value in found} == scopes


def test_a_gang_takes_all_its_pods_ask_for() -> None:
    spec = {"containers": [container({"cpu": 2, "memory": "1Gi"}, {GPU: 8, "memory": "2Gi"})]}
    assert demand_of(spec, 4, GPU) == Demand(gpus=32, cpus=8000, memory=4 * GIB, jobs=1)
    assert dict(namespace_demand(spec, 2)) == {
        "pods": 2,
        "count/pods": 2,
        "cpu": 4000,
        "requests.cpu": 4000,
        "memory": 2 * GIB,
        "requests.memory": 2 * GIB,
        f"requests.{GPU}": 16,
        f"limits.{GPU}": 16,
        "limits.memory": 4 * GIB,
    }


def test_huge_pages_have_two_names_in_a_quota() -> None:
    spec = {"containers": [container(limits={"hugepages-2Mi": "4Mi"})]}
    found = dict(namespace_demand(spec, 2))
    assert (found["hugepages-2Mi"], found["requests.hugepages-2Mi"]) == (2**23, 2**23)
