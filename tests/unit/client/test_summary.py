"""What `status` says of a job."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from torchctl.api.kube import Pod
from torchctl.api.labels import ATTEMPT, ROLE, ROLE_SYNC, ROLE_WORKER
from torchctl.client.summary import INDEX, changes, summarize
from torchctl.client.views import JobView

NOW = datetime(2030, 1, 2, tzinfo=UTC)


def ago(minutes: int) -> str:
    return (NOW - timedelta(minutes=minutes)).isoformat()


def job(spec: dict[str, Any] | None = None, **status: Any) -> JobView:
    metadata = {"name": "vit", "namespace": "ml", "creationTimestamp": ago(60)}
    spec = {"jobQueue": "h100", "numNodes": 2, "command": "python train.py"} if spec is None else spec
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, JobView)


def pod(index: int, *, attempt: int = 0, role: str = ROLE_WORKER, **status: Any) -> Pod:
    labels = {ROLE: role, ATTEMPT: str(attempt)} | ({INDEX: str(index)} if role == ROLE_WORKER else {})
    metadata = {"name": f"vit-{role}-{attempt}-{index}", "labels": labels, "creationTimestamp": ago(5)}
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": "n1"}, "status": status}, Pod)


def container(name: str = "trainer", *, ready: bool = True, **state: Any) -> dict[str, Any]:
    return {"name": name, "ready": ready, "state": state}


RUNNING: dict[str, Any] = {"phase": "Running", "containerStatuses": [container(running={})]}


def condition(type_: str, status: str, reason: str, message: str) -> dict[str, str]:
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": ago(3)}


def test_a_running_job_says_what_runs_where() -> None:
    seen = job(
        phase="Running",
        nodes={"desired": 2},
        gpus=16,
        workersStatus="2/2 running",
        attempt=1,
        restarts={"total": 3, "byCause": {"NodeLost": 1, "Error": 2}},
        workspace={"revision": "0123456789abcdef", "source": "git", "files": 7, "bytes": 512},
        startTime=ago(50),
        conditions=[condition("WorkersReady", "True", "Running", "all\nrun")],
    )
    pods = [pod(1, attempt=1, **RUNNING), pod(0, attempt=1, **RUNNING), pod(0), pod(0, role=ROLE_SYNC)]
    assert summarize(seen, pods, NOW).lines() == [
        "Job:       vit in namespace ml",
        "Queue:     h100",
        "Phase:     Running",
        "Command:   python train.py",
        "Size:      2 nodes, 16 GPUs",
        "Workers:   2/2 running",
        "Attempt:   1 after 3 incidents (2 Error, 1 NodeLost)",
        "Code:      0123456789ab (git, 7 files, 512 bytes)",
        "Created:   1h ago",
        "Run time:  50m so far",
        "",
        "CONDITION      STATUS   SINCE   REASON    MESSAGE",
        "WorkersReady   True     3m      Running   all run",
        "",
        "WORKER   POD              STATE     NODE   AGE",
        "0        vit-worker-1-0   Running   n1     5m",
        "1        vit-worker-1-1   Running   n1     5m",
    ]
    everything = summarize(seen, pods, NOW, every=True)
    assert [row[0] for row in everything.workers.rows] == ["sync", "0", "0", "1"]


def test_a_failed_job_says_who_failed_of_what() -> None:
    failure = {
        "pod": "vit-0",
        "node": "n1",
        "rank": 3,
        "exitCode": 42,
        "reason": "Error",
        "message": 'a.py:1: UserWarning: no NumPy\n  x()\n  File "a.py", line 2\nValueError: boom\nW: left',
    }
    seen = job(phase="Failed", failure=failure, startTime=ago(50), completionTime=ago(40))
    fields = dict(summarize(seen, [], NOW).fields)
    assert fields["Failure"] == "rank 3, pod vit-0, node n1, exit code 42, Error: ValueError: boom"
    assert fields["Run time"] == "10m"


def test_a_new_job_says_so() -> None:
    spec = {"jobQueue": "q", "numGPUs": 4, "args": ["python", "a b.py"], "elastic": {"minNodes": 2, "maxNodes": 8}}
    fields = dict(summarize(job(spec), [], NOW).fields)
    assert fields["Phase"] == "New: the operator has not looked at it yet"
    assert fields["Command"] == "python 'a b.py'"
    assert fields["Size"] == "- nodes, 4 GPUs, elastic 2 to 8"
    lines = dict(summarize(job({"command": "cd src\npython \x1b[31ma.py"}), [], NOW).fields)["Command"]
    assert lines == "cd src python [31ma.py"
    long = dict(summarize(job({"command": "x" * 500}), [], NOW).fields)["Command"]
    assert (len(long), long[-3:]) == (200, "...")


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (RUNNING, "Running"),
        ({"containerStatuses": [container(running={}, ready=False)]}, "Running, not ready"),
        ({"containerStatuses": [container(waiting={"reason": "ImagePullBackOff"})]}, "ImagePullBackOff"),
        ({"phase": "Pending", "containerStatuses": [container(waiting={"reason": "ContainerCreating"})]}, "Pending"),
        ({"containerStatuses": [container(terminated={"exitCode": 0, "reason": "Completed"})]}, "Completed"),
        ({"containerStatuses": [container(terminated={"exitCode": 9})]}, "Ended (9)"),
        (
            {
                "phase": "Pending",
                "containerStatuses": [container(waiting={"reason": "PodInitializing"})],
                "initContainerStatuses": [container("workspace", terminated={"exitCode": 1, "reason": "Error"})],
            },
            "Error (1)",
        ),
        (
            {
                "phase": "Pending",
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no\nGPU"}
                ],
            },
            "Unschedulable: no GPU",
        ),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        ({}, "Pending"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_pod_says_what_its_trainer_does_or_waits_for(status: dict[str, Any], state: str) -> None:
    assert summarize(job(), [pod(0, **status)], NOW).workers.rows[0][2] == state


def test_a_pod_that_is_told_to_stop_says_so() -> None:
    stopping = pod(0, **RUNNING)
    stopping = msgspec.structs.replace(
        stopping, metadata=msgspec.structs.replace(stopping.metadata, deletion_timestamp=NOW)
    )
    assert summarize(job(), [stopping], NOW).workers.rows[0][2] == "Terminating"


def test_changes_are_lines_for_a_log() -> None:
    queued = job(phase="Queued", conditions=[condition("Admitted", "False", "Waiting", "no node")])
    running = job(
        phase="Running", workersStatus="2/2 running", conditions=[condition("Admitted", "True", "Gang", "let in")]
    )
    assert list(changes(None, job())) == ["New"]
    assert list(changes(None, queued)) == ["Queued", "Admitted=False Waiting: no node"]
    assert list(changes(queued, queued)) == []
    assert list(changes(queued, running)) == ["Running, 2/2 running", "Admitted=True Gang: let in"]
    assert list(changes(running, None)) == ["deleted"]
