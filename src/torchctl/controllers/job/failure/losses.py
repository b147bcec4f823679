"""What an attempt has lost: the pod that failed, vanished or was told to stop before all others.

Its failure caused the others', so its cause is the incident's. The order is that of the containers' ends, and not of
the reports about them, which come from many nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from torchctl.api.causes import Budget, Cause
from torchctl.api.common import RdzvBackend
from torchctl.api.conditions import JobReason
from torchctl.api.job import Failure, JobStatus
from torchctl.api.kube import Job, KaiPodGroup, Pod
from torchctl.api.labels import KAI_POD_GROUP
from torchctl.api.names import TRAINER
from torchctl.controllers.job import pods, success
from torchctl.controllers.job.failure.causes import by_container, cause_of
from torchctl.controllers.job.failure.preflights import preflight
from torchctl.controllers.job.failure.rootcause import RootCause, root_cause
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.runtime.conditions import find

__all__ = [
    "Loss",
    "first_loss",
    "is_explained",
    "replaced_host",
    "sentence",
]

_NEVER = float("inf")
_SIGTERM = -15
"""The exit code that torchrun reports of a rank that was told to stop."""


@dataclass(frozen=True, slots=True)
class Loss:
    """The first loss of an attempt.

    Args:
        at: When it happened, None where nothing says.
        permanent: Why no other attempt can end otherwise, where that is so.
    """

    cause: Cause
    failure: Failure
    at: datetime | None
    permanent: JobReason | None = None


def first_loss(observed: Observed, template: FrozenTemplate | None) -> Loss | None:
    """The loss that ends the attempt, None while there is none.

    An elastic job forms again without a pod that the cluster took from it, unless that pod is the store's host.
    """
    lost = [pod for pod in observed.pods if _is_lost(pod) and _ends_the_attempt(pod, observed, template)]
    failed_at = _failed_at(lost)
    firsts = [pod for pod in lost if not _is_stopped_for(pod, observed, failed_at) or _says_why(pod, observed)]
    if firsts:
        pod = min(firsts, key=lambda pod: _order(pod, observed, failed_at))
        own = _is_stopped_for(pod, observed, failed_at)
        cause = by_container(pod) if own else cause_of(pod, _group(pod, observed))
        failure = _describe(pod, template, stopped=pods.told_to_stop(pod) and not own)
        return Loss(cause, failure, _moment(pod), _permanent(pod))
    return _of_the_job(observed.worker_job)


def replaced_host(observed: Observed, template: FrozenTemplate | None) -> Loss | None:
    """The loss of an elastic job's worker 0, the store's host, that was over before anybody looked: another is there.

    A Job makes its workers in the order of their indexes, the first one by itself (pkg/controller/job, slow start). So
    a worker 0 that is younger than any other took the place of the one that these had met at.
    """
    if (
        template is None
        or template.elastic is None
        or not _hosts_the_store(template)
        or success.has_succeeded(observed)
    ):
        return None
    host = max((pod for pod in observed.pods if pods.index(pod) == 0), default=None, key=_born)
    if host is None or not any(_born(pod) < _born(host) for pod in observed.pods if pods.index(pod)):
        return None
    message = "it took the place of the worker 0 at which the others had met, and nothing says why that one is gone"
    failure = Failure(pod=host.metadata.name, node=host.spec.node_name, reason=Cause.VANISHED, message=message)
    return Loss(Cause.VANISHED, failure, host.metadata.creation_timestamp)


def _born(pod: Pod) -> float:
    at = pod.metadata.creation_timestamp
    return at.timestamp() if at is not None else 0.0


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


def is_explained(status: JobStatus) -> bool:
    """Whether an incident is open that a pod opened, by more than its deletion.

    A Job that failed says nothing of its pods' order: another watch brings it, maybe before them.
    """
    incident, opener = status.incident, status.failure
    return incident is not None and incident.cause != Cause.DELETED and opener is not None and opener.pod != ""


def _is_lost(pod: Pod) -> bool:
    return pods.failed(pod) or pods.told_to_stop(pod)


def _ends_the_attempt(pod: Pod, observed: Observed, template: FrozenTemplate | None) -> bool:
    if observed.job.spec.elastic is not None and success.has_succeeded(observed):
        return False  # stopped since worker 0 has come to the end
    if template is None or template.elastic is None:
        return True
    index = pods.index(pod) or 0
    if index >= template.desired(observed.job.spec):
        return False  # scaled away
    if _permanent(pod) is not None:
        return True
    decides = _hosts_the_store(template) or pods.has_finished(pod)  # its Job takes that for the success of all
    return cause_of(pod, _group(pod, observed)).budget is Budget.USER or (index == 0 and decides)


def _permanent(pod: Pod) -> JobReason | None:
    """Why no other pod in its place could end otherwise."""
    found = preflight(pod)
    return found.reason if found is not None and found.permanent else None


def _hosts_the_store(template: FrozenTemplate) -> bool:
    """Whether worker 0 is where the others meet: without it none of them can go on."""
    return template.rendezvous.backend == RdzvBackend.C10D and not template.rendezvous.endpoint


def _of_the_job(job: Job | None) -> Loss | None:
    """A Job that failed although no pod of it says so: the pod is gone."""
    failed = find(job.status.conditions, "Failed") if job is not None else None
    if job is None or failed is None or failed.status != "True":
        return None
    message = f"Job {job.metadata.name} failed: {failed.message}"
    return Loss(Cause.VANISHED, Failure(reason=failed.reason, message=message), failed.last_transition_time)


def _group(pod: Pod, observed: Observed) -> KaiPodGroup | None:
    """The PodGroup that the pod is in; one that is gone was the attempt's own."""
    return observed.groups.get(pod.metadata.annotations.get(KAI_POD_GROUP, ""), observed.podgroup)


def _moment(pod: Pod) -> datetime | None:
    """When the pod was lost: another container of it may have failed long before, and it went on."""
    fatal, told = pods.fatal(pod), pods.told_at(pod)
    ends = (pods.termination(pod, TRAINER), fatal[1] if fatal else None)
    ended = max((end.finished_at for end in ends if end and end.finished_at), default=None)
    return min((moment for moment in (ended, told) if moment is not None), default=None)


def _at(pod: Pod) -> float:
    """The moment as a number; of a pod that failed before its trainer began, when its node looked at it."""
    moment = _moment(pod) or (None if pods.has_begun(pod) else pod.status.start_time)
    return moment.timestamp() if moment is not None else _NEVER


def _failed_at(lost: Sequence[Pod]) -> float:
    """When the first of the pods that failed by themselves did so; where none of these says when, before all others.

    The kubelet gives no times of containers that it lost track of.
    """
    moments = [_at(pod) for pod in lost if not pods.told_to_stop(pod)]
    return min((moment for moment in moments if moment < _NEVER), default=-_NEVER if moments else _NEVER)


def _order(pod: Pod, observed: Observed, failed_at: float) -> tuple[bool, float, bool, bool, bool, int]:
    """The earliest, and among those of one second the one that says most.

    One that only lost a peer comes last: with several ranks in it, the worker where it began may take longer to end.
    """
    cause = _root_cause(pod)
    at = failed_at if failed_at == -_NEVER and _at(pod) == _NEVER else _at(pod)
    leaves, silent = pod.metadata.deletion_timestamp is not None, cause.exit_code is None
    unexplained = cause_of(pod, _group(pod, observed)) is Cause.DELETED
    return cause.follows, at, leaves, unexplained, silent, pods.index(pod) or 0


def _is_stopped_for(pod: Pod, observed: Observed, failed_at: float) -> bool:
    """Whether the pod was told to stop after another had failed: the Job controller stops those left.

    Where the incident tells of the other already, no clock is asked: a failure is reported after it, a deletion is
    seen as it happens, and one watch brings both in their order.
    """
    later = is_explained(observed.job.status) or _at(pod) > failed_at
    return later and cause_of(pod, _group(pod, observed)) is Cause.DELETED


def _says_why(pod: Pod, observed: Observed) -> bool:
    """Whether the pod tells of a failure of its own: where peers notice first, it is stopped meanwhile.

    Where another pod says more than that it lost a peer, it is the other way round.
    """
    incident, cause = observed.job.status.incident, _root_cause(pod)
    if incident is not None and incident.cause != Cause.PEER_LOST and is_explained(observed.job.status):
        return False
    if by_container(pod) is Cause.OOM_KILLED:
        return True
    return not cause.follows and cause.exit_code not in (None, _SIGTERM)


def _root_cause(pod: Pod) -> RootCause:
    fatal = pods.fatal(pod)
    return root_cause(fatal[1].message) if fatal is not None and fatal[0] == TRAINER else RootCause()


def _describe(pod: Pod, template: FrozenTemplate | None, *, stopped: bool) -> Failure:
    fatal, cause = pods.fatal(pod), _root_cause(pod)
    ranked = fatal is None or fatal[0] == TRAINER  # before its trainer a worker has no rank
    code = cause.exit_code if cause.exit_code is not None else fatal[1].exit_code if fatal else None
    return Failure(
        pod=pod.metadata.name,
        node=pod.spec.node_name,
        rank=cause.rank if cause.rank is not None else _rank(pods.index(pod), template) if ranked else None,
        # The code of a pod that was told to stop says how it took it, not what went wrong.
        exit_code=None if stopped else code,
        reason=pod.status.reason or ("Deleted" if stopped else fatal[1].reason if fatal else "Failed"),
        message=cause.message
        or pods.shorten(fatal[1].message if fatal else "")
        or pod.status.message
        or ("the pod was deleted before it ended" if stopped else ""),
    )


def _rank(index: int | None, template: FrozenTemplate | None) -> int | None:
    """The rank of a pod with one process where torchrun did not tell it, None where only torchrun knows.

    Static rendezvous takes the index. c10d and etcd-v2 sort the workers' names as text (torch's dynamic_rendezvous),
    so worker 10 comes before worker 2; on the host's network they have no names of that order.
    """
    if template is None or index is None or template.nproc_per_node != 1 or template.elastic:
        return None
    if template.rendezvous.backend == RdzvBackend.STATIC:
        return index
    if template.rendezvous.backend == RdzvBackend.ETCD or template.pod["spec"].get("hostNetwork"):
        return None
    order = sorted(range(template.nodes), key=lambda node: f"{node}.")
    return order.index(index) if index < template.nodes else None
