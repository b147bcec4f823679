"""An operator whose CRDs are older than it is."""

import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from clusters import CONFIG, established
from structlog.testing import capture_logs

from torchctl.api.job import TORCHRUN_JOB, JobStatus
from torchctl.controllers.report import Reporter
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import ApiError
from torchctl.runtime.events import EventRecorder
from torchctl.testing.controlplane import ControlPlane

OLDER_JOB = replace(TORCHRUN_JOB, group="older.example.com", kind="OlderJob", plural="olderjobs")
"""TorchrunJobs as an earlier version's CRD has them, beside those that the other tests use."""


@pytest_asyncio.fixture(loop_scope="session")
async def older_crd(control_plane: ControlPlane, tmp_path: Path) -> AsyncGenerator[None]:
    """The CRD without the field status.hostUid."""
    crd = yaml.safe_load((CONFIG / "crd" / "torchrunjobs.torchrun.ai.yaml").read_text())
    crd["metadata"] = {"name": f"{OLDER_JOB.plural}.{OLDER_JOB.group}"}
    crd["spec"]["group"] = OLDER_JOB.group
    crd["spec"]["names"] = {"kind": OLDER_JOB.kind, "plural": OLDER_JOB.plural}
    for version in crd["spec"]["versions"]:
        del version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["hostUid"]
    path = tmp_path / "crd.json"
    path.write_text(json.dumps(crd))
    await control_plane.kubectl("apply", "--server-side", "-f", str(path))
    await established(control_plane)
    yield
    await control_plane.kubectl("delete", "-f", str(path))


async def test_an_older_crd_refuses_the_status_and_is_logged_once(
    older_crd: None, admin: Client, namespace: str
) -> None:
    body = {"apiVersion": OLDER_JOB.api_version, "kind": OLDER_JOB.kind, "metadata": {"name": "job"}}
    spec = {"jobQueue": "queue", "numNodes": 1, "command": "true"}
    job = await admin.create(OLDER_JOB, {**body, "spec": spec}, namespace)
    reporter = Reporter(admin, EventRecorder(admin))
    with capture_logs() as lines:
        for _ in range(2):
            with pytest.raises(ApiError, match="hostUid: field not declared in schema"):
                await reporter.report(OLDER_JOB, job, JobStatus(phase="Running", host_uid="one"), ())
    message = "the CRD is older than the operator: apply config/crd"
    assert [(line["event"], line["log_level"], line["lacks"]) for line in lines] == [
        (message, "error", "status.hostUid")
    ]
    await reporter.report(OLDER_JOB, job, JobStatus(phase="Running"), ())
    assert (await admin.get(OLDER_JOB, "job", namespace)).status.phase == "Running"
