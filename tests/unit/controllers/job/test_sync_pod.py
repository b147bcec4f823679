"""Where the sync pod may run, what it tolerates, and what a queue puts over it."""

from typing import Any

import pytest
from world import World

GIT = "{source: git, url: 'https://git.example.com/a.git'}"
EXISTING = "{source: existing, claimName: code}"
JOB = "{jobQueue: research, numNodes: %d, command: python train.py, volumes: {workspace: %s}%s}"
MINE = ", labels: {team: vision}, annotations: {example.com/cost: '7'}"
QUEUE = (
    "{image: trainer:1, nodeResources: {gpus: 4, gpuType: H100%s}, scheduling: {nodeSelector: {pool: gpu}, tolerations:"
    " [{key: reserved, operator: Exists}]}, storage: {workspace: %s}}"
)


def sync_pod(
    world: type[World], workspace: str = "{}", *, nodes: int = 1, source: str = GIT, more: str = ""
) -> dict[str, Any]:
    w = world(JOB % (nodes, source, MINE), QUEUE % (more, workspace))
    if source == EXISTING:
        w.has_claim("code", "ReadWriteOnce")
    w.settle()
    return w.objects["Pod", "demo-sync-0"]


@pytest.mark.parametrize(
    ("workspace", "nodes", "source", "pinned"),
    [
        ("{}", 1, GIT, True),  # shared, and the volume may be bound to the node of its first pod
        ("{distribution: copy}", 1, GIT, True),
        ("{}", 2, GIT, False),  # served
        ("{accessModes: [ReadWriteMany]}", 2, GIT, False),  # every node can mount it
        ("{accessModes: [ReadWriteMany], distribution: shared}", 2, GIT, False),
        ("{}", 1, EXISTING, False),  # it has its volume, whose place the scheduler knows
    ],
)
def test_only_a_single_node_volume_pins_the_sync_pod(
    world: type[World], workspace: str, nodes: int, source: str, pinned: bool
) -> None:
    """The sync pod then goes to the nodes that workers run on."""
    spec = sync_pod(world, workspace, nodes=nodes, source=source)["spec"]
    wanted = {"nvidia.com/gpu.product": "H100", "pool": "gpu"} if pinned else None
    assert spec.get("nodeSelector") == wanted


@pytest.mark.parametrize("nodes", [1, 2])
def test_the_sync_pod_tolerates_what_workers_do_and_gpu_nodes(world: type[World], nodes: int) -> None:
    """ExtendedResourceToleration adds the latter to pods with GPUs, and the sync pod has none."""
    spec = sync_pod(world, nodes=nodes, more=", gpuResourceName: amd.com/gpu")["spec"]
    assert spec["tolerations"] == [
        {"key": "reserved", "operator": "Exists"},
        {"key": "amd.com/gpu", "operator": "Exists"},
    ]


def test_the_queues_sync_pod_template_overrides_ours(world: type[World]) -> None:
    template = """{podTemplate: {
        metadata: {labels: {team: storage, torchrun.ai/role: worker}, annotations: {sidecar.istio.io/inject: 'false'}},
        spec: {
          nodeSelector: {pool: cpu}, tolerations: [{key: cpu, operator: Exists}], priorityClassName: high,
          restartPolicy: Always, securityContext: {runAsUser: 1000},
          volumes: [{name: ca, configMap: {name: ca}}],
          containers: [
            {name: fetch, image: other:1, args: [evil], env: [{name: HTTPS_PROXY, value: 'http://proxy:3128'}],
             resources: {limits: {memory: 8Gi}}, volumeMounts: [{name: ca, mountPath: /ca}]},
            {name: log, image: log:1}]}}}"""
    pod = sync_pod(world, template)
    labels, spec = pod["metadata"]["labels"], pod["spec"]
    assert (labels["team"], labels["torchrun.ai/role"]) == ("storage", "sync")
    assert pod["metadata"]["annotations"] == {"example.com/cost": "7", "sidecar.istio.io/inject": "false"}
    assert spec["nodeSelector"] == {"nvidia.com/gpu.product": "H100", "pool": "cpu"}
    assert [toleration["key"] for toleration in spec["tolerations"]] == ["reserved", "nvidia.com/gpu", "cpu"]
    assert (spec["priorityClassName"], spec["restartPolicy"]) == ("high", "Never")
    assert (spec["securityContext"]["runAsUser"], spec["securityContext"]["runAsNonRoot"]) == (1000, True)
    fetch, log = spec["containers"]
    assert (fetch["image"], fetch["args"][0]) == ("torchctl:test", "fetch")
    assert [variable["name"] for variable in fetch["env"]] == ["HOME", "HTTPS_PROXY"]
    assert fetch["resources"]["limits"] == {"cpu": "1", "memory": "8Gi"}
    assert [mount["mountPath"] for mount in fetch["volumeMounts"]] == ["/workspace", "/tmp", "/ca"]
    assert (log["name"], log["securityContext"]["allowPrivilegeEscalation"]) == ("log", False)
    assert [volume["name"] for volume in spec["volumes"]] == ["torchrun-workspace", "torchrun-tmp", "ca"]


def test_a_template_for_fetch_reaches_it_where_the_pod_serves(world: type[World]) -> None:
    template = "{podTemplate: {spec: {containers: [{name: fetch, resources: {limits: {memory: 8Gi}}}]}}}"
    spec = sync_pod(world, template, nodes=2)["spec"]
    (fetch,), (serve,) = spec["initContainers"], spec["containers"]
    assert fetch["resources"]["limits"]["memory"] == "8Gi"
    assert serve["resources"]["limits"]["memory"] == "512Mi"


def test_a_template_that_is_no_pod_is_the_queues_condition(world: type[World]) -> None:
    w = world(JOB % (1, GIT, ""), QUEUE % ("", "{podTemplate: {spec: {tolerations: {key: a}}}}"))
    w.settle()
    found = w.message("QueueFound")
    assert "spec.storage.workspace.podTemplate.spec.tolerations must be a list of objects" in found
