"""Volumes that would hide each other are refused, and the condition names both."""

import pytest
from world import World

QUEUE = """
storage: {workspace: {enabled: true}, checkpoints: {enabled: true},
  datasets: [{name: a, claimName: a, mountPath: /data}]}
"""
WORKSPACE = "the workspace (of TorchrunQueue research)"
OF_QUEUE = "(spec.storage.datasets of TorchrunQueue research)"


def accepted(world: type[World], volumes: str, queue: str = QUEUE) -> tuple[str, str, str]:
    job = f"{{jobQueue: research, numNodes: 1, command: python a.py, volumes: {{{volumes}}}}}"
    w = world(job, f"{{image: a:1, {queue}}}")
    w.settle()
    found: tuple[str, str, str] = w.condition("Accepted")
    return found


def dataset(name: str, path: str) -> str:
    return f"datasets: [{{name: {name}, claimName: c, mountPath: {path}}}]"


def mount(path: str, name: str = "m") -> str:
    volume, mounted = f"{{name: {name}, emptyDir: {{}}}}", f"{{name: {name}, mountPath: {path}}}"
    return f"additionalVolumes: [{volume}], additionalMounts: [{mounted}]"


def template(name: str, path: str) -> str:
    trainer = f"{{name: trainer, volumeMounts: [{{name: {name}, mountPath: {path}}}]}}"
    return f"podTemplate: {{spec: {{volumes: [{{name: {name}, emptyDir: {{}}}}], containers: [{trainer}]}}}}"


@pytest.mark.parametrize(
    ("volumes", "one", "other", "path"),
    [
        (dataset("b", "/data"), "dataset b (spec.volumes.datasets)", f"dataset a {OF_QUEUE}", "/data"),
        (dataset("b", "/data/"), "dataset b (spec.volumes.datasets)", f"dataset a {OF_QUEUE}", "/data"),
        (
            dataset("b", "/app"),
            WORKSPACE,
            "dataset b (spec.volumes.datasets)",
            "/app",
        ),
        (dataset("b", "/checkpoints"), "the checkpoints", "dataset b (spec.volumes.datasets)", "/checkpoints"),
        (dataset("b", "/dev//shm"), "the shared memory of the worker", "dataset b (spec.volumes.datasets)", "/dev/shm"),
        (
            mount("/app"),
            WORKSPACE,
            "volume m (spec.volumes.additionalMounts)",
            "/app",
        ),
        (mount("/checkpoints"), "the checkpoints", "volume m (spec.volumes.additionalMounts)", "/checkpoints"),
        (mount("/data"), f"dataset a {OF_QUEUE}", "volume m (spec.volumes.additionalMounts)", "/data"),
    ],
)
def test_two_things_on_one_path_are_refused(world: type[World], volumes: str, one: str, other: str, path: str) -> None:
    message = f"{one} and {other} are both mounted at {path}: give one of them another path"
    assert accepted(world, volumes) == ("False", "ConflictingVolumes", message)


def test_a_pod_template_that_mounts_over_the_workspace_is_refused(world: type[World]) -> None:
    status, reason, message = accepted(world, "", f"{QUEUE}, {template('m', '/app')}")
    assert (status, reason) == ("False", "ConflictingVolumes")
    assert "volume m (podTemplate of TorchrunQueue research) are both mounted at /app" in message


@pytest.mark.parametrize(
    ("volumes", "queue", "other"),
    [
        (mount("/m", name="a"), QUEUE, "volume a (spec.volumes.additionalVolumes)"),
        ("", f"{QUEUE}, {template('a', '/m')}", "volume a (podTemplate of TorchrunQueue research)"),
    ],
)
def test_a_volume_of_a_datasets_name_is_refused(world: type[World], volumes: str, queue: str, other: str) -> None:
    status, reason, message = accepted(world, volumes, queue)
    assert (status, reason) == ("False", "ConflictingVolumes")
    assert message.startswith(f"dataset a {OF_QUEUE} and {other} have one name")


def test_names_of_the_operators_volumes_are_refused(world: type[World]) -> None:
    _, reason, message = accepted(world, dataset("torchrun-tmp", "/x"))
    assert (reason, message.split(":")[0]) == ("ConflictingVolumes", "dataset torchrun-tmp (spec.volumes.datasets)")


@pytest.mark.parametrize(
    "volumes", [dataset("a", "/other"), dataset("b", "/data/b"), mount("/dev/shm"), mount("/app/cache")]
)
def test_what_hides_nothing_is_accepted(world: type[World], volumes: str) -> None:
    """A dataset of the job's takes the place of the queue's of its name; a path below another one is another path."""
    assert accepted(world, volumes, f"{QUEUE}, nodeResources: {{gpus: 1}}")[0] == "True"
