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


@pytest.mark.parametrize("nodes", [1, 2])
def test_the_pod_of_an_upload_takes_it_with_its_uid(world: type[World], nodes: int) -> None:
    """It does so in `fetch`, whether or not another container serves the workspace afterwards."""
    spec = sync_pod(world, nodes=nodes, source="{source: zip}")["spec"]
    fetch = spec["initContainers" if nodes > 1 else "containers"][0]
    packed = ["--packed"] if nodes > 1 else []
    assert fetch["args"] == ["receive", "--root=/workspace", "--timeout=inf", "--port=8081", *packed]
    assert fetch["ports"] == [{"name": "upload", "containerPort": 8081, "protocol": "TCP"}]
    assert fetch["env"][-1]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.uid"


@pytest.mark.parametrize(
    ("workspace", "source", "more", "packed"),
    [
        ("{accessModes: [ReadWriteMany]}", "{source: zip}", "", True),  # copied
        ("{accessModes: [ReadWriteOnce]}", "{source: zip}", "", True),  # served
        ("{accessModes: [ReadWriteMany], distribution: shared}", "{source: zip}", "", False),
        ("{}", "{source: zip}", ", hotReload: Restart", False),  # what changes is linked, and launchers read files
        ("{accessModes: [ReadWriteMany]}", "{source: zip}", ", hotReload: Files", False),
        ("{accessModes: [ReadWriteMany]}", GIT, "", False),
        ("{accessModes: [ReadWriteMany]}", "{source: zip, url: 'https://a.example.com/a.zip'}", "", False),
    ],
)
def test_uploads_that_no_worker_mounts_are_packed(
    world: type[World], workspace: str, source: str, more: str, packed: bool
) -> None:
    w = world(JOB % (2, source, more), QUEUE % ("", workspace))
    w.settle()
    spec = w.objects["Pod", "demo-sync-0"]["spec"]
    fetch = (spec.get("initContainers") or spec["containers"])[0]
    claim = w.objects["PersistentVolumeClaim", "demo-workspace"]["metadata"]
    assert ("--packed" in fetch["args"]) is packed
    assert (claim.get("annotations", {}).get("torchrun.ai/workspace-packed") == "true") is packed


@pytest.mark.parametrize(
    ("source", "mounted"),
    [("{source: zip}", True), (GIT, False), ("{source: zip, url: 'https://a.example.com/a.zip'}", False)],
)
def test_only_uploads_mount_the_queues_cache(world: type[World], source: str, mounted: bool) -> None:
    w = world(JOB % (2, source, ""), QUEUE % ("", "{cacheClaimName: kept}"))
    w.has_cache("kept")
    w.settle()
    spec = w.objects["Pod", "demo-sync-0"]["spec"]
    (fetch,), (serve,) = spec["initContainers"], spec["containers"]
    assert ("--cache=/cache" in fetch["args"]) is mounted
    assert ("/cache" in [mount["mountPath"] for mount in fetch["volumeMounts"]]) is mounted
    assert "/cache" not in [mount["mountPath"] for mount in serve["volumeMounts"]]
    claims = [volume.get("persistentVolumeClaim", {}).get("claimName") for volume in spec["volumes"]]
    assert ("kept" in claims) is mounted


def test_a_missing_cache_is_named_and_waited_for(world: type[World]) -> None:
    w = world(JOB % (1, "{source: zip}", ""), QUEUE % ("", "{cacheClaimName: kept}"))
    w.settle()
    assert w.condition("WorkspaceReady")[:2] == ("False", "ClaimNotFound")
    assert "PersistentVolumeClaim kept does not exist; create it" in w.message("WorkspaceReady")
    assert not w.has("Pod", "demo-sync-0")
    w.has_cache("kept")
    w.settle()
    assert w.has("Pod", "demo-sync-0")


def test_upload_of_an_earlier_version_goes_on_unchanged(world: type[World]) -> None:
    """Its template names an image that cannot receive, and its sync pod, which is there already, cannot change."""
    w = world(JOB % (1, "{source: zip}", ""), QUEUE % ("", "{}"))
    w.settle()
    data = w.revision.data
    w.revision_is(data | {"workspace": {key: value for key, value in data["workspace"].items() if key != "receives"}})
    w.remove("Pod", "demo-sync-0")
    w.settle()
    (fetch,) = w.objects["Pod", "demo-sync-0"]["spec"]["containers"]
    assert fetch["args"] == ["wait", "--root=/workspace", "--timeout=inf"]
    assert "ports" not in fetch
    w.sync_runs()
    w.settle()
    assert "waits for the workspace to be uploaded: see docs/storage.md" in w.message("WorkspaceReady")


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
