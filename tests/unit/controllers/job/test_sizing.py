"""How many pods a job has, and what each of them asks for."""

from dataclasses import replace
from typing import Any

import pytest
from world import World

from torchctl.controllers.settings import OperatorSettings

SETTINGS = OperatorSettings(image="torchctl:test")
Json = dict[str, Any]


def submitted(world: type[World], queue: str, job: str, settings: OperatorSettings = SETTINGS) -> World:
    w = world(f"{{jobQueue: research, command: python a.py, {job}}}", f"{{image: a:1, {queue}}}", settings)
    w.settle()
    return w


def pod(world: type[World], queue: str, job: str, settings: OperatorSettings = SETTINGS) -> Json:
    spec: Json = submitted(world, queue, job, settings).spec("Job", "demo")["template"]["spec"]
    return spec


def refused(world: type[World], queue: str, job: str, settings: OperatorSettings = SETTINGS) -> tuple[str, str]:
    w = submitted(world, queue, job, settings)
    status, reason, message = w.condition("Accepted")
    assert status == "False"
    assert not w.has("Job", "demo")
    return reason, message


@pytest.mark.proves("TorchrunJob.spec.numGPUs")
def test_a_pod_without_gpus_gets_what_goes_with_one_gpu(world: type[World]) -> None:
    spec = pod(world, "nodeResources: {gpus: 8, cpus: 7, memory: 16Gi, gpuType: H100}", "numGPUs: 0")
    amounts = {"cpu": "875m", "memory": "2Gi"}
    assert spec["containers"][0]["resources"] == {"requests": amounts, "limits": amounts}
    assert "nodeSelector" not in spec


def test_a_pod_without_gpus_gets_a_whole_node(world: type[World]) -> None:
    """The queue has no GPUs."""
    spec = pod(world, "nodeResources: {cpus: 7}", "numGPUs: 0")
    assert spec["containers"][0]["resources"]["limits"] == {"cpu": "7"}


RDMA = """
nodeResources: {gpus: 8, cpus: 7}, podTemplate: {spec: {containers: [{name: trainer, resources:
  {limits: {rdma/hca_shared_devices_a: 1, vpc.amazonaws.com/efa: 32, ephemeral-storage: 8Gi}}}]}}
"""


@pytest.mark.parametrize(("gpus", "expected"), [(8, ("1", "32")), (4, ("1", "16")), (3, ("1", "12")), (1, ("1", "4"))])
def test_extended_resources_are_divided_and_rounded_up(
    world: type[World], gpus: int, expected: tuple[str, str]
) -> None:
    limits = pod(world, RDMA, f"numGPUs: {gpus}")["containers"][0]["resources"]["limits"]
    assert (limits["rdma/hca_shared_devices_a"], limits["vpc.amazonaws.com/efa"]) == expected
    assert (limits["nvidia.com/gpu"], limits["ephemeral-storage"]) == (str(gpus), "8Gi")


@pytest.mark.proves("TorchrunQueue.spec.nodeResources.gpuType", "TorchrunQueue.spec.nodeResources.gpuResourceName")
@pytest.mark.parametrize(
    ("resource", "label"),
    [
        ("nvidia.com/gpu", "nvidia.com/gpu.product"),
        ("nvidia.com/mig-1g.5gb", "nvidia.com/gpu.product"),
        ("amd.com/gpu", "amd.com/gpu.product-name"),
        ("gpu.intel.com/xe", "gpu.intel.com/product"),
    ],
)
def test_a_gpu_type_is_the_label_of_its_vendor(world: type[World], resource: str, label: str) -> None:
    queue = f"nodeResources: {{gpus: 2, gpuType: x, gpuResourceName: {resource}}}"
    spec = pod(world, queue, "numNodes: 1")
    assert spec["nodeSelector"] == {label: "x"}
    assert spec["containers"][0]["resources"]["limits"] == {resource: "2"}


def test_an_unknown_vendors_gpu_type_needs_the_operators_label(world: type[World]) -> None:
    queue = "nodeResources: {gpus: 2, gpuType: x, gpuResourceName: example.com/npu}"
    reason, message = refused(world, queue, "numNodes: 1")
    assert reason == "InvalidSpec"
    assert "example.com/npu" in message
    assert "--gpu-type-label" in message
    settings = replace(SETTINGS, gpu_type_label="example.com/model")
    assert pod(world, queue, "numNodes: 1", settings)["nodeSelector"] == {"example.com/model": "x"}


CLAIMS = """
nodeResources: {gpusPerNode: 4, cpus: 8, gpuType: x}, podTemplate: {spec: {
  resourceClaims: [{name: gpus, resourceClaimTemplateName: four}],
  containers: [{name: trainer, resources: {claims: [{name: gpus}]}}]}}
"""


@pytest.mark.proves("TorchrunQueue.spec.nodeResources.gpusPerNode")
@pytest.mark.parametrize("job", ["numNodes: 2", "numGPUs: 8"])
def test_gpus_from_resource_claims_count_without_being_limits(world: type[World], job: str) -> None:
    w = submitted(world, CLAIMS, job)
    spec = w.spec("Job", "demo")["template"]["spec"]
    trainer = spec["containers"][0]
    environment = {variable["name"]: variable.get("value") for variable in trainer["env"]}
    assert (environment["PET_NPROC_PER_NODE"], environment["TORCHRUN_BACKEND"]) == ("4", "nccl")
    assert trainer["resources"] == {"requests": {"cpu": "8"}, "limits": {"cpu": "8"}, "claims": [{"name": "gpus"}]}
    assert spec["resourceClaims"] == [{"name": "gpus", "resourceClaimTemplateName": "four"}]
    assert (w.status.gpus, w.spec("Job", "demo")["completions"]) == (8, 2)


@pytest.mark.parametrize(("gpus", "work"), [(0, "4 works"), (3, "4 works"), (6, "4 and 8 work")])
def test_a_partial_resource_claim_is_refused_with_what_works(world: type[World], gpus: int, work: str) -> None:
    reason, message = refused(world, CLAIMS, f"numGPUs: {gpus}")
    assert reason == "ImpossibleGPUCount"
    assert message.endswith(work)


@pytest.mark.parametrize(
    ("job", "field"),
    [
        ("numNodes: 5", "spec.numNodes makes 5 nodes"),
        ("numGPUs: 10", "spec.numGPUs makes 5 nodes"),
        ("numNodes: 1, elastic: {minNodes: 1, maxNodes: 5}", "spec.elastic.maxNodes makes 5 nodes"),
    ],
)
def test_a_job_above_the_operators_node_limit_is_refused(world: type[World], job: str, field: str) -> None:
    reason, message = refused(world, "nodeResources: {gpus: 2}", job, replace(SETTINGS, max_nodes=4))
    assert reason == "TooManyNodes"
    assert message.startswith(f"{field}, but this operator runs at most 4 for a job (--max-nodes)")


def test_a_hundred_thousand_nodes_are_refused_by_default(world: type[World]) -> None:
    assert refused(world, "", "numNodes: 100000")[0] == "TooManyNodes"


def test_a_bound_that_is_lowered_does_not_end_what_runs(world: type[World]) -> None:
    w = submitted(world, "", "numNodes: 4")
    w.settings = replace(SETTINGS, max_nodes=2)
    w.settle()
    assert w.condition("Accepted")[0] == "True"
    assert w.has("Job", "demo")
