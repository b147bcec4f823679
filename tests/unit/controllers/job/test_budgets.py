"""Which restarts count, and against which budget."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from world import World

from torchctl.api.causes import Budget, Cause
from torchctl.api.common import PodRetention, RestartPolicy
from torchctl.api.effective import EffectiveRunPolicy
from torchctl.api.job import Failure
from torchctl.api.jobstatus import JobStatus, Restarts
from torchctl.controllers.job.failure.budgets import counted, refused
from torchctl.controllers.settings import Restarting

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = Restarting()
REPORTS = Path(__file__).parent / "reports"


def ran(seconds: float, *causes: Cause) -> tuple[Cause, Restarts]:
    """An incident of each cause after the workers have run for so long each time; the last one's."""
    status, cause = JobStatus(attempt_ready_time=EPOCH), Cause.ERROR
    for one in causes:
        cause, restarts = counted(status, one, SETTINGS, EPOCH + timedelta(seconds=seconds))
        status = JobStatus(attempt_ready_time=EPOCH, restarts=restarts)
    return cause, status.restarts


@pytest.mark.proves("TorchrunJob.status.restarts.recentByCause")
def test_a_long_run_gives_the_clusters_budgets_back() -> None:
    """A spot node that is reclaimed every three days never ends a job."""
    assert ran(3 * 86_400, *[Cause.EVICTED] * 21)[1] == Restarts(21, {"Evicted": 21}, {"Evicted": 1}, 1)
    assert ran(10, *[Cause.EVICTED] * 21)[1].recent_by_cause == {"Evicted": 21}


def loses(w: World, after_s: float, attempt: int = 0, **status: Any) -> None:
    """A worker of the running attempt is lost, and everything comes to an end."""
    gone = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
    for index in (0, 1):
        w.worker(index)
    w.settle()
    w.later(after_s)
    w.worker(0, "Failed", conditions=[gone], **status)
    w.incident_settles()
    w.remove_old_pods()
    w.later(300)
    w.settle()


TWO = "{jobQueue: research, numNodes: 2, command: python train.py, runPolicy: {%s}}"


@pytest.mark.proves(
    "TorchrunJob.spec.runPolicy.maxInfrastructureRestarts", "TorchrunQueue.spec.runPolicy.maxInfrastructureRestarts"
)
@pytest.mark.parametrize(
    ("job", "queue", "name"),
    [
        ("maxInfrastructureRestarts: 2", "", "runPolicy.maxInfrastructureRestarts"),
        ("", "maxInfrastructureRestarts: 2", "runPolicy.maxInfrastructureRestarts"),
        ("maxInfrastructureRestarts: 2", "maxInfrastructureRestarts: 0", "runPolicy.maxInfrastructureRestarts"),
    ],
)
def test_a_job_says_how_often_the_cluster_may_stop_it(world: type[World], job: str, queue: str, name: str) -> None:
    w = world(TWO % job, f"{{image: trainer:1, runPolicy: {{{queue}}}}}")
    w.settle()
    for _ in range(3):
        loses(w, 10)
    assert w.condition("Failed")[:2] == ("True", "RestartsExhausted")
    assert f"all 2 restarts are used ({name})" in w.message("Failed")
    assert w.restarts.by_cause == {"NodeLost": 3}


def test_the_operator_bounds_what_a_job_asks_for(world: type[World]) -> None:
    w = world(TWO % "maxInfrastructureRestarts: 1000")
    w.settle()
    for _ in range(21):
        loses(w, 10)
    assert "all 20 restarts are used (the operator's --max-infrastructure-restarts)" in w.message("Failed")


def test_node_clock_far_ahead_gives_no_budget_back(world: type[World]) -> None:
    """A loss is never later than the moment at which the operator saw it."""
    w = world(TWO % "maxRestarts: 1")
    w.settle()
    for _ in range(2):
        for index in (0, 1):
            w.worker(index)
        w.settle()
        w.worker_fails(0, after_s=86_400)
        w.incident_settles()
        w.remove_old_pods()
        w.later(300)
        w.settle()
    assert w.status.restarts.consecutive == 2
    assert w.status.phase == "Failed"


def test_no_budget_runs_out_while_runs_are_long(world: type[World]) -> None:
    w = world(TWO % "maxInfrastructureRestarts: 1")
    w.settle()
    for _ in range(5):
        loses(w, 3600)
    assert (w.phase, w.restarts.by_cause) == ("Starting", {"NodeLost": 5})


def test_a_long_run_gives_the_programs_budget_back(world: type[World]) -> None:
    w = world(TWO % "maxRestarts: 1")
    w.settle()
    for _ in range(3):
        errs(w, 3600)
    assert (w.phase, w.restarts.by_cause) == ("Starting", {"Error": 3})
    errs(w, 10)
    assert w.condition("Failed")[:2] == ("True", "RestartsExhausted")
    assert "the one restart is used (runPolicy.maxRestarts)" in w.message("Failed")


def errs(w: World, after_s: float) -> None:
    """The program of a worker fails after a while, and everything comes to an end."""
    for index in (0, 1):
        w.worker(index)
    w.settle()
    w.later(after_s)
    w.worker_fails(0, after_s=(w.now - EPOCH).total_seconds())
    w.incident_settles()
    w.remove_old_pods()
    w.later(300)
    w.settle()


@pytest.mark.parametrize(
    ("causes", "last"),
    [
        ((Cause.PEER_LOST,), Cause.PEER_LOST),
        ((Cause.PEER_LOST, Cause.PEER_LOST), Cause.PEER_LOST_AGAIN),
        ((Cause.PEER_LOST, Cause.PEER_LOST, Cause.PEER_LOST), Cause.PEER_LOST_AGAIN),
        ((Cause.PEER_LOST, Cause.NODE_LOST, Cause.PEER_LOST), Cause.PEER_LOST),
        ((Cause.NODE_LOST, Cause.PEER_LOST), Cause.PEER_LOST),
    ],
)
@pytest.mark.parametrize("seconds", [10, 630, 1830])
def test_peers_lost_twice_in_a_row_are_the_programs_fault(
    causes: tuple[Cause, ...], last: Cause, seconds: float
) -> None:
    """Ranks in collectives that do not match stand still until a time-out: NCCL's takes 10 minutes, gloo's 30."""
    assert ran(seconds, *causes)[0] is last


def test_peers_lost_every_other_day_are_the_clusters_fault() -> None:
    assert ran(2 * 86_400, *[Cause.PEER_LOST] * 5)[0] is Cause.PEER_LOST


def test_collectives_that_never_match_end_a_job_without_restarts(world: type[World]) -> None:
    w = world(TWO % "maxRestarts: 0")
    w.settle()
    said = (REPORTS / "worker-1-lost" / "worker-0.exit-1.txt").read_text()
    for attempt in range(2):
        assert w.attempt == attempt
        for index in (0, 1):
            w.worker(index)
        w.settle()
        w.later(610)
        for index in (0, 1):
            w.worker_fails(index, 1, said, after_s=(w.now - EPOCH).total_seconds())
        w.settle()
        w.remove_old_pods()
        w.later(60)
        w.settle()
    assert w.restarts.by_cause == {"PeerLost": 1, "PeerLostAgain": 1}
    assert w.condition("Failed")[:2] == ("True", "WorkerFailed")


def test_every_cause_has_a_budget_and_a_meaning() -> None:
    assert {cause.budget for cause in Cause} == set(Budget)
    assert all(cause.meaning.endswith(".") for cause in Cause)


POLICY = EffectiveRunPolicy(3, None, 0, RestartPolicy.ON_FAILURE, None, None, None, PodRetention.FAILED)


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [
        ("OnFailure", 1, True),
        ("Never", 143, False),
        *(("ExitCode", code, False) for code in (1, 2, 126, 127, 128, 139, 42)),
        *(("ExitCode", code, True) for code in (130, 137, 138, 143, -9, -15, 134)),
    ],
)
def test_the_code_decides_where_the_policy_says_so(policy: str, code: int, again: bool) -> None:
    asked = replace(POLICY, restart_policy=RestartPolicy(policy))
    found = refused(asked, Restarting(), Cause.ERROR, Failure(exit_code=code), Restarts())
    assert (found is None) is again


@pytest.mark.parametrize(("cause", "limit"), [(Cause.OOM_KILLED, 3), (Cause.NODE_LOST, 20), (Cause.PREEMPTED, 100)])
def test_each_cause_is_paid_from_its_own_budget(cause: Cause, limit: int) -> None:
    for used, again in ((limit - 1, True), (limit, False)):
        counts = {cause: used + 1, "Unheard": 500}
        restarts = Restarts(total=used + 1, by_cause=counts, recent_by_cause=counts)
        assert (refused(POLICY, Restarting(), cause, Failure(), restarts) is None) is again


def test_no_restart_at_all_is_a_plain_failure() -> None:
    once = Restarts(total=1, by_cause={Cause.ERROR: 1}, recent_by_cause={Cause.ERROR: 1})
    found = refused(replace(POLICY, max_restarts=0), Restarting(), Cause.ERROR, Failure(), once)
    assert found is not None
    assert (found.reason, found.why) == ("WorkerFailed", "no restart is allowed (runPolicy.maxRestarts)")
