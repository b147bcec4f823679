"""What the Job controller decides when it looks at a Job and its pods. Pure.

The rules are those of `pkg/controller/job` (syncJob, manageJob, trackJobStatusAndRemoveFinalizers) for one look at a
Job whose pods are all known. Known differences: no backoffLimitPerIndex (it is refused), no batches of 500 pods.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchctl.testing.sim.jobs import indexes, policies
from torchctl.testing.sim.jobs.look import Backoff, Look, Todo, condition, put
from torchctl.testing.sim.jobs.pods import NOBODY, Worker
from torchctl.testing.sim.jobs.tally import FAILURE_TARGET, SUCCESS_CRITERIA_MET, counted

__all__ = ["decide", "is_finished"]

Json = dict[str, Any]

SUSPENDED = "Suspended"


@dataclass(frozen=True, slots=True)
class _Plan:
    """Deletions and creations, and the numbers that they leave."""

    active: int
    terminating: int
    ready: int
    delete: tuple[Worker, ...] = ()
    create: tuple[int | None, ...] = ()
    again_s: float | None = None


def is_finished(job: Json) -> bool:
    conditions = job.get("status", {}).get("conditions", ())
    return any(one["type"] in ("Complete", "Failed") and one["status"] == "True" for one in conditions)


def decide(look: Look) -> Todo:
    """Decides about an unfinished Job."""
    status: Json = {**look.status, "conditions": [*look.status.get("conditions", ())]}
    if "startTime" not in status and not look.is_suspended:
        status["startTime"] = look.now
    known, fresh = _fresh(look)
    backoff = _backed_off(look, fresh)
    look = replace(look, backoff=backoff)
    succeeded = known | {pod.index for pod in fresh if pod.phase == "Succeeded"}
    done = len(succeeded) if look.is_indexed else status.get("succeeded", 0) + _count(fresh, "Succeeded")
    end, again_s = _end(look, fresh, succeeded)
    if end is not None:
        plan = _stopped(look)
    elif look.leaves:
        plan = _unchanged(look)
    else:
        plan = _managed(look, succeeded, done)
        end = _completed(look, done, plan)
        if end is None:
            _suspend(look, status)
    status |= {"active": plan.active, "terminating": plan.terminating, "ready": plan.ready}
    waits = [seconds for seconds in (again_s, plan.again_s) if seconds is not None]
    todo = Todo(
        delete=tuple(pod.name for pod in plan.delete),
        create=plan.create,
        again_s=min(waits, default=None),
        backoff=backoff,
    )
    return counted(look, todo, status, succeeded, end)


def _fresh(look: Look) -> tuple[frozenset[int], list[Worker]]:
    """Returns the indexes that count as succeeded, and the pods with finalizers that have ended and are not counted."""
    uncounted = look.status.get("uncountedTerminatedPods", {})
    known = {*uncounted.get("failed", ()), *uncounted.get("succeeded", ())}
    completions = look.spec.get("completions") or 0
    done = frozenset(index for index in indexes.parse(look.status.get("completedIndexes", "")) if index < completions)
    fresh = [
        pod
        for pod in look.pods
        if pod.tracked
        and pod.uid not in known
        and (pod.phase == "Succeeded" or look.has_failed(pod))
        and (not look.is_indexed or NOBODY < pod.index < completions)
    ]
    return done, [pod for pod in fresh if pod.phase != "Succeeded" or pod.index not in done]


def _backed_off(look: Look, fresh: Iterable[Worker]) -> Backoff:
    """Notes the ends that are new, in the order of their times."""
    failures, last_s = look.backoff.failures, look.backoff.last_s
    for pod in sorted(fresh, key=lambda pod: pod.ended_at or look.now_s):
        if pod.phase == "Succeeded":
            failures = 0
        else:
            failures += 1
            last_s = max(last_s, pod.ended_at or look.now_s)
    return Backoff(failures, last_s)


def _end(look: Look, fresh: Sequence[Worker], succeeded: frozenset[int]) -> tuple[Json | None, float | None]:
    """Returns the interim condition that ends the Job, and the seconds after which a deadline may."""
    for type_ in (SUCCESS_CRITERIA_MET, FAILURE_TARGET):
        if (known := look.condition(type_)) is not None:
            return known, None
    policy = look.spec.get("podFailurePolicy")
    if message := policies.fail_message(policy, look.pods, look.job["metadata"]["namespace"]):
        return condition(look, FAILURE_TARGET, "PodFailurePolicy", message), None
    uncounted = len(look.status.get("uncountedTerminatedPods", {}).get("failed", ()))
    new = sum(1 for pod in fresh if pod.phase != "Succeeded" and policies.counts(policy, pod))
    if look.status.get("failed", 0) + uncounted + new > look.spec.get("backoffLimit", 6):
        message = "Job has reached the specified backoff limit"
        return condition(look, FAILURE_TARGET, "BackoffLimitExceeded", message), None
    deadline_s, left_s = look.spec.get("activeDeadlineSeconds"), None
    if deadline_s is not None and not look.is_suspended:
        left_s = deadline_s - (look.now_s - (look.now_s if look.started_s is None else look.started_s))
        if left_s <= 0:
            message = "Job was active longer than specified deadline"
            return condition(look, FAILURE_TARGET, "DeadlineExceeded", message), None
    if look.is_indexed:
        rule = policies.is_met(look.spec.get("successPolicy"), look.spec["completions"], succeeded)
        if rule is not None:
            return condition(look, SUCCESS_CRITERIA_MET, "SuccessPolicy", policies.met_message(rule)), None
    return None, left_s


def _unchanged(look: Look) -> _Plan:
    active = look.active
    return _Plan(len(active), len(look.terminating), sum(pod.ready for pod in active))


def _stopped(look: Look, chosen: Sequence[Worker] | None = None) -> _Plan:
    """Deletes the chosen active pods, all of them without a choice."""
    plan = _unchanged(look)
    gone = look.active if chosen is None else chosen
    return _Plan(
        plan.active - len(gone),
        plan.terminating + len(gone),
        plan.ready - sum(pod.ready for pod in gone),
        delete=tuple(gone),
    )


def _managed(look: Look, succeeded: frozenset[int], done: int) -> _Plan:
    """Brings the number of active pods to what is wanted: in one look pods are either deleted or created."""
    if look.is_suspended:
        return _stopped(look)
    active, parallelism, completions = look.active, look.spec["parallelism"], look.spec.get("completions")
    if completions is None:
        wanted = len(active) if done else parallelism
    else:
        wanted = max(0, min(completions - done, parallelism))
    surplus = _surplus(look, active, max(0, len(active) - wanted))
    if surplus:
        return _stopped(look, surplus)
    terminating = len(look.terminating) if look.replaces_only_failed else 0
    missing = wanted - terminating - len(active)
    plan = _unchanged(look)
    if missing <= 0:
        return plan
    if (left_s := look.backoff.left_s(look.now_s)) > 0:
        return replace(plan, active=0, again_s=left_s)  # the real one also says 0 for as long as it backs off
    new = _pending(look, succeeded, missing) if look.is_indexed else (None,) * missing
    return replace(plan, active=plan.active + len(new), create=new)


def _surplus(look: Look, active: Sequence[Worker], least: int) -> list[Worker]:
    """Returns active pods to remove: second ones of an index and those beyond the completions, then `least` in all."""
    chosen: list[Worker] = []
    if look.is_indexed:
        taken: set[int] = set()
        for pod in sorted(active, key=_readiness, reverse=True):
            if pod.index in taken or not NOBODY < pod.index < look.spec["completions"]:
                chosen.append(pod)
            taken.add(pod.index)
    left = sorted((pod for pod in active if pod not in chosen), key=_readiness)
    return [*chosen, *left[: max(0, least - len(chosen))]]


def _readiness(pod: Worker) -> tuple[bool, bool, bool]:
    return pod.scheduled, pod.phase == "Running", pod.ready


def _pending(look: Look, succeeded: frozenset[int], count: int) -> tuple[int, ...]:
    taken = succeeded | {pod.index for pod in look.active}
    if look.replaces_only_failed:
        taken |= {pod.index for pod in look.terminating}
    return tuple([index for index in range(look.spec["completions"]) if index not in taken][:count])


def _completed(look: Look, done: int, plan: _Plan) -> Json | None:
    completions = look.spec.get("completions")
    complete = done > 0 and not plan.active if completions is None else done >= completions and not plan.active
    if not complete:
        return None
    return condition(look, SUCCESS_CRITERIA_MET, "CompletionsReached", "Reached expected number of succeeded pods")


def _suspend(look: Look, status: Json) -> None:
    """Says in the status if the Job is suspended. A Job that is resumed starts anew."""
    known = next((one for one in status["conditions"] if one["type"] == SUSPENDED), None)
    if look.is_suspended and (known is None or known["status"] != "True"):
        put(status, condition(look, SUSPENDED, "JobSuspended", "Job suspended"))
    elif not look.is_suspended and known is not None and known["status"] == "True":
        put(status, condition(look, SUSPENDED, "JobResumed", "Job resumed") | {"status": "False"})
        status["startTime"] = look.now


def _count(pods: Iterable[Worker], phase: str) -> int:
    return sum(1 for pod in pods if pod.phase == phase)
