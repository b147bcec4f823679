"""How the Job controller counts the pods that have ended. Pure.

A pod keeps its finalizer until the status counts it, so a failure is counted in two writes: first the pod's uid among
the uncounted, and once its finalizer is gone the number.
"""

from dataclasses import replace
from typing import Any

from torchctl.testing.sim.jobs import indexes, policies
from torchctl.testing.sim.jobs.look import Look, Todo, condition, put, tidy
from torchctl.testing.sim.jobs.pods import NOBODY, Worker

__all__ = ["FAILURE_TARGET", "SUCCESS_CRITERIA_MET", "counted"]

Json = dict[str, Any]

FAILURE_TARGET, SUCCESS_CRITERIA_MET = "FailureTarget", "SuccessCriteriaMet"
FINAL = {FAILURE_TARGET: "Failed", SUCCESS_CRITERIA_MET: "Complete"}


def counted(look: Look, todo: Todo, status: Json, succeeded: frozenset[int], end: Json | None) -> Todo:
    """Counts the pods that have ended, and ends the Job once nothing is left to wait for."""
    fails = end is not None and end["type"] == FAILURE_TARGET
    release, failed, won = _released(look, fails, ended=end is not None)
    old = look.status.get("uncountedTerminatedPods", {})
    tracked = {pod.uid for pod in look.pods if pod.tracked}
    pending = {name: [uid for uid in old.get(name, ()) if uid in tracked] for name in ("succeeded", "failed")}
    for name in ("succeeded", "failed"):
        status[name] = status.get(name, 0) + len(old.get(name, ())) - len(pending[name])
    pending["failed"] += [pod.uid for pod in failed]
    pending["succeeded"] += [pod.uid for pod in won] if not look.is_indexed else []
    if look.is_indexed:
        status["completedIndexes"] = indexes.text(succeeded)
        status["succeeded"] = len(succeeded)
    if end is not None and look.condition(end["type"]) is None:
        put(status, end)
    status["uncountedTerminatedPods"] = {name: uids for name, uids in pending.items() if uids}
    before = tidy(status)
    after = {**before, "conditions": [*before.get("conditions", ())], "uncountedTerminatedPods": {}}
    for name in ("succeeded", "failed"):
        after[name] = after.get(name, 0) + len(pending[name])
    if end is not None and not status["terminating"]:
        put(after, condition(look, FINAL[end["type"]], end["reason"], end.get("message", "")))
        if end["type"] == SUCCESS_CRITERIA_MET:
            after["completionTime"] = look.now
    changes = before != tidy({**look.status})
    return replace(
        todo,
        before=before if release and changes else None,
        release=tuple(pod.name for pod in release),
        after=tidy(after),
    )


def _released(look: Look, fails: bool, *, ended: bool) -> tuple[list[Worker], list[Worker], list[Worker]]:
    """Returns the pods that lose their finalizer; of them those that newly count as failed, and as succeeded.

    Once a Job fails, its pods that have not ended count as failed too.
    """
    old = look.status.get("uncountedTerminatedPods", {})
    known = {*old.get("failed", ()), *old.get("succeeded", ())}
    completions = look.spec.get("completions") or 0
    release, failed, won = [], [], []
    for pod in look.pods:
        lost = look.has_failed(pod)
        if not pod.tracked or not (look.leaves or ended or lost or pod.phase == "Succeeded"):
            continue
        release.append(pod)
        if pod.uid in known:
            continue
        if pod.phase == "Succeeded":
            won.append(pod)
        elif lost or fails:
            counts = policies.counts(look.spec.get("podFailurePolicy"), pod)
            if counts and (not look.is_indexed or NOBODY < pod.index < completions):
                failed.append(pod)
    return release, failed, won
