"""The simulated Job controller: one look at a Job and its pods, by the rules of the real one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchctl.testing.sim.jobs import indexes
from torchctl.testing.sim.jobs.core import decide
from torchctl.testing.sim.jobs.look import Backoff, Look, Todo
from torchctl.testing.sim.jobs.pods import Worker

Json = dict[str, Any]
NOW, NOW_S = "2030-01-01T00:00:00Z", 1000.0


def a_job(status: Json | None = None, **spec: Any) -> Json:
    whole = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimit": 0, **spec}
    return {"metadata": {"namespace": "team", "name": "job", "uid": "u"}, "spec": whole, "status": status or {}}


def a_pod(index: int, phase: str = "Running", *, leaves: bool = False, code: int = 0, tracked: bool = True) -> Worker:
    ended = phase in ("Succeeded", "Failed")
    return Worker(
        name=f"job-{index}-x",
        uid=f"uid-{index}",
        index=index,
        phase=phase,
        leaves=leaves,
        tracked=tracked,
        ready=phase == "Running",
        scheduled=True,
        ended_at=NOW_S if ended else None,
        exit_codes={"trainer": code} if ended else {},
        conditions={},
    )


def look(job: Json, *pods: Worker, now_s: float = NOW_S, backoff: Backoff | None = None) -> Todo:
    return decide(Look(job, pods, backoff or Backoff(), NOW, now_s, NOW_S))


def types(status: Json | None) -> list[str]:
    return [one["type"] for one in (status or {}).get("conditions", ())]


def test_new_job_starts_and_gets_a_pod_for_each_index() -> None:
    todo = look(a_job())
    assert todo.create == (0, 1)
    assert todo.after is not None
    assert (todo.after["startTime"], todo.after["active"]) == (NOW, 2)


def test_first_failure_stops_the_rest_and_counts_all() -> None:
    todo = look(a_job(), a_pod(0, "Failed", code=1), a_pod(1))
    assert (todo.delete, todo.forget) == (("job-1-x",), ())
    assert todo.before is not None
    assert todo.before["uncountedTerminatedPods"] == {"failed": ["uid-0", "uid-1"]}
    assert todo.release == ("job-0-x", "job-1-x")
    assert todo.after is not None
    assert (todo.after["failed"], todo.after["terminating"], types(todo.after)) == (2, 1, ["FailureTarget"])


def test_job_has_failed_only_when_its_pods_are_gone() -> None:
    first = look(a_job(), a_pod(0, "Failed", code=1), a_pod(1)).after
    todo = look(a_job(first), a_pod(0, "Failed", tracked=False))
    assert types(todo.after) == ["FailureTarget", "Failed"]


def test_success_of_all_indexes_completes() -> None:
    todo = look(a_job(), a_pod(0, "Succeeded"), a_pod(1, "Succeeded"))
    assert todo.after is not None
    assert types(todo.after) == ["SuccessCriteriaMet", "Complete"]
    assert (todo.after["completedIndexes"], todo.after["completionTime"]) == ("0,1", NOW)


@pytest.mark.parametrize(("policy", "replaced"), [("Failed", ()), ("TerminatingOrFailed", (1,))])
def test_replacement_policy_decides_when_a_leaving_pod_is_replaced(policy: str, replaced: tuple[int, ...]) -> None:
    job = a_job(podReplacementPolicy=policy, backoffLimit=9)
    todo = look(job, a_pod(0), a_pod(1, leaves=True), now_s=NOW_S + 11)
    assert todo.create == (() if policy == "Failed" else todo.create)
    waited = look(job, a_pod(0), a_pod(1, leaves=True, tracked=False), now_s=NOW_S + 11)
    assert waited.create == replaced


def test_failures_delay_replacements() -> None:
    job = a_job(backoffLimit=9)
    todo = look(job, a_pod(0), a_pod(1, "Failed", code=1))
    assert todo.create == ()
    assert todo.again_s == 10.0
    assert todo.backoff == Backoff(1, NOW_S)
    assert look(job, a_pod(0), now_s=NOW_S + 10, backoff=todo.backoff).create == (1,)


def test_elastic_job_gives_up_the_highest_indexes() -> None:
    todo = look(a_job(completions=1, parallelism=1), a_pod(0), a_pod(1))
    assert todo.delete == ("job-1-x",)


def test_success_policy_ends_the_others() -> None:
    policy = {"rules": [{"succeededIndexes": "0"}]}
    todo = look(a_job(successPolicy=policy), a_pod(0, "Succeeded"), a_pod(1))
    assert todo.delete == ("job-1-x",)
    assert types(todo.after) == ["SuccessCriteriaMet"]
    assert todo.after is not None
    assert todo.after.get("failed", 0) == 0


def test_pod_failure_policy_ignores_or_fails_by_exit_code() -> None:
    rules = [
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}},
    ]
    job = a_job(podFailurePolicy={"rules": rules}, podReplacementPolicy="Failed", backoffLimit=0)
    failed = look(job, a_pod(0, "Failed", code=42), a_pod(1)).after
    assert failed is not None
    assert failed["conditions"][0]["reason"] == "PodFailurePolicy"
    ignored = look(job, a_pod(0, "Failed", code=7), a_pod(1))
    assert ignored.after is not None
    assert (types(ignored.after), ignored.after.get("failed", 0)) == ([], 0)


def test_suspension_deletes_and_resuming_starts_anew() -> None:
    todo = look(a_job({"startTime": "2029"}, suspend=True), a_pod(0))
    assert todo.delete == todo.forget == ("job-0-x",)
    assert types(todo.after) == ["Suspended"]
    assert todo.after is not None
    assert "startTime" not in todo.after
    again = look(a_job(todo.after)).after
    assert again is not None
    assert (again["startTime"], again["conditions"][0]["status"]) == (NOW, "False")


def test_deadline_is_awaited_and_ends_the_job() -> None:
    job = a_job({"startTime": NOW}, activeDeadlineSeconds=60)
    assert look(job, a_pod(0), a_pod(1), now_s=NOW_S + 50).again_s == 10.0
    over = look(job, a_pod(0), a_pod(1), now_s=NOW_S + 60).after
    assert over is not None
    assert over["conditions"][0]["reason"] == "DeadlineExceeded"


def test_a_second_look_changes_nothing() -> None:
    pods = [a_pod(0), a_pod(1)]
    job = a_job(look(a_job(), *pods).after)
    todo = look(job, *pods)
    assert (todo.delete, todo.create, todo.before, todo.release) == ((), (), None, ())
    assert todo.after == job["status"]


@given(st.frozensets(st.integers(0, 40)))
def test_indexes_are_read_as_they_are_written(chosen: frozenset[int]) -> None:
    assert indexes.parse(indexes.text(chosen)) == chosen


def test_three_neighbours_are_a_range_and_two_are_not() -> None:
    assert indexes.text([5, 1, 3, 4, 8, 9]) == "1,3-5,8,9"
