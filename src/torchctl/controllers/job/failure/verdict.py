"""The first loss of an attempt: the one that caused the others.

Clocks of nodes differ by seconds, and reports come in any order. So the kind of a loss counts before its time:

1. What the cluster took comes first (`_KINDS`), then memory, then what else failed by itself, then a deletion without a
   reason, then what only noticed that a peer was gone.
2. Others tell whose a deletion is. KAI evicted at that time: the cluster took the pod. The Job gave up clearly later:
   somebody deleted it, which counts as if the cluster took it. The Job gave up before, or about then: it stopped what
   was left, which counts only if there is nothing else. All of these are clocks of the control plane.
3. Of one kind the earliest counts; one without a time was before all others. Of one second, the one with another exit
   code than torchrun's own 1 counts, then the lowest index.

An incident keeps the first deletion and the first of all other losses. What Job and KAI say later changes neither, only
which of the two counts. The first of a set is the same in any order, so the order of seeing does not matter.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import msgspec

from torchctl.api.causes import Budget, Cause, cause_named
from torchctl.api.conditions import JobReason
from torchctl.api.job import Failure
from torchctl.api.jobstatus import Incident, OtherLoss
from torchctl.api.kube import Job, Pod
from torchctl.api.names import TRAINER
from torchctl.controllers.gangs.evictions import evicted_around
from torchctl.controllers.job import pods
from torchctl.controllers.job.case import Case
from torchctl.controllers.job.failure import evidence, preflights
from torchctl.controllers.job.failure.rules import cause_of
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.steps import admission
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.runtime.conditions import find

__all__ = ["Loss", "confirmed", "first_loss", "hinges_on_its_job", "root"]

_KINDS: tuple[set[Cause], ...] = (
    {Cause.PREEMPTED, Cause.LIMIT_EXCEEDED, Cause.NODE_LOST, Cause.EVICTED, Cause.REJECTED, Cause.BELOW_MINIMUM},
    {Cause.OOM_KILLED},
    {Cause.ERROR, Cause.WORKSPACE_LOST, Cause.RENDEZVOUS_UNREACHABLE},
    {Cause.DELETED},
    {Cause.PEER_LOST, Cause.PEER_LOST_AGAIN},
    set(),
    {Cause.VANISHED},
)
"""The kinds of rule 1, the first before all others; a deletion may have another one, by rule 2."""
_BY_SOMEBODY, _BY_ITS_JOB = 0, 5
_CONTROL_SKEW = timedelta(seconds=1)
"""The most by which two times of one moment can differ: the control plane cuts them to whole seconds."""
_NO_PYTHON = 'exec: "python3"'
"""runc's words about the first program of a worker that reloads its code, if the image does not have it."""


@dataclass(frozen=True, slots=True)
class Loss:
    """One loss.

    Args:
        at: When it happened, None if nothing says.
        other: If a deletion is the first loss, the first of the others; else the first deletion.
    """

    cause: Cause
    failure: Failure
    at: datetime | None
    other: "Loss | None" = None

    @property
    def permanent(self) -> JobReason | None:
        """Why no other attempt can end otherwise, if that is so."""
        return preflights.permanent(self.cause, self.failure.exit_code)

    def opened(self, when: datetime) -> Incident:
        """The incident that keeps it; status has the failure."""
        other = OtherLoss(self.other.cause, self.other.failure, self.other.at) if self.other is not None else None
        return Incident(self.cause, when, self.at, other)


def first_loss(case: Case) -> Loss | None:
    """Returns the loss that ends the attempt, None while there is none."""
    losses = [*_seen(case)]
    return root(losses, case) if losses else None


def confirmed(case: Case, incident: Incident) -> Loss:
    """Returns the first loss of an open incident, whose pod may be gone, or told to stop since."""
    recorded = [_loss(incident.cause, case.status.failure or Failure(), incident.lost)]
    if incident.other is not None:
        recorded.append(_loss(incident.other.cause, incident.other.failure, incident.other.lost))
    return root([*_seen(case), *recorded], case)


def root(losses: Iterable[Loss], case: Case) -> Loss:
    """The first of several losses, by the rules above."""
    gave_up = _gave_up(case.observed.worker_job)
    known = sorted((_preempted(loss, case) for loss in losses), key=lambda loss: _order(loss, gave_up))
    first = known[0]
    others = (loss for loss in known if (loss.cause is Cause.DELETED) is not (first.cause is Cause.DELETED))
    return replace(first, other=next(others, None))


def look_again_s(case: Case) -> float | None:
    """Returns seconds until the silence of an elastic Job tells who deleted a pod; None if no pod asks that."""
    if not case.is_elastic:
        return None
    left = (_told_untracked_s(pod, case) for pod in case.observed.pods)
    return min((one for one in left if one), default=None)


def hinges_on_its_job(loss: Loss, case: Case) -> bool:
    """Whether the Job has yet to say whose the deletion is that is the first loss or beside it."""
    job = case.observed.worker_job
    return loss.other is not None and not case.is_elastic and job is not None and _gave_up(job) is None


def _gave_up(job: Job | None) -> datetime | None:
    """Returns when the Job controller began to stop the remaining pods, None if it has not."""
    said = (job.status.conditions if job is not None else None) or ()
    true = (one for one in said if one.type in ("FailureTarget", "Failed") and one.status == "True")
    return min((one.last_transition_time for one in true if one.last_transition_time is not None), default=None)


def _order(loss: Loss, gave_up: datetime | None) -> tuple[int, float, bool, str]:
    kind = next(kind for kind, causes in enumerate(_KINDS) if loss.cause in causes)
    at = loss.at.timestamp() if loss.at is not None else 0.0
    if loss.cause is Cause.DELETED and gave_up is not None and loss.at is not None:
        kind = _BY_SOMEBODY if loss.at < gave_up - _CONTROL_SKEW else _BY_ITS_JOB
    return kind, at, loss.failure.exit_code in (None, 1), loss.failure.pod


def _preempted(loss: Loss, case: Case) -> Loss:
    """The loss, which is a preemption if it is a deletion at the time of an eviction by KAI."""
    if loss.at is None or loss.cause is not Cause.DELETED:
        return loss
    groups = (case.observed.podgroup, *case.observed.groups.values())
    if not any(evicted_around(group, loss.at) for group in groups):
        return loss
    failure = msgspec.structs.replace(loss.failure, reason=Cause.PREEMPTED)
    return replace(loss, cause=Cause.PREEMPTED, failure=failure)


def _loss(cause: str, failure: Failure, at: datetime | None) -> Loss:
    """A recorded loss, maybe by another version of the operator."""
    return Loss(cause_named(cause) or Cause.VANISHED, failure, at)


def _explained(failure: Failure, template: FrozenTemplate | None) -> Failure:
    """The failure with what the image lacks, if it cannot start the launcher."""
    if template is None or not template.launches or _NO_PYTHON not in failure.message:
        return failure
    lacks = f"hotReload needs python3 in the image of {TRAINER}, which has none"
    return msgspec.structs.replace(failure, message=f"{lacks}: {failure.message}")


def _seen(case: Case) -> Iterator[Loss]:
    """Yields the losses that end the attempt, as far as pods and Job tell of them."""
    for one in filter(None, map(evidence.read, case.observed.pods)):
        cause, pod = cause_of(one), one.pod
        rank = case.template.rank_of(pods.index(pod)) if case.template is not None else None
        loss = Loss(cause, _explained(one.failure(cause, rank), case.template), one.at)
        if _ends_the_attempt(pod, loss, case) and not _is_stopped_by_its_job(pod, loss, case):
            yield loss
    if (told := _told_to_leave(case)) is not None:
        yield told
    if (failed := _failed(case.observed)) is not None:
        yield failed


def _failed(observed: Observed) -> Loss | None:
    """Returns the loss that the Job tells of, once it has given up and its pods have ended.

    Its controller says Failed in the next moment, or never: Kueue takes the start time out of a Job that it evicts, and
    the API server refuses the end of a Job without one.
    """
    job = observed.worker_job
    said = job.status.conditions if job is not None else None
    failed = find(said, "Failed") or find(said, "FailureTarget")
    if job is None or failed is None or failed.status != "True":
        return None
    if failed.type == "FailureTarget" and not all(map(pods.has_ended, observed.pods)):
        return None
    message = f"Job {job.metadata.name} failed: {failed.message}"
    return Loss(Cause.VANISHED, Failure(reason=failed.reason, message=message), failed.last_transition_time)


def _told_to_leave(case: Case) -> Loss | None:
    """Returns the loss that the coordinator makes by taking the room back, unless another one came before."""
    told, incident = admission.granted(case.status), case.status.incident
    if told is None or not told.preempted_for or (incident is not None and incident.cause != Cause.PREEMPTED):
        return None
    message = f"the coordinator took its room back for TorchrunJob {told.preempted_for}: it waits for room again"
    return Loss(Cause.PREEMPTED, Failure(reason=Cause.PREEMPTED, message=message), told.taken_back_time)


def _is_stopped_by_its_job(pod: Pod, loss: Loss, case: Case) -> bool:
    """Whether the Job's controller stops the pod, and the Job has yet to say why: it is suspended, or gives up.

    The two are watched apart, so the pod may be seen first. A loss with a reason is never the Job's doing. An elastic
    Job takes its finalizer off pods that somebody else deletes, too (podReplacementPolicy TerminatingOrFailed): one
    that stays silent has not stopped the pod.
    """
    job, left = case.observed.worker_job, _told_untracked_s(pod, case)
    if loss.cause is not Cause.DELETED or left is None or job is None or _gave_up(job) is not None:
        return False
    return left > 0 or not case.is_elastic


def _told_untracked_s(pod: Pod, case: Case) -> float | None:
    """Returns seconds in which the Job may still say that it stops the pod; None unless the pod may be stopped by it.

    The moment is of the control plane's clock. So one that seems far ahead is past: its clock or ours was set back.
    """
    told = pods.told_at(pod)
    if told is None or pods.is_tracked(pod) or pods.has_ended(pod):
        return None
    longest_s = 2 * case.settings.settle_s
    left = (told - case.now).total_seconds() + longest_s
    return left if 0 < left <= 2 * longest_s else 0.0


def _ends_the_attempt(pod: Pod, loss: Loss, case: Case) -> bool:
    """Whether a lost pod ends the attempt: an elastic job forms again without what the cluster took from it."""
    if case.template is None or case.template.elastic is None:
        return True
    index = pods.index(pod) or 0
    if index >= case.template.desired(case.observed.job.spec) or pods.is_done(pod):
        return False  # scaled away, or lost nothing
    if loss.permanent is not None or loss.cause.budget is Budget.USER:
        return True
    decides = case.template.meets_at_worker_0 or pods.has_finished(pod)  # its Job takes that for the success of all
    return index == 0 and decides
