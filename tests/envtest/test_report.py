"""Status writes against the real API server."""

import pytest

from torchctl.api.job import TORCHRUN_JOB, JobStatus
from torchctl.controllers.report import Reporter
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import Conflict
from torchctl.runtime.events import EventRecorder

pytestmark = pytest.mark.usefixtures("operator_account")

JOB = {"apiVersion": "torchrun.ai/v1alpha1", "kind": "TorchrunJob", "metadata": {"name": "job"}}
SPEC = {"jobQueue": "queue", "numNodes": 1, "command": "true"}


async def test_a_status_derived_from_an_older_state_is_a_conflict(admin: Client, namespace: str) -> None:
    job = await admin.create(TORCHRUN_JOB, {**JOB, "spec": SPEC}, namespace)
    reporter = Reporter(admin, EventRecorder(admin))
    await admin.merge_patch(TORCHRUN_JOB, "job", {"metadata": {"labels": {"a": "b"}}}, namespace=namespace)
    with pytest.raises(Conflict):
        await reporter.report(TORCHRUN_JOB, job, JobStatus(phase="Pending"), ())


async def test_an_object_that_is_gone_needs_no_status(admin: Client, namespace: str) -> None:
    job = await admin.create(TORCHRUN_JOB, {**JOB, "spec": SPEC}, namespace)
    await admin.delete(TORCHRUN_JOB, "job", namespace=namespace)
    events = EventRecorder(admin)
    reporter = Reporter(admin, events)
    await reporter.report(TORCHRUN_JOB, job, JobStatus(phase="Pending"), [("Normal", "Pending", "waits")])
    assert repr(events) == "<EventRecorder 0 queued>"
