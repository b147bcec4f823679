"""What a person is told is held to the same rules wherever a test comes by it."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from world import World

from torchctl.api.conditions import JobReason
from torchctl.api.queueconditions import QueueReason
from torchctl.controllers.finding import Finding
from torchctl.controllers.job.pods import NEXT_STEPS

KINDS = (
    "TorchrunQueue",
    "TorchrunJobs? ",
    "PersistentVolumeClaim",
    "ControllerRevision",
    "PodGroup",
    "Service",
    "KAI Queue",
    "Job",
    "[Pp]od",
)
STEPS = {str(reason): reason.step for reason in (*QueueReason, *JobReason)} | NEXT_STEPS
FIELD = r"\b(spec|runPolicy|elastic|storage)\.[a-z]\w+|\bspec: "
NAMED = re.compile(rf"\b({'|'.join(KINDS)}) ?[a-z0-9.-]+|{FIELD}|[a-z]+\.scheduling\.(run\.ai|volcano\.sh)")
"""An object by kind and name, a field, or a resource of the cluster."""


def is_worded(found: Finding) -> None:
    """Raises AssertionError where a condition of this would leave a person alone."""
    assert found.reason in STEPS, f"reason {found.reason} is in no table"
    assert found.message.strip(), found
    if found.warn:
        assert NAMED.search(found.message), f"names no object: {found}"
        assert STEPS[found.reason], f"no next step: {found}"


@pytest.fixture(scope="session")
def world() -> type[World]:
    """The world of one job."""
    return World


@pytest.fixture(scope="module", autouse=True)
def every_finding_is_worded() -> Iterator[None]:
    """Judges each Finding that is made while these tests run, and none of other tests of the run."""
    made = Finding.__init__

    def judged(self: Finding, *args: Any, **more: Any) -> None:
        made(self, *args, **more)
        is_worded(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Finding, "__init__", judged)
        yield
