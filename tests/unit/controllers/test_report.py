"""What the API server says of a CRD that is older than the operator."""

from typing import Any, cast

import pytest

from torchctl.api.job import TORCHRUN_JOB, JobSpec, TorchrunJob
from torchctl.api.jobstatus import Admission, JobStatus
from torchctl.controllers.report import Reporter, undeclared_field
from torchctl.runtime.client.client import Client
from torchctl.runtime.events import EventRecorder
from torchctl.runtime.kinds import Kind, ObjectMeta


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (
            "failed to create typed patch object (team/demo; torchrun.ai/v1alpha1, Kind=TorchrunJob): "
            ".status.hostUid: field not declared in schema",
            "status.hostUid",
        ),
        (
            "failed to create typed patch object (team/demo; torchrun.ai/v1alpha1, Kind=TorchrunJob): errors:\n"
            "  .status.restarts.recentByCause: field not declared in schema\n"
            "  .status.hostUid: field not declared in schema",
            "status.restarts.recentByCause",
        ),
        ("etcdserver: request timed out", None),
    ],
)
def test_an_older_crd_is_told_by_the_field_it_lacks(message: str, field: str | None) -> None:
    assert undeclared_field(message) == field


class Applies:
    """Stands for the client: notes what is applied."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []

    async def apply(self, kind: Kind[Any], body: dict[str, Any], **_: Any) -> None:
        self.bodies.append(body)


async def test_what_another_controller_writes_is_left_to_it() -> None:
    """A field that is applied is owned, and the coordinator could take nothing back."""
    client, job = Applies(), TorchrunJob(ObjectMeta(name="job", namespace="team"), JobSpec.model_construct())
    status = JobStatus(phase="Queued", admission=Admission(place=1))
    await Reporter(cast(Client, client), cast(EventRecorder, None)).report(TORCHRUN_JOB, job, status, ())
    assert [body["status"] for body in client.bodies] == [{"phase": "Queued"}]
