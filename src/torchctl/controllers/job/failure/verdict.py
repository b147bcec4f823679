"""The first loss of an attempt: the one that caused the others.

All that is known is one list of losses: of each pod that failed or was told to stop, what the open incident recorded,
and a Job that failed. Clocks of nodes differ by seconds, and reports come in any order. So the kind of a loss counts
before its time:

1. The Job controller of a fixed-size job stops the others when one fails. So a deletion without a reason is a
   consequence if it is no earlier than the Job's own FailureTarget or Failed, by the control plane's clocks, and some
   pod failed by itself. It counts only if there is nothing else. One that is earlier by more than these clocks may
   differ is somebody's.
2. What the cluster or somebody took comes first (`_KINDS`), then memory, then what else failed by itself, then a
   deletion of which nobody knows whose it is, then what only noticed that a peer was gone.
3. Of one kind the earliest counts; one without a time was before all others.
4. Of one second, the one whose report names an exit code counts, then the worker of the lowest index.

The order of seeing is not asked, so whoever looks later, or for the first time, judges the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from torchctl.api.causes import Budget, Cause, cause_named
from torchctl.api.conditions import JobReason
from torchctl.api.job import Failure
from torchctl.api.jobstatus import Incident
from torchctl.api.kube import Job, KaiPodGroup, Pod
from torchctl.api.labels import KAI_POD_GROUP
from torchctl.api.names import INIT_CONTAINER, PREFLIGHT_CONTAINER, TRAINER
from torchctl.controllers.job import pods, success
from torchctl.controllers.job.case import Case
from torchctl.controllers.job.failure import evidence
from torchctl.controllers.job.failure.evictions import evicted_around
from torchctl.controllers.job.failure.evidence import Evidence, rank_of
from torchctl.controllers.job.failure.preflights import preflight
from torchctl.controllers.job.failure.rules import cause_of
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.runtime.conditions import find

__all__ = ["Loss", "first_loss", "recorded", "replaced_host", "root", "sentence"]

_UNEXPLAINED = (Cause.DELETED, Cause.VANISHED)

_KINDS = {
    Cause.PREEMPTED: 0,
    Cause.LIMIT_EXCEEDED: 0,
    Cause.NODE_LOST: 0,
    Cause.EVICTED: 0,
    Cause.REJECTED: 0,
    Cause.BELOW_MINIMUM: 0,
    Cause.OOM_KILLED: 1,
    Cause.DELETED: 3,
    Cause.PEER_LOST: 4,
    Cause.VANISHED: 6,
}
"""The order of causes by rule 2; a cause that is not here has order 2: the pod failed by itself."""
_CONTROL_SKEW = timedelta(seconds=1)
"""The most by which two times of one moment can differ: the control plane cuts them to whole seconds."""
_HOW = {Cause.DELETED: "deleted", Cause.EVICTED: "evicted", Cause.PREEMPTED: "preempted"}
_STOPPED = "told to stop"


@dataclass(frozen=True, slots=True)
class Loss:
    """One loss.

    Args:
        at: When it happened, None if nothing says.
        permanent: Why no other attempt can end otherwise, if that is so.
        by_itself: Whether the pod failed without having been told to stop.
        reported: Whether a report names the exit code of the rank that failed.
    """

    cause: Cause
    failure: Failure
    at: datetime | None
    permanent: JobReason | None = None
    by_itself: bool = False
    reported: bool = False


def first_loss(case: Case) -> Loss | None:
    """Returns the loss that ends the attempt, None while there is none.

    An elastic job forms again without a pod that the cluster took from it, unless that pod is the store's host.
    """
    incident, gave_up = case.status.incident, _gave_up(case.observed.worker_job)
    found = [_judged(one, case.template) for one in _evidence(case) if _ends_the_attempt(one, case)]
    found += [recorded(case, incident)] if incident is not None else []
    found += _of_the_job(case.observed.worker_job)
    return root(found, gave_up) if found else None


def recorded(case: Case, incident: Incident) -> Loss:
    """Returns the loss that the open incident records; its pod may be gone, or told to stop since."""
    cause, at = cause_named(incident.cause) or Cause.VANISHED, incident.lost
    if cause in _UNEXPLAINED and at is not None and evicted_around(case.observed.podgroup, at):
        cause = Cause.PREEMPTED
    failure = case.status.failure or Failure()
    if cause != incident.cause:
        failure = msgspec.structs.replace(failure, reason=str(cause))
    gone = failure.pod not in {pod.metadata.name for pod in case.observed.pods}
    return Loss(cause, failure, at, by_itself=gone and cause not in (*_UNEXPLAINED, Cause.PREEMPTED))


def replaced_host(case: Case) -> Loss | None:
    """Returns the loss of the worker 0 that hosted the store, if another replaced it before anybody saw it go."""
    hosts = {pod.metadata.uid: pod for pod in case.observed.pods if pods.index(pod) == 0}
    known = case.status.host_uid
    if not known or not hosts or known in hosts or case.template is None or not case.template.meets_at_worker_0:
        return None
    if success.has_succeeded(case.observed):
        return None
    host = next(iter(hosts.values()))
    message = "it took the place of the worker 0 at which the others had met, and nothing says why that one is gone"
    failure = Failure(pod=host.metadata.name, node=host.spec.node_name, reason=Cause.VANISHED, message=message)
    return Loss(Cause.VANISHED, failure, host.metadata.creation_timestamp)


def root(losses: Sequence[Loss], gave_up: datetime | None) -> Loss:
    """The first of several losses, by the rules above.

    Args:
        gave_up: When the Job controller began to stop the remaining pods.
    """
    stops = any(loss.by_itself for loss in losses)
    return min(losses, key=lambda loss: (_kind(loss, gave_up, stops), *_order(loss)))


def _kind(loss: Loss, gave_up: datetime | None, stops: bool) -> int:
    """Orders a loss by rules 1 and 2; `stops`: the Job controller has a reason to stop the others."""
    if loss.cause is Cause.DELETED and gave_up is not None and loss.at is not None:
        if loss.at < gave_up - _CONTROL_SKEW:
            return 0
        if stops:
            return 5
    return _KINDS.get(loss.cause, 2)


def _order(loss: Loss) -> tuple[float, bool, str]:
    """Orders losses of one kind by rules 3 and 4."""
    at = loss.at.timestamp() if loss.at is not None else 0.0
    return at, not loss.reported, loss.failure.pod


def _gave_up(job: Job | None) -> datetime | None:
    """Returns when the Job controller began to stop the remaining pods."""
    said = (find(job.status.conditions, type_) for type_ in ("FailureTarget", "Failed")) if job is not None else ()
    moments = (one.last_transition_time for one in said if one is not None and one.status == "True")
    return min((moment for moment in moments if moment is not None), default=None)


def _evidence(case: Case) -> Iterator[Evidence]:
    """Yields the evidence of every lost pod of the attempt."""
    gave_up = _gave_up(case.observed.worker_job) is not None
    for pod in case.observed.pods:
        one = evidence.read(pod, _group(pod, case.observed), gave_up=gave_up)
        if one is not None:
            yield one


def _ends_the_attempt(one: Evidence, case: Case) -> bool:
    if case.is_elastic and success.has_succeeded(case.observed):
        return False  # stopped since worker 0 has come to the end
    if case.template is None or case.template.elastic is None:
        return True
    index = pods.index(one.pod) or 0
    if index >= case.template.desired(case.observed.job.spec):
        return False  # scaled away
    if _permanent(one.pod) is not None or cause_of(one).budget is Budget.USER:
        return True
    decides = case.template.meets_at_worker_0 or pods.has_finished(one.pod)  # its Job takes that for the success of all
    return index == 0 and decides


def _permanent(pod: Pod) -> JobReason | None:
    """Returns the reason why any other pod in its place would end the same way; None if one could do better."""
    found = preflight(pod)
    return found.reason if found is not None and found.permanent else None


def _of_the_job(job: Job | None) -> tuple[Loss, ...]:
    """A Job that failed. It counts if no pod of it says more."""
    failed = find(job.status.conditions, "Failed") if job is not None else None
    if job is None or failed is None or failed.status != "True":
        return ()
    message = f"Job {job.metadata.name} failed: {failed.message}"
    return (Loss(Cause.VANISHED, Failure(reason=failed.reason, message=message), failed.last_transition_time),)


def _group(pod: Pod, observed: Observed) -> KaiPodGroup | None:
    """The PodGroup that the pod is in; one that is gone was the attempt's own."""
    return observed.groups.get(pod.metadata.annotations.get(KAI_POD_GROUP, ""), observed.podgroup)


def _judged(one: Evidence, template: FrozenTemplate | None) -> Loss:
    cause, known = cause_of(one), one.report.exit_code is not None
    return Loss(cause, _describe(one, cause, template), one.at, _permanent(one.pod), not one.told, known)


def _describe(one: Evidence, cause: Cause, template: FrozenTemplate | None) -> Failure:
    pod, report = one.pod, one.report
    ranked = not one.container or one.container == TRAINER  # before its trainer a worker has no rank
    code = report.exit_code if report.exit_code is not None else one.end.exit_code if one.container else None
    silent = one.told and not one.speaks
    return Failure(
        pod=pod.metadata.name,
        node=pod.spec.node_name,
        rank=report.rank if report.rank is not None else rank_of(pods.index(pod), template) if ranked else None,
        # The exit code of a pod that was told to stop tells how it stopped, not what went wrong.
        exit_code=None if silent else code,
        reason=one.reason or (str(cause) if silent else one.end.reason if one.container else "Failed"),
        message=report.message
        or _of_helper(one)
        or pods.shorten(one.end.message if one.container else "")
        or pod.status.message
        or (f"the pod was {_HOW.get(cause, _STOPPED)} before it ended" if silent else ""),
    )


def _of_helper(one: Evidence) -> str:
    """The words of a container that failed beside a trainer, with its name."""
    if one.container in ("", TRAINER, INIT_CONTAINER, PREFLIGHT_CONTAINER):
        return ""
    return f"container {one.container}: {pods.shorten(one.end.message) or 'it failed and said nothing'}"


def sentence(failure: Failure) -> str:
    """A failure as a person reads it."""
    rank = f", rank {failure.rank}" if failure.rank is not None else ""
    where = f" on node {failure.node}" if failure.node else ""
    last = failure.message.strip().splitlines()[-1:] or [""]
    if not failure.pod:
        return last[0]
    return f"pod {failure.pod}{where}{rank} failed {_how(failure)}" + (f": {pods.shorten(last[0])}" if last[0] else "")


def _how(failure: Failure) -> str:
    """`with exit code 137 (OOMKilled)`: of code and reason what is known and says something."""
    if failure.exit_code is None:
        return f"({failure.reason})"
    named = "" if failure.reason in ("", "Error") else f" ({failure.reason})"
    return f"with exit code {failure.exit_code}{named}"
