"""Objects are decoded as the API server writes them, and statuses come back as they were written."""

import json
from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from torchctl.api import kube
from torchctl.api.job import TORCHRUN_JOB, JobStatus, TorchrunJob
from torchctl.api.queue import TORCHRUN_QUEUE, QueueStatus, TorchrunQueue
from torchctl.api.rules import problems
from torchctl.runtime.kinds import Kind


def decode(kind: Kind[Any], **body: Any) -> Any:
    text = json.dumps({"metadata": {"name": "x"}} | body)
    return msgspec.json.decode(text, type=kind.type, dec_hook=kind.dec_hook)


def test_both_kinds_decode_from_their_json() -> None:
    job = decode(TORCHRUN_JOB, spec={"jobQueue": "q", "numGPUs": 16, "command": "python x.py"})
    queue = decode(TORCHRUN_QUEUE, spec={"storage": {"shmSizePerGPU": "8Gi"}})
    assert isinstance(job, TorchrunJob)
    assert job.spec.num_gpus == 16
    assert isinstance(queue, TorchrunQueue)
    assert queue.spec.storage.shm_size_per_gpu == "8Gi"


def test_unknown_fields_are_errors_but_kept_in_pod_templates() -> None:
    with pytest.raises((ValidationError, msgspec.ValidationError), match="numNods"):
        decode(TORCHRUN_JOB, spec={"jobQueue": "q", "numNods": 1, "command": "x"})
    template = {"spec": {"hostIPC": True, "containers": [{"name": "trainer", "tty": True}]}, "other": 1}
    queue = decode(TORCHRUN_QUEUE, spec={"podTemplate": template})
    assert (
        queue.spec.pod_template.model_dump(by_alias=True, exclude_unset=True, mode="json")
        == {
            **template,
            "spec": {"hostIPC": True, "containers": ({"name": "trainer", "tty": True},)},
        }
        or queue.spec.pod_template.model_dump(by_alias=True, exclude_unset=True, mode="json") == template
    )


def test_a_rule_that_an_older_object_breaks_names_the_path() -> None:
    spec = {"jobQueue": "q", "command": "x", "env": [{"name": "OK"}, {"name": "RANK"}]}
    found = list(problems(decode(TORCHRUN_JOB, spec=spec).spec))
    assert [problem.path for problem in found] == ["spec", "spec.env[1].name"]
    assert str(found[0]) == "spec: exactly one of numNodes and numGPUs must be set"


def test_a_status_survives_the_way_to_the_server_and_back() -> None:
    status = JobStatus(phase="Running", job_id="uid", attempt=1, gpus=8, rendezvous_id="uid-1")
    assert json.loads(msgspec.json.encode(status)) == {
        "phase": "Running",
        "jobID": "uid",
        "attempt": 1,
        "gpus": 8,
        "rendezvousID": "uid-1",
    }
    assert msgspec.json.decode(msgspec.json.encode(status), type=JobStatus) == status


def test_defaults_written_by_the_server_are_no_change() -> None:
    """The server writes out zeros that we left out."""
    written = b'{"restarts":{"total":0},"nodes":{"desired":0,"ready":0}}'
    assert msgspec.json.decode(written, type=JobStatus) == JobStatus()
    assert msgspec.json.decode(b'{"jobs":{"running":0},"gpus":{"running":0}}', type=QueueStatus) == QueueStatus()


def test_a_pod_keeps_what_is_read_and_drops_the_rest() -> None:
    pod = decode(
        kube.POD,
        spec={"nodeName": "n1", "containers": [{"name": "trainer"}]},
        status={
            "podIP": "10.0.0.1",
            "conditions": None,
            "containerStatuses": [{"name": "trainer", "state": {"terminated": {"exitCode": 42, "message": "boom"}}}],
        },
    )
    assert pod.status.pod_ip == "10.0.0.1"
    assert pod.status.container_statuses[0].state.terminated.exit_code == 42
    assert not hasattr(pod.spec, "containers")


def test_a_job_keeps_what_is_read_and_drops_the_rest() -> None:
    trainer = {"name": "trainer", "command": ["torchrun"], "env": [{"name": "A", "value": "1"}]}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [trainer], "volumes": []}}
    job = decode(kube.JOB, spec={"suspend": True, "completions": 2, "backoffLimit": 0, "template": template})
    kept = {"spec": {"containers": [{"command": ["torchrun"]}]}}
    assert job.spec == {"suspend": True, "completions": 2, "template": kept}


@pytest.mark.parametrize("kind", [kube.PVC, kube.KAI_QUEUE, kube.KAI_PODGROUP])
def test_the_whole_spec_of_what_is_small_is_kept(kind: Kind[Any]) -> None:
    assert decode(kind, spec={"any": {"thing": [1]}}).spec == {"any": {"thing": [1]}}


def test_empty_lists_that_go_writes_as_null_are_accepted() -> None:
    group = decode(kube.KAI_PODGROUP, status={"schedulingConditions": None})
    assert group.status.scheduling_conditions is None
    assert decode(kube.KAI_QUEUE, status={"allocated": {"gpu": 1.5, "cpu": "3"}}).status.allocated["gpu"] == 1.5
