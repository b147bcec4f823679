"""How large /dev/shm of a worker is."""

import pytest
from world import World

GPUS = "nodeResources: {gpus: 4"


def shm(world: type[World], queue: str, job: str = "numNodes: 1") -> str | None:
    """The size of what the trainer has at /dev/shm; None if that is the container runtime's, or somebody else's."""
    w = world(f"{{jobQueue: research, command: python a.py, {job}}}", f"{{image: a:1, {queue}}}")
    w.settle()
    spec = w.spec("Job", "demo")["template"]["spec"]
    mounts = {
        mount["name"] for mount in spec["containers"][0].get("volumeMounts", ()) if mount["mountPath"] == "/dev/shm"
    }
    sizes = [volume["emptyDir"]["sizeLimit"] for volume in spec.get("volumes", ()) if volume["name"] == "torchrun-shm"]
    assert bool(sizes) == ("torchrun-shm" in mounts)
    return sizes[0] if sizes else None


@pytest.mark.proves("TorchrunQueue.spec.storage.shmSizePerGPU")
@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        (f"{GPUS}}}", "32Gi"),
        (f"{GPUS}, memory: 100Gi}}", "50Gi"),
        (f"{GPUS}, memory: 1001}}", "500"),
        (f"{GPUS}, memory: 1}}", None),
        (f"{GPUS}, memory: 100Gi}}, storage: {{shmSizePerGPU: 1Gi}}", "4Gi"),
        (f"{GPUS}}}, storage: {{shmSizePerGPU: 0}}", None),
        ("nodeResources: {memory: 100Gi}", None),
        ("storage: {shmSizePerGPU: 1Gi}", "1Gi"),
        (f"{GPUS}}}, podTemplate: {{spec: {{hostIPC: true}}}}", None),
    ],
)
def test_pods_with_gpus_have_a_large_shared_memory(world: type[World], queue: str, expected: str | None) -> None:
    assert shm(world, queue) == expected


def test_shared_memory_is_shared_like_the_node(world: type[World]) -> None:
    """A part of a node has that part of it."""
    assert shm(world, f"{GPUS}, memory: 100Gi}}", "numGPUs: 1") == "12800Mi"


def test_who_mounts_something_on_dev_shm_gets_no_default(world: type[World]) -> None:
    mine = "[{name: mem, mountPath: /dev/shm}]"
    template = f"podTemplate: {{spec: {{containers: [{{name: trainer, volumeMounts: {mine}}}]}}}}"
    assert shm(world, f"{GPUS}}}, {template}") is None
    volumes = f"{{additionalVolumes: [{{name: mem, emptyDir: {{}}}}], additionalMounts: {mine}}}"
    assert shm(world, f"{GPUS}}}", f"numNodes: 1, volumes: {volumes}") is None
