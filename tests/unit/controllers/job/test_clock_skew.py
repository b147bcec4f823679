"""Times of one moment that two clocks tell, and what the operator makes of it."""

from datetime import UTC, datetime, timedelta

import pytest
from specs import job_of

from torchctl.api.causes import Cause
from torchctl.api.job import Failure
from torchctl.api.kube import Job, JobStatus
from torchctl.controllers.job.case import Case
from torchctl.controllers.job.failure.verdict import Loss, root
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.settings import Restarting
from torchctl.runtime.kinds import Condition, ObjectMeta

MOMENT = datetime(2026, 1, 1, 12, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("earlier_s", "cause"), [(-1, Cause.ERROR), (0, Cause.ERROR), (1, Cause.ERROR), (2, Cause.DELETED)]
)
def test_a_deletion_must_be_clearly_before_the_jobs_failure(earlier_s: int, cause: Cause) -> None:
    """kube-apiserver says when a pod was deleted, kube-controller-manager when the Job was given up."""
    failed = Loss(Cause.ERROR, Failure(pod="demo-1-x", exit_code=42), MOMENT - timedelta(seconds=1))
    told = Loss(Cause.DELETED, Failure(pod="demo-0-x", reason="Deleted"), MOMENT - timedelta(seconds=earlier_s))
    gave_up = Condition("FailureTarget", "True", "BackoffLimitExceeded", "", MOMENT)
    child = Job(ObjectMeta(name="demo"), {}, JobStatus(conditions=(gave_up,)))
    seen = Observed(job=job_of("{jobQueue: q, numNodes: 2, command: x}"), worker_job=child)
    assert root([failed, told], Case(seen, None, Restarting(), MOMENT)).cause is cause
