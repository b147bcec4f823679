"""What is seen of a pod, row by row of the table, and the cause that it tells of."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from world import World

from torchctl.controllers.job.failure.rules import RULES

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
TWO = "{jobQueue: research, numNodes: 2, command: python train.py, runPolicy: {restartPolicy: ExitCode}}"
AT = EPOCH + timedelta(seconds=10)


def ended(code: int, reason: str = "Error", message: str = "", container: str = "trainer") -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason, "message": message, "finishedAt": AT}}
    key = "containerStatuses" if container == "trainer" else "initContainerStatuses"
    return {key: [{"name": container, "state": state}]}


def disrupted(reason: str) -> dict[str, Any]:
    return {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason}]}


def failed(reason: str, message: str = "") -> dict[str, Any]:
    return {"reason": reason, "message": message}


DAEMON = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
NVML = DAEMON + "unable to start container process: error during container init: error running prestart hook #0: exit "
NVML += "status 1, stderr: nvidia-container-cli: initialization error: nvml error: driver/library version mismatch"
NO_PROGRAM = DAEMON + 'unable to start container process: exec: "trian": executable file not found in $PATH'
NO_FILE = DAEMON + 'exec: "/app/train.sh": stat /app/train.sh: no such file or directory'
NOT_EXECUTABLE = DAEMON + 'unable to start container process: exec: "/app/train.sh": permission denied'
NO_HOOK = DAEMON + "error running createRuntime hook #0: fork/exec /usr/bin/nvidia-container-runtime-hook: no such file"
NO_DEVICE = DAEMON + 'error mounting "/dev/nvidia0" to rootfs: stat /dev/nvidia0: no such file or directory'
NO_RUNTIME = "OCI runtime create failed: unable to retrieve OCI runtime error (open log.json: no such file): "
NO_RUNTIME += 'exec: "nvidia-container-runtime": executable file not found in $PATH: unknown'
NO_HOOK_IN_PATH = DAEMON + 'error running prestart hook #0: exec: "nvidia-container-runtime-hook": not found'
CRUN = "OCI runtime create failed: crun: executable file `trian` not found in $PATH: No such file or directory"
OWN_SMI = DAEMON + 'exec: "nvidia-smi": executable file not found in $PATH'
NO_DIRECTORY = DAEMON + 'chdir to cwd ("/src") set in config.json failed: no such file or directory'
LIMITS = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. "
LOW = "The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 9Gi. "

SEEN = [
    (ended(42), "Error"),
    (ended(137, "OOMKilled"), "OOMKilled"),
    (ended(137, "Error"), "Error"),
    (ended(255, "Unknown"), "NodeLost"),
    (ended(137, "ContainerStatusUnknown", "The container could not be located when the pod was deleted"), "NodeLost"),
    (ended(128, "StartError", NVML), "Rejected"),
    (ended(128, "StartError", NO_HOOK), "Rejected"),
    (ended(128, "StartError", NO_HOOK_IN_PATH), "Rejected"),
    (ended(128, "StartError", NO_RUNTIME), "Rejected"),
    (ended(128, "StartError", NO_DEVICE), "Rejected"),
    (ended(128, "ContainerCannotRun", "could not select device driver with capabilities: [[gpu]]"), "Rejected"),
    (ended(128, "StartError", NO_PROGRAM), "Error"),
    (ended(128, "StartError", CRUN), "Error"),
    (ended(128, "StartError", NO_FILE), "Error"),
    (ended(128, "StartError", OWN_SMI), "Error"),
    (ended(128, "StartError", NO_DIRECTORY), "Error"),
    (ended(126, "ContainerCannotRun", NOT_EXECUTABLE), "Error"),
    (failed("Evicted", LOW), "Evicted"),
    (failed("Evicted", 'Usage of EmptyDir volume "scratch" exceeds the limit "10Gi". '), "LimitExceeded"),
    (failed("Evicted", 'Container trainer exceeded its local ephemeral storage limit "1Gi". '), "LimitExceeded"),
    (
        failed("Evicted", LIMITS),
        "LimitExceeded",
    ),
    (failed("NodeShutdown"), "NodeLost"),
    (failed("OutOfnvidia.com/gpu"), "Rejected"),
    (failed("SysctlForbidden"), "Rejected"),
    (failed("Preempting") | ended(137), "Preempted"),
    (disrupted("DeletionByPodGC"), "NodeLost"),
    (disrupted("TerminationByKubelet") | ended(143), "Evicted"),
    (disrupted("PreemptionByScheduler"), "Preempted"),
    (ended(1, container="workspace"), "WorkspaceLost"),
    (ended(75, container="preflight"), "RendezvousUnreachable"),
    ({}, "Vanished"),
]


@pytest.mark.parametrize(("status", "cause"), SEEN)
def test_a_pod_that_failed_tells_of_its_cause(world: type[World], status: dict[str, Any], cause: str) -> None:
    w = world(TWO)
    w.settle()
    w.worker(0, "Failed", **({"conditions": []} | status))
    w.worker(1)
    w.step()
    assert w.incident.cause == cause


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (disrupted("EvictionByEvictionAPI"), "Evicted"),
        (disrupted("PreemptionByScheduler"), "Preempted"),
        (disrupted("DeletionByTaintManager"), "NodeLost"),
        ({}, "Deleted"),
    ],
)
def test_status_says_why_a_pod_was_told_to_stop(world: type[World], status: dict[str, Any], cause: str) -> None:
    w = world(TWO)
    w.settle()
    w.worker(1)
    told = {"deletionTimestamp": EPOCH + timedelta(seconds=40), "deletionGracePeriodSeconds": 30}
    w.worker(0, metadata=told, **status)
    w.settle()
    assert (w.incident.cause, w.failure.reason) == (cause, cause)
    assert w.failure.message == "the pod was told to stop before it ended"


def test_a_node_that_cannot_start_containers_is_named(world: type[World]) -> None:
    w = world(TWO.replace("ExitCode", "Never"))
    w.settle()
    w.worker(0, "Failed", node="gpu-7", conditions=[], **ended(128, "StartError", NVML))
    w.incident_settles()
    assert "on node gpu-7" in w.message("Failed")
    assert "driver/library version mismatch" in w.message("Failed")


@pytest.mark.parametrize("leaves", [False, True])
def test_logs_are_named_only_if_the_pod_stays(world: type[World], leaves: bool) -> None:
    w = world(TWO.replace("ExitCode", "Never"))
    w.settle()
    told = {"deletionTimestamp": EPOCH + timedelta(seconds=40), "deletionGracePeriodSeconds": 30}
    w.worker(0, "Failed", metadata=told if leaves else {}, **ended(1))
    w.incident_settles()
    assert ("see `kubectl logs demo-0-x`" in w.message("Failed")) is not leaves


def test_every_row_says_what_is_seen() -> None:
    assert len({rule.seen for rule in RULES}) == len(RULES)
