"""Which ranks run on which worker, and whose logs are read."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from torchctl.api.jobstatus import JobStatus, NodeCounts
from torchctl.client.errors import UsageError
from torchctl.client.logs.nothing import nothing_text
from torchctl.client.logs.roster import Roster, Wanted
from torchctl.client.logs.workers import WORKER, Worker, label, worker
from torchctl.client.views import JobView
from torchctl.runtime.kinds import ObjectMeta

INDEX = "batch.kubernetes.io/job-completion-index"
STATIC = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "4", "PET_RDZV_BACKEND": "static"}


def pod(
    env: dict[str, str], *, index: int = 0, attempt: int = 0, command: str = "torchrun train.py", **spec: Any
) -> Worker:
    body = {
        "metadata": {
            "name": f"vit-{index}",
            "uid": f"{attempt}/{index}",
            "labels": {"torchrun.ai/attempt": str(attempt)},
            "annotations": {INDEX: str(index)},
        },
        "spec": {
            "containers": [
                {"name": "sidecar", "env": [{"name": "PET_NNODES", "value": "9"}]},
                {
                    "name": "trainer",
                    "command": ["sh", "-c", command],
                    "env": [{"name": name, "value": value} for name, value in env.items()],
                },
            ],
            **spec,
        },
        "status": {"phase": "Running", "containerStatuses": [{"name": "trainer", "state": {"running": {}}}]},
    }
    return worker(msgspec.convert(body, WORKER.type))


# Ranks.


@pytest.mark.parametrize(
    ("env", "index", "expected"),
    [
        ({"PET_NNODES": "1", "PET_NPROC_PER_NODE": "8", "PET_RDZV_BACKEND": "c10d"}, 0, (0, 8)),
        (STATIC, 1, (1, 4)),
        (STATIC | {"PET_RDZV_BACKEND": "c10d"}, 1, (1, 4)),
        # As text, `vit-10.` stands before `vit-2.`.
        (STATIC | {"PET_RDZV_BACKEND": "c10d", "PET_NNODES": "12"}, 10, (2, 4)),
        (STATIC | {"PET_RDZV_BACKEND": "c10d", "PET_NNODES": "12"}, 2, (4, 4)),
        (STATIC | {"PET_NNODES": "12"}, 10, (10, 4)),
        (STATIC | {"PET_RDZV_BACKEND": "etcd-v2"}, 1, (None, 4)),
        (STATIC | {"PET_NNODES": "1:2"}, 1, (None, 4)),
        ({}, 0, (None, None)),
    ],
)
def test_ranks_follow_from_the_environment(
    env: dict[str, str], index: int, expected: tuple[int | None, int | None]
) -> None:
    found = pod(env, index=index)
    assert (found.node_rank, found.ranks) == expected


def test_addresses_of_a_host_network_sort_otherwise() -> None:
    assert pod(STATIC | {"PET_RDZV_BACKEND": "c10d"}, index=1, hostNetwork=True).node_rank is None


def test_the_launcher_gives_out_ranks_by_index() -> None:
    command = "python3 /torchrun-launcher/launcher.py --nodes=12 --nproc=4 -- torchrun train.py"
    found = pod(STATIC | {"PET_RDZV_BACKEND": "c10d", "PET_NNODES": "12"}, index=10, command=command)
    assert (found.node_rank, found.ranks) == (10, 4)


def test_a_torchrun_of_the_user_s_own_may_say_otherwise() -> None:
    found = pod(STATIC, command="torchrun --nproc-per-node=2 train.py")
    assert (found.node_rank, found.ranks) == (None, None)


ONE = pod(STATIC | {"PET_NPROC_PER_NODE": "1"}, index=1)
FOUR = pod(STATIC, index=1)
UNKNOWN = pod(STATIC | {"PET_NNODES": "1:2"}, index=1)


@pytest.mark.parametrize(
    ("worker", "line", "expected"),
    [
        (ONE, "epoch 1", "rank 1"),
        (FOUR, "epoch 1", "node 1"),
        (FOUR, "[default2]: epoch 1", "rank 6"),
        (FOUR, "[default2]:epoch 1", "rank 6"),
        (FOUR, "[epoch0]: is no rank", "node 1"),
        (FOUR, "[rank7]: Traceback (most recent call last):", "rank 7"),
        (FOUR, "[default9]: of another world", "node 1"),
        (FOUR, "[2026] no prefix", "node 1"),
        (UNKNOWN, "epoch 1", "node 1"),
        (UNKNOWN, "[rank3]: Traceback", "rank 3"),
        (UNKNOWN, "[default0]: epoch 1", "node 1"),
    ],
)
def test_a_line_is_labelled_by_the_rank_that_is_known(worker: Worker, line: str, expected: str) -> None:
    assert label(worker, line) == expected


def test_a_rank_runs_on_the_node_that_has_it() -> None:
    assert [rank for rank in range(9) if FOUR.runs(rank)] == [4, 5, 6, 7]
    assert not any(UNKNOWN.runs(rank) for rank in range(9))


def test_a_trainer_that_waits_has_no_log() -> None:
    waiting = msgspec.convert(
        {
            "metadata": {"name": "vit-0"},
            "status": {"phase": "Pending", "containerStatuses": [{"name": "trainer", "state": {"waiting": {}}}]},
        },
        WORKER.type,
    )
    assert (worker(waiting).has_started, worker(waiting).has_ended) == (False, False)


# Whose logs are read.


def job(phase: str = "Running", attempt: int = 0) -> JobView:
    return JobView(
        ObjectMeta(name="vit", namespace="ml"),
        status=JobStatus(phase=phase, attempt=attempt, nodes=NodeCounts(desired=2)),
    )


def made(attempt: int, index: int = 0, *, started: bool = True, ended: bool = False) -> Worker:
    uid = f"{attempt}/{index}"
    return Worker(
        pod=uid,
        uid=uid,
        attempt=attempt,
        index=index,
        node_rank=index,
        ranks=2,
        nodes=2,
        has_started=started,
        has_ended=ended,
    )


def begun(roster: Roster, *workers: Worker) -> list[str]:
    roster.see_workers(workers)
    return [each.uid for each in roster.begin()]


def test_each_worker_begins_once_when_it_has_started() -> None:
    roster = Roster(Wanted(follow=True), job())
    assert begun(roster, made(0, 1, started=False), made(0)) == ["0/0"]
    assert begun(roster, made(0, 1), made(0, ended=True)) == ["0/1"]
    assert begun(roster, made(0, 1), made(0, ended=True)) == []


def test_a_follower_goes_over_to_the_next_attempt() -> None:
    roster = Roster(Wanted(follow=True), job())
    assert begun(roster, made(0)) == ["0/0"]
    roster.see_job(job("Restarting", 1))
    assert begun(roster, made(1)) == ["1/0"]
    assert [roster.has_ended(uid) for uid in ("0/0", "1/0")] == [True, False]
    before = roster.is_complete
    roster.see_job(job("Succeeded", 1))
    assert (before, roster.is_complete, roster.has_ended("1/0")) == (False, True, True)


def test_without_following_the_newest_attempt_with_a_log_is_read() -> None:
    roster = Roster(Wanted(), job("Starting", 2))
    assert begun(roster, made(0, ended=True), made(1, ended=True), made(2, started=False)) == ["1/0"]
    assert roster.is_complete


def test_an_attempt_can_be_named() -> None:
    roster = Roster(Wanted(follow=True, attempt=0), job(attempt=0))
    assert begun(roster, made(0), made(1)) == ["0/0"]
    before = roster.is_complete
    roster.see_job(job(attempt=1))
    assert (before, roster.is_complete) == (False, True)


def test_rank_node_and_pod_choose_a_worker() -> None:
    both = (made(0, 0), made(0, 1))
    assert begun(Roster(Wanted(rank=3), job()), *both) == ["0/1"]
    assert begun(Roster(Wanted(node=0), job()), *both) == ["0/0"]
    assert begun(Roster(Wanted(pod="0/1"), job()), *both) == ["0/1"]


def test_a_rank_beyond_the_last_one_is_refused() -> None:
    with pytest.raises(UsageError, match=r"there is no rank 4: the job has 4 ranks"):
        begun(Roster(Wanted(rank=4), job()), made(0, 0))


def test_a_node_beyond_the_last_one_is_refused() -> None:
    with pytest.raises(UsageError, match=r"there is no node 2: the job has 2 nodes"):
        begun(Roster(Wanted(node=2), job()), made(0, 0))


@pytest.mark.parametrize(
    ("seen", "wanted", "says"),
    [
        (
            ("Running", 0),
            Wanted(),
            "No lines yet: vit is Running. Wait for them with: kubectl torchrun logs vit -n ml -f",
        ),
        (("Running", 0), Wanted(tail=0), "No lines in that time: vit is Running."),
        (("Succeeded", 0), Wanted(), "No lines: vit is Succeeded. Its pods are gone, or wrote none."),
        (("Failed", 0), Wanted(tail=0), "Without --since and --tail there may be some."),
        (("Running", 1), Wanted(attempt=2), "There is no attempt 2: vit is Running, in attempt 1."),
        (("Running", 1), Wanted(attempt=0), "the pods of attempt 0 are gone, or wrote none. runPolicy.podRetention"),
    ],
)
def test_who_gets_no_lines_is_told_why(seen: tuple[str, int], wanted: Wanted, says: str) -> None:
    assert says in nothing_text(job(*seen), wanted)


def test_a_rank_whose_pod_is_unknown_asks_for_the_node() -> None:
    with pytest.raises(UsageError, match="--node"):
        begun(Roster(Wanted(rank=1), job()), UNKNOWN)


def test_a_deleted_job_has_no_further_workers() -> None:
    roster = Roster(Wanted(follow=True, since=datetime.now(UTC)), job())
    roster.see_job(None)
    assert roster.is_complete
