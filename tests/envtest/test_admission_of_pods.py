"""What the coordinator expects of admission is what the API server does: the same pods, told apart by dry runs."""

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from waiting import until

from torchctl.api.capacity import LIMIT_RANGE, PRIORITY_CLASS, RESOURCE_QUOTA, RUNTIME_CLASS
from torchctl.controllers.coordinator.admitted import PodDefaults, admitted
from torchctl.controllers.coordinator.bounds import namespace_quota
from torchctl.controllers.coordinator.matching import holds
from torchctl.controllers.coordinator.shapes import scopes_of, shape_of, unnamed_of
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import Forbidden
from torchctl.runtime.kinds import Kind, ObjectMeta
from torchctl.testing.namespaces import create_namespace, fresh_name

GPU = "nvidia.com/gpu"


class RawPod(msgspec.Struct, frozen=True):
    """A pod with its whole spec, as the API server has it."""

    metadata: ObjectMeta
    spec: dict[str, Any]


RAW_POD = Kind("", "v1", "Pod", "pods", RawPod)


def container(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None, **more: Any) -> Any:
    return {"name": "c", "image": "a:1", "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


PODS: dict[str, dict[str, Any]] = {
    "nothing": {"containers": [container()]},
    "gpus": {"containers": [container(limits={GPU: "8"})]},
    "own requests": {"containers": [container({"cpu": "3"}, {"cpu": "4"}), container() | {"name": "d"}]},
    "limits": {"containers": [container(limits={"cpu": "4", "memory": "3Gi"})]},
    "init": {"containers": [container({"cpu": "1m"})], "initContainers": [container() | {"name": "i"}]},
    "sidecar": {
        "containers": [container({"cpu": "1"})],
        "initContainers": [container({"cpu": "2"}, {"cpu": "2"}, restartPolicy="Always") | {"name": "i"}],
    },
    "runtime": {"containers": [container({"cpu": "1"})], "runtimeClassName": "boxed", "nodeSelector": {"a": "b"}},
    "deadline": {"containers": [container({"cpu": "1"})], "activeDeadlineSeconds": 60},
    "class": {"containers": [container()], "priorityClassName": "urgent"},
    "pod": {
        "containers": [container({"cpu": "1"})],
        "resources": {"requests": {"cpu": "3"}, "limits": {"memory": "9Gi"}},
    },
    "host": {"containers": [container(ports=[{"containerPort": 29500}])], "hostNetwork": True},
}
QUOTAS: dict[str, dict[str, Any]] = {
    "all": {},
    "BestEffort": {"scopes": ["BestEffort"]},
    "NotBestEffort": {"scopes": ["NotBestEffort"]},
    "Terminating": {"scopes": ["Terminating"]},
    "NotTerminating": {"scopes": ["NotTerminating"]},
    "both": {"scopes": ["NotTerminating", "NotBestEffort"]},
    **{
        operator: {
            "scopeSelector": {
                "matchExpressions": [
                    {"scopeName": "PriorityClass", "operator": operator, **({"values": values} if values else {})}
                ]
            }
        }
        for operator, values in (("In", ["urgent"]), ("NotIn", ["urgent"]), ("Exists", []), ("DoesNotExist", []))
    },
}


@pytest_asyncio.fixture(scope="module", loop_scope="session", autouse=True)
async def classes(admin: Client) -> AsyncGenerator[None]:
    """A RuntimeClass with overhead and nodes of its own, and a PriorityClass."""
    runtime = {
        "metadata": {"name": "boxed"},
        "handler": "boxed",
        "overhead": {"podFixed": {"cpu": "250m", "memory": "64Mi"}},
        "scheduling": {"nodeSelector": {"boxed": "yes"}, "tolerations": [{"key": "boxed", "operator": "Exists"}]},
    }
    await admin.create(RUNTIME_CLASS, {"apiVersion": RUNTIME_CLASS.api_version, "kind": "RuntimeClass", **runtime})
    urgent = {"metadata": {"name": "urgent"}, "value": 1000}
    await admin.create(PRIORITY_CLASS, {"apiVersion": PRIORITY_CLASS.api_version, "kind": "PriorityClass", **urgent})
    yield
    await admin.delete(RUNTIME_CLASS, "boxed")
    await admin.delete(PRIORITY_CLASS, "urgent")


@pytest_asyncio.fixture(loop_scope="session")
async def limited(admin: Client) -> str:
    """A namespace whose LimitRange gives requests and limits to containers that name none."""
    name = fresh_name("limited")
    await create_namespace(admin, name)
    item = {"type": "Container", "default": {"cpu": "2", "memory": "1Gi"}, "defaultRequest": {"cpu": "500m"}}
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "defaults"}, "spec": {"limits": [item]}}
    await admin.create(LIMIT_RANGE, body, name)
    return name


def a_pod(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}, "spec": spec}


OF_POD = pytest.param("pod", marks=pytest.mark.kubernetes("1.34", "resources of the pod are alpha"))


@pytest.mark.parametrize("name", [OF_POD if name == "pod" else name for name in PODS])
async def test_pods_ask_for_what_the_coordinator_expects(admin: Client, limited: str, name: str) -> None:
    defaults = PodDefaults(
        tuple(await admin.list(LIMIT_RANGE, namespace=limited)), tuple(await admin.list(RUNTIME_CLASS))
    )
    live = (await admin.dry().create(RAW_POD, a_pod(PODS[name]), limited)).spec
    expected, found = shape_of(admitted(PODS[name], defaults), {}), shape_of(live, {})
    assert (found.requests, found.selector) == (expected.requests, expected.selector)
    assert set(expected.tolerations) <= set(found.tolerations)
    assert scopes_of(admitted(PODS[name], defaults)) == scopes_of(live)


@pytest.mark.parametrize("name", QUOTAS)
async def test_a_quota_governs_whom_the_coordinator_expects(admin: Client, namespace: str, name: str) -> None:
    """A ResourceQuota of no pods refuses those that it governs, and no others."""
    spec = {"hard": {"pods": "0"}, **QUOTAS[name]}
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": spec}
    await admin.create(RESOURCE_QUOTA, body, namespace)

    async def noted() -> bool:
        return bool((await admin.get(RESOURCE_QUOTA, "none", namespace)).status.hard)

    await until(noted)
    scopes = namespace_quota(await admin.get(RESOURCE_QUOTA, "none", namespace)).scopes
    runtimes = tuple(await admin.list(RUNTIME_CLASS))
    expected, found = {}, {}
    for pod, given in PODS.items():
        mine = dict(scopes_of(admitted(given, PodDefaults((), runtimes))))
        expected[pod] = all(holds(needed, mine.get(needed.key)) for needed in scopes)
        found[pod] = await _is_refused(admin.dry(), namespace, given)
    assert found == expected


COUNTED = (
    "cpu",
    "memory",
    "requests.cpu",
    "requests.memory",
    "limits.cpu",
    "limits.memory",
    "requests.ephemeral-storage",
    "limits.ephemeral-storage",
    f"requests.{GPU}",
    "pods",
)


@pytest.mark.parametrize("resource", COUNTED)
@pytest.mark.parametrize("has_defaults", [False, True])
async def test_a_quota_refuses_pods_that_lack_what_it_counts(
    admin: Client, namespace: str, limited: str, has_defaults: bool, resource: str
) -> None:
    """It has enough of the resource for each of the pods."""
    here = limited if has_defaults else namespace
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "much"}}
    await admin.create(RESOURCE_QUOTA, {**body, "spec": {"hard": {resource: "1Pi"}}}, here)

    async def noted() -> bool:
        return bool((await admin.get(RESOURCE_QUOTA, "much", here)).status.hard)

    await until(noted)
    ranges, runtimes = tuple(await admin.list(LIMIT_RANGE, namespace=here)), tuple(await admin.list(RUNTIME_CLASS))
    expected, found = {}, {}
    for pod, given in PODS.items():
        unnamed = dict(unnamed_of(admitted(given, PodDefaults(ranges, runtimes))))
        expected[pod] = resource in unnamed
        found[pod] = await _is_refused(admin.dry(), here, given, "must specify")
    assert found == expected


async def _is_refused(dry: Client, namespace: str, spec: dict[str, Any], why: str = "exceeded quota: none") -> bool:
    try:
        await dry.create(RAW_POD, a_pod(spec), namespace)
    except Forbidden as error:
        return why in str(error)
    return False
