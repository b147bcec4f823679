"""The first loss of an attempt: the one that caused the others.

All that is known is one list of losses: of each pod that failed or was told to stop, and the loss that the open incident
recorded, if its pod is gone. The clocks of nodes differ by seconds, and reports come in any order. So the kind of a loss
counts before its time:

1. The Job controller of a fixed-size job stops the others: a deletion without a reason, no earlier than the Job's own
   FailureTarget or Failed by the control plane's clock, is a consequence. It counts only if there is nothing else.
2. What the cluster or a person took comes first; then what failed by itself; then a deletion of which nobody knows
   whose it is; then what only noticed that a peer was gone.
3. Of one kind, the earliest counts; one without a time was before all others.
4. In one second, the one whose report names an exit code, then the worker of the lowest index.

The order of seeing is not asked. So whoever looks later, or for the first time, judges the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from torchctl.api.causes import Budget, Cause, cause_named
from torchctl.api.common import RdzvBackend
from torchctl.api.conditions import JobReason
from torchctl.api.job import Failure
from torchctl.api.kube import Job, KaiPodGroup, Pod
from torchctl.api.labels import KAI_POD_GROUP
from torchctl.api.names import TRAINER
from torchctl.controllers.job import pods, success
from torchctl.controllers.job.failure import evidence
from torchctl.controllers.job.failure.evictions import evicted_around
from torchctl.controllers.job.failure.evidence import Evidence, rank_of
from torchctl.controllers.job.failure.preflights import preflight
from torchctl.controllers.job.failure.rules import cause_of
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.controllers.settings import Restarting
from torchctl.runtime.conditions import find

__all__ = ["Loss", "first_loss", "root", "sentence"]

_KINDS = {
    Cause.PREEMPTED: 0,
    Cause.LIMIT_EXCEEDED: 0,
    Cause.NODE_LOST: 0,
    Cause.EVICTED: 0,
    Cause.REJECTED: 0,
    Cause.BELOW_MINIMUM: 0,
    Cause.OOM_KILLED: 1,
    Cause.PEER_LOST: 4,
    Cause.VANISHED: 6,
}
"""Rule 2; 2 is what else failed by itself."""


@dataclass(frozen=True, slots=True)
class Loss:
    """One loss.

    Args:
        at: When it happened, None if nothing says.
        by_itself: Whether the pod failed without having been told to stop.
        permanent: Why no other attempt can end otherwise, if that is so.
    """

    cause: Cause
    failure: Failure
    at: datetime | None
    by_itself: bool
    permanent: JobReason | None = None


def first_loss(observed: Observed, template: FrozenTemplate | None, settings: Restarting, now: datetime) -> Loss | None:
    """The loss that ends the attempt, None while there is none.

    An elastic job forms again without a pod that the cluster took from it, unless that pod is the store's host.
    """
    found = [
        _judged(one, template)
        for pod in observed.pods
        if (one := evidence.read(pod, _group(pod, observed), settings.stuck_pod_s, now)) is not None
        and _ends_the_attempt(one, observed, template)
    ]
    recorded = _recorded(observed)
    if recorded is not None:
        found.append(recorded)
    gave_up = _gave_up(observed)
    if not found:
        return None if gave_up is None or not observed.worker_job else _of_the_job(observed.worker_job, gave_up)
    return root(found, gave_up, elastic=template is not None and template.elastic is not None)


def root(losses: Sequence[Loss], gave_up: datetime | None, *, elastic: bool) -> Loss:
    """The first of several losses, by the rules above.

    Args:
        gave_up: When the Job controller began to stop what was left.
    """
    stops_others = gave_up is not None and any(loss.by_itself for loss in losses)
    return min(losses, key=lambda loss: (_kind(loss, gave_up, stops_others, elastic), *_order(loss)))


def _kind(loss: Loss, gave_up: datetime | None, stops_others: bool, elastic: bool) -> int:
    """Rules 1 and 2."""
    if loss.cause is Cause.DELETED:
        if elastic or (gave_up is not None and loss.at is not None and loss.at < gave_up):
            return 0
        return 5 if stops_others else 3
    return _KINDS.get(loss.cause, 2)


def _order(loss: Loss) -> tuple[float, bool, str]:
    """Rules 3 and 4."""
    at = loss.at.timestamp() if loss.at is not None else 0.0
    return at, loss.failure.exit_code is None, loss.failure.pod


def _gave_up(observed: Observed) -> datetime | None:
    job = observed.worker_job
    conditions = (find(job.status.conditions, type_) for type_ in ("FailureTarget", "Failed")) if job else ()
    return min(
        (one.last_transition_time for one in conditions if one and one.status == "True" and one.last_transition_time),
        default=None,
    )


def _recorded(observed: Observed) -> Loss | None:
    """What the open incident recorded: its pod may be gone, or told to stop since."""
    incident, failure = observed.job.status.incident, observed.job.status.failure
    if incident is None or failure is None:
        return None
    cause = cause_named(incident.cause) or Cause.VANISHED
    if not failure.pod and cause is Cause.VANISHED:
        return Loss(cause, failure, incident.lost, cause is not Cause.DELETED)
    if cause is Cause.DELETED and incident.lost and evicted_around(observed.podgroup, incident.lost):
        cause = Cause.PREEMPTED
    return Loss(cause, failure, incident.lost, cause is not Cause.DELETED)


def _ends_the_attempt(one: Evidence, observed: Observed, template: FrozenTemplate | None) -> bool:
    if observed.job.spec.elastic is not None and success.has_decided(observed):
        return False  # stopped since worker 0 has come to the end
    if template is None or template.elastic is None:
        return True
    index = pods.index(one.pod) or 0
    if index >= template.desired(observed.job.spec):
        return False  # scaled away
    if one.stuck or _permanent(one.pod) is not None or cause_of(one).budget is Budget.USER:
        return True
    decides = _hosts_the_store(template) or pods.succeeded(one.pod)  # its Job takes that for the success of all
    return index == 0 and decides


def _hosts_the_store(template: FrozenTemplate) -> bool:
    """Whether worker 0 is where the others meet: without it none of them can go on."""
    return template.rendezvous.backend == RdzvBackend.C10D and not template.rendezvous.endpoint


def _permanent(pod: Pod) -> JobReason | None:
    """Why no other pod in its place could end otherwise."""
    found = preflight(pod)
    return found.reason if found is not None and found.permanent else None


def _of_the_job(job: Job, gave_up: datetime) -> Loss | None:
    """A Job that failed although no pod of it says so: the pod is gone."""
    failed = find(job.status.conditions, "Failed")
    if failed is None or failed.status != "True":
        return None
    message = f"Job {job.metadata.name} failed: {failed.message}"
    return Loss(Cause.VANISHED, Failure(reason=failed.reason, message=message), gave_up, by_itself=False)


def _group(pod: Pod, observed: Observed) -> KaiPodGroup | None:
    """The PodGroup that the pod is in; one that is gone was the attempt's own."""
    return observed.groups.get(pod.metadata.annotations.get(KAI_POD_GROUP, ""), observed.podgroup)


def _judged(one: Evidence, template: FrozenTemplate | None) -> Loss:
    return Loss(cause := cause_of(one), _describe(one, cause, template), one.at, not one.told, _permanent(one.pod))


def _describe(one: Evidence, cause: Cause, template: FrozenTemplate | None) -> Failure:
    pod, report = one.pod, one.report
    ranked = not one.container or one.container == TRAINER  # before its trainer a worker has no rank
    code = report.exit_code if report.exit_code is not None else one.end.exit_code if one.container else None
    silent = one.told and not one.speaks and cause is not Cause.OOM_KILLED
    return Failure(
        pod=pod.metadata.name,
        node=pod.spec.node_name,
        rank=report.rank if report.rank is not None else rank_of(pods.index(pod), template) if ranked else None,
        # The code of a pod that was told to stop says how it took it, not what went wrong.
        exit_code=None if silent else code,
        reason=one.reason or (str(cause) if silent else one.end.reason if one.container else "Failed"),
        message=report.message
        or pods.shorten(one.end.message if one.container else "")
        or pod.status.message
        or ("the pod was deleted before it ended" if silent else ""),
    )


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
