"""The job's word wins over the queue's, and the queue's over the defaults."""

from typing import Any

from torchctl.api import effective
from torchctl.api.common import Backend, PodRetention, RdzvBackend, RestartPolicy
from torchctl.api.job import JobSpec
from torchctl.api.queue import QueueSpec


def job(**spec: Any) -> JobSpec:
    return JobSpec.model_validate({"jobQueue": "q", "numNodes": 1, "command": "python x.py"} | spec)


def queue(**spec: Any) -> QueueSpec:
    return QueueSpec.model_validate(spec)


def test_distributed_settings_default_by_whether_there_are_gpus() -> None:
    assert effective.distributed(queue(), job(), gpus=8).backend is Backend.NCCL
    assert effective.distributed(queue(), job(), gpus=0).backend is Backend.GLOO
    assert effective.distributed(queue(), job(), gpus=0).port == 29500


def test_distributed_settings_merge_field_by_field() -> None:
    said = effective.distributed(
        queue(distributed={"rdzvBackend": "etcd-v2", "port": 2000, "rdzvConf": {"a": "1", "b": "1"}}),
        job(distributed={"port": 3000, "rdzvConf": {"b": "2"}}),
        gpus=1,
    )
    assert (said.rdzv_backend, said.port, said.rdzv_conf) == (RdzvBackend.ETCD_V2, 3000, {"a": "1", "b": "2"})


def test_the_run_policy_has_its_defaults() -> None:
    policy = effective.run_policy(queue(), job())
    assert (policy.max_restarts, policy.max_worker_restarts) == (3, 0)
    assert (policy.restart_policy, policy.pod_retention) == (RestartPolicy.ON_FAILURE, PodRetention.FAILED)
    elastic = job(elastic={"minNodes": 1, "maxNodes": 2})
    assert effective.run_policy(queue(), elastic).max_worker_restarts == 100


def test_zero_is_said() -> None:
    policy = effective.run_policy(queue(runPolicy={"maxRestarts": 5}), job(runPolicy={"maxRestarts": 0}))
    assert policy.max_restarts == 0


def workspace_of(asked: dict[str, Any] | None, *, by_queue: bool) -> bool:
    spec = job() if asked is None else job(volumes={"workspace": asked})
    return effective.workspace(queue(storage={"workspace": {"enabled": by_queue}}), spec) is not None


def test_a_queue_gives_a_workspace_to_silent_jobs() -> None:
    """A job that says nothing of a workspace has one if the queue's is enabled."""
    for nothing in (None, {}, {"revision": "abc"}):
        assert workspace_of(nothing, by_queue=True)
        assert not workspace_of(nothing, by_queue=False)


def test_any_field_of_a_workspace_enables_it_and_enabled_decides() -> None:
    assert workspace_of({"source": "zip"}, by_queue=False)
    assert workspace_of({"size": "1Gi"}, by_queue=False)
    assert workspace_of({"enabled": True}, by_queue=False)
    assert not workspace_of({"enabled": False, "source": "zip"}, by_queue=True)


def test_checkpoints_come_from_one_place() -> None:
    owned = queue(storage={"checkpoints": {"enabled": True, "sizePerGPU": "50Gi", "mountPath": "/ckpt"}})
    shared = effective.checkpoints(owned, job(volumes={"checkpoints": {"claimName": "team"}}))
    assert shared is not None
    assert (shared.claim_name, shared.size_per_gpu, shared.mount_path) == ("team", None, "/ckpt")
    assert effective.checkpoints(owned, job()) == owned.storage.checkpoints
    assert effective.checkpoints(owned, job(volumes={"checkpoints": {"enabled": False}})) is None
    assert effective.checkpoints(queue(), job()) is None
    assert effective.checkpoints(queue(), job(volumes={"checkpoints": {"size": "1Gi"}})) is not None
