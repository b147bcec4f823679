"""Status writes against the real API server."""

from operator import attrgetter
from typing import Any

import msgspec
import pytest

from torchctl.api.job import TORCHRUN_JOB, JobStatus
from torchctl.api.jobstatus import Restarts
from torchctl.controllers.report import Reporter
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import Conflict
from torchctl.runtime.events import EventRecorder
from torchctl.runtime.kinds import Condition

pytestmark = pytest.mark.usefixtures("operator_account")

JOB = {"apiVersion": "torchrun.ai/v1alpha1", "kind": "TorchrunJob", "metadata": {"name": "job"}}
MOMENT = "2026-01-01T00:00:00Z"
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


async def test_fields_that_somebody_else_has_set_are_removed(admin: Client, namespace: str) -> None:
    """Server-side apply leaves them: whoever sets a status back owns what comes back with that."""
    job = await admin.create(TORCHRUN_JOB, {**JOB, "spec": SPEC}, namespace)
    live = await admin.get_raw(TORCHRUN_JOB, "job", namespace)
    failed, theirs, ours = (
        {"type": type_, "status": "True", "reason": "Set", "message": "", "lastTransitionTime": MOMENT}
        for type_ in ("Failed", "example.com/Audited", "Accepted")
    )
    older: dict[str, Any] = {
        "hostUid": "a",
        "nextAttemptTime": MOMENT,
        "incident": {"cause": "Error", "opened": MOMENT},
    }
    older |= {"restarts": {"total": 2, "byCause": {"Error": 1, "Evicted": 1}}, "conditions": [failed, theirs]}
    admission = {"attempt": 1, "place": 3, "takenBackTime": MOMENT}
    await admin.replace(TORCHRUN_JOB, {**live, "status": {**older, "admission": admission}}, subresource="status")
    job = await admin.get(TORCHRUN_JOB, "job", namespace)
    conditions = msgspec.convert([ours, theirs], tuple[Condition, ...])
    status = JobStatus(phase="Running", restarts=Restarts(total=1, by_cause={"Error": 1}), conditions=conditions[:1])
    await Reporter(admin, EventRecorder(admin)).report(TORCHRUN_JOB, job, status, ())
    found = (await admin.get(TORCHRUN_JOB, "job", namespace)).status
    assert sorted(found.conditions or (), key=attrgetter("type")) == [*conditions]
    rest = msgspec.structs.replace(found, conditions=status.conditions)
    assert rest == msgspec.structs.replace(status, admission=job.status.admission)
