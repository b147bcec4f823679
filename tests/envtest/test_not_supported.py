"""What does not work yet is refused by name, never silently ignored; restarts are accepted, and missed once needed."""

import functools
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest
import pytest_asyncio
from jobs import Place
from operators import background_operator

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import JOB
from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.testing.kubelet import Play, ScriptedKubelet
from torchctl.testing.namespaces import NAMESPACE, create_namespace, fresh_name
from torchctl.testing.nodekinds import Pod

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}

JOBS: dict[str, dict[str, Any]] = {
    "spec.suspend": {"suspend": True},
    "spec.elastic": {"elastic": {"minNodes": 1, "maxNodes": 4}},
    "spec.dependsOn": {"dependsOn": [{"job": "first"}]},
    "spec.queueUpdatePolicy": {"queueUpdatePolicy": "NextAttempt"},
    "spec.volumes.workspace.source": {"volumes": {"workspace": {"source": "s3", "url": "s3://bucket/code.zip"}}},
    "spec.volumes.workspace.revision": {"volumes": {"workspace": {"revision": "abc"}}},
    "spec.runPolicy.ttlSecondsAfterFinished": {"runPolicy": {"ttlSecondsAfterFinished": 60}},
    "spec.runPolicy.activeDeadlineSeconds": {"runPolicy": {"activeDeadlineSeconds": 60}},
    "spec.runPolicy.startupTimeoutSeconds": {"runPolicy": {"startupTimeoutSeconds": 60}},
    "spec.runPolicy.podRetention": {"runPolicy": {"podRetention": "None"}},
}
QUEUES: dict[str, dict[str, Any]] = {
    "spec.scheduling.scheduler": {"scheduling": {"scheduler": "volcano"}},
    "spec.resources": {"resources": [{"name": "settings", "template": CONFIG_MAP}]},
    "spec.weight": {"weight": 2},
    "spec.maxNodes": {"maxNodes": 4},
    "spec.quota.gpus": {"quota": {"gpus": 8}},
    "spec.runPolicy.ttlSecondsAfterFinished": {"runPolicy": {"ttlSecondsAfterFinished": 60}},
}
RESTARTS = {"maxRestarts": 5, "maxWorkerRestarts": 2, "restartPolicy": "ExitCode", "podRetention": "Failed"}


def named(fields: Mapping[str, Any], prefix: str) -> dict[str, str]:
    return {field: f"{prefix}-{number}" for number, field in enumerate(fields)}


JOB_NAMES, QUEUE_NAMES = named(JOBS, "job"), named(QUEUES, "queue")


def crashes(pod: Pod, name: str) -> bool:
    labels = pod.metadata.labels
    return labels.get("torchrun.ai/job-name") == name and labels.get("torchrun.ai/role") == "worker"


ROOT_CAUSE = """
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_00:00:00
  host      : worker
  rank      : 3 (local_rank: 1)
  exitcode  : 137 (pid: 7)
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(operator_account: Connection, admin: Client, kubelet: ScriptedKubelet) -> AsyncGenerator[Place]:
    namespace = fresh_name("not-supported")
    before = kubelet.script
    kubelet.script = before.when(functools.partial(crashes, name="crash"), Play(exit_code=1, log=ROOT_CAUSE)).when(
        functools.partial(crashes, name="no-retry"), Play(exit_code=3)
    )
    await create_namespace(admin, namespace)
    here = Place(admin, namespace)
    await here.queue()
    for field, name in JOB_NAMES.items():
        await here.job(name, **JOBS[field])
    for field, name in QUEUE_NAMES.items():
        await here.queue(name, **QUEUES[field])
    async with background_operator(operator_account, namespace):
        yield here
    kubelet.script = before
    await admin.delete(NAMESPACE, namespace)


@pytest.mark.parametrize("field", JOBS)
async def test_a_job_that_asks_for_it_is_not_accepted_and_makes_nothing(place: Place, field: str) -> None:
    name = JOB_NAMES[field]
    found = await place.condition("Accepted", "NotSupportedYet", name)
    assert (found.status, found.message) == ("False", f"{field}: not supported yet; remove the field")
    job = await place.admin.get(TORCHRUN_JOB, name, place.namespace)
    assert job.status.phase == Phase.PENDING
    assert not await place.exists(JOB, name)


@pytest.mark.parametrize("field", QUEUES)
async def test_a_queue_that_asks_for_it_is_not_accepted(place: Place, field: str) -> None:
    found = await place.condition("Accepted", "NotSupportedYet", QUEUE_NAMES[field], kind=TORCHRUN_QUEUE)
    assert (found.status, found.message) == ("False", f"{field}: not supported yet; remove the field")


async def test_a_job_of_such_a_queue_waits_for_it(place: Place) -> None:
    queue = QUEUE_NAMES["spec.weight"]
    await place.job("waits", jobQueue=queue, numNodes=1)
    found = await place.condition("QueueFound", "QueueNotReady", "waits")
    assert "spec.weight" in found.message
    await place.admin.merge_patch(TORCHRUN_QUEUE, queue, {"spec": {"weight": 1}}, namespace=place.namespace)
    await place.reaches(Phase.SUCCEEDED, "waits")


async def test_restart_fields_are_accepted_and_the_first_failure_says_what_is_missing(place: Place) -> None:
    await place.job("crash", runPolicy=RESTARTS)
    job = await place.reaches(Phase.FAILED, "crash")
    found = await place.condition("Failed", "RestartsNotSupportedYet", "crash")
    assert "restarts are not supported yet" in found.message
    failure = job.status.failure
    assert failure is not None
    assert failure.pod.startswith("crash-")
    assert failure.node
    assert (failure.rank, failure.exit_code, failure.reason) == (3, 137, "Error")
    assert job.status.completion_time is not None


async def test_a_failure_that_asks_for_no_restart_is_just_that(place: Place) -> None:
    await place.job("no-retry", runPolicy={"maxRestarts": 0}, numNodes=1)
    job = await place.reaches(Phase.FAILED, "no-retry")
    found = await place.condition("Failed", "WorkerFailed", "no-retry")
    assert "kubectl logs no-retry-0" in found.message
    assert job.status.failure is not None
    assert (job.status.failure.rank, job.status.failure.exit_code) == (0, 3)
