"""The end of an attempt: whether it succeeded or failed, and which failure came first.

Succeeded is what the child Job says once it is Complete, unless a pod is known to have been told to stop before it
ended: the Job controller counts a trainer that exits 0 while it is being evicted as a success, and it is none.
The first pod that failed, or is being deleted, ends the attempt at once.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from torchctl.api import effective, names
from torchctl.api.common import RdzvBackend, RestartPolicy, RunPolicy
from torchctl.api.conditions import JobReason
from torchctl.api.effective import EffectiveRunPolicy
from torchctl.api.job import Failure, TorchrunJob
from torchctl.api.kube import Job, Pod
from torchctl.api.names import TRAINER
from torchctl.api.queue import QueueSpec
from torchctl.controllers.job import pods
from torchctl.controllers.job.frozen import FrozenTemplate
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.rootcause import root_cause
from torchctl.controllers.job.syncing import Syncing
from torchctl.runtime.conditions import find, is_true

__all__ = ["Outcome", "judge", "look_again_s", "must_be_stopped", "would_restart"]

PERMANENT = frozenset({1, 2, 126, 127, 128, 139})
RETRIED = frozenset({130, 137, 138, 143})
_NEVER = float("inf")
POD_LAG = timedelta(seconds=5)
"""How long a Job that failed waits for its failed pod to be seen: the two come from two watches."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended; `failure` is None where it succeeded."""

    reason: str
    message: str
    failure: Failure | None = None


def judge(
    observed: Observed, template: FrozenTemplate | None, syncing: Syncing | None, now: datetime
) -> Outcome | None:
    """The outcome, None while there is none."""
    if syncing is not None and syncing.failure is not None:
        return Outcome(JobReason.WORKSPACE_SYNC_FAILED, syncing.finding.message, syncing.failure)
    first, job = _first_failure(observed), observed.worker_job
    if _has_left(job) and _was_seen(observed) and (first is None or pods.told_to_stop(first)):
        return _disappeared(observed)  # its pods are told to stop because it is gone
    if first is not None:
        return _failed(observed.job, template, _describe(first, template))
    return _by_job(observed, job, template, now) if job is not None else None


def must_be_stopped(observed: Observed) -> bool:
    """Whether the Job of an attempt that failed would go on by itself: no pod of it counts as failed."""
    job = observed.worker_job
    if job is None or any(is_true(job.status.conditions, type_) for type_ in ("Complete", "Failed", "FailureTarget")):
        return False
    return not any(pod.status.phase == "Failed" for pod in observed.pods)


def look_again_s(observed: Observed, now: datetime) -> float | None:
    """Seconds until a Job that failed is believed without its failed pod, None where nothing is waited for."""
    failed = find(observed.worker_job.status.conditions, "Failed") if observed.worker_job else None
    if failed is None or failed.status != "True" or failed.last_transition_time is None:
        return None
    return max((failed.last_transition_time + POD_LAG - now).total_seconds(), 0.0)


def would_restart(policy: EffectiveRunPolicy, exit_code: int | None) -> bool:
    """Whether the run policy asks for another attempt after this failure; an eviction has no code (None)."""
    if policy.max_restarts == 0 or policy.restart_policy is RestartPolicy.NEVER:
        return False
    if policy.restart_policy is RestartPolicy.ON_FAILURE or exit_code is None:
        return True
    return exit_code in RETRIED or exit_code < 0 or (exit_code > 128 and exit_code not in PERMANENT)


def _was_seen(observed: Observed) -> bool:
    return observed.job.status.start_time is not None or observed.worker_job is not None


def _has_left(job: Job | None) -> bool:
    """Whether the Job was deleted before it was done."""
    if job is None:
        return True
    return job.metadata.deletion_timestamp is not None and not is_true(job.status.conditions, "Complete")


def _disappeared(observed: Observed) -> Outcome:
    name = names.worker_job(observed.job.metadata.name, observed.job.status.attempt)
    message = f"Job {name} was deleted before it ended; a job is never run twice: submit it again"
    return Outcome(JobReason.JOB_DISAPPEARED, message, Failure(reason="Deleted", message=message))


def _by_job(observed: Observed, job: Job, template: FrozenTemplate | None, now: datetime) -> Outcome | None:
    if is_true(job.status.conditions, "Complete"):
        return Outcome(JobReason.SUCCEEDED, f"Job {job.metadata.name} is complete")
    failed = find(job.status.conditions, "Failed")
    if failed is None or failed.status != "True":
        return None
    seen = failed.last_transition_time
    if observed.pods and seen is not None and now - seen < POD_LAG:
        return None
    failure = Failure(reason=failed.reason, message=failed.message)
    return _failed(observed.job, template, failure, what=f"Job {job.metadata.name} failed: {failed.message}")


def _failed(job: TorchrunJob, template: FrozenTemplate | None, failure: Failure, *, what: str = "") -> Outcome:
    said = what or _sentence(failure)
    policy = _policy(job, template)
    if would_restart(policy, failure.exit_code):
        message = (
            f"{said}; restartPolicy {policy.restart_policy} with maxRestarts {policy.max_restarts} asks for another "
            "attempt, and restarts are not supported yet: submit the job again"
        )
        return Outcome(JobReason.RESTARTS_NOT_SUPPORTED_YET, message, failure)
    step = f"; see `kubectl logs {failure.pod}`" if failure.pod else ""
    return Outcome(JobReason.WORKER_FAILED, said + step, failure)


def _policy(job: TorchrunJob, template: FrozenTemplate | None) -> EffectiveRunPolicy:
    """The job's policy as it is now, over the queue's as it was frozen."""
    frozen = RunPolicy.model_validate(template.queue_run_policy) if template else RunPolicy()
    return effective.run_policy(QueueSpec(run_policy=frozen), job.spec)


def _sentence(failure: Failure) -> str:
    how = f"with exit code {failure.exit_code}" if failure.exit_code is not None else f"({failure.reason})"
    rank = f", rank {failure.rank}" if failure.rank is not None else ""
    where = f" on node {failure.node}" if failure.node else ""
    last = failure.message.strip().splitlines()[-1:] or [""]
    return f"pod {failure.pod}{where}{rank} failed {how}" + (f": {pods.shorten(last[0])}" if last[0] else "")


def _first_failure(observed: Observed) -> Pod | None:
    """The pod whose failure caused the others: the earliest, and among those of one second the one that says most."""
    candidates = [pod for pod in observed.pods if pods.failed(pod) or pods.told_to_stop(pod)]
    return min(candidates, key=_order, default=None)


def _order(pod: Pod) -> tuple[float, bool, bool, int]:
    fatal, until = pods.fatal(pod), pod.metadata.deletion_timestamp
    times = [fatal[1].finished_at.timestamp()] if fatal and fatal[1].finished_at else []
    if until is not None:
        times.append(until.timestamp() - (pod.metadata.deletion_grace_period_seconds or 0))
    says = fatal is not None and root_cause(fatal[1].message).exit_code is not None
    return min(times, default=_NEVER), until is not None, not says, pods.index(pod) or 0


def _describe(pod: Pod, template: FrozenTemplate | None) -> Failure:
    fatal = pods.fatal(pod)
    cause = root_cause(fatal[1].message if fatal and fatal[0] == TRAINER else "")
    code = cause.exit_code if cause.exit_code is not None else fatal[1].exit_code if fatal else None
    stopped = pods.told_to_stop(pod)
    return Failure(
        pod=pod.metadata.name,
        node=pod.spec.node_name,
        rank=cause.rank if cause.rank is not None else _rank(pods.index(pod), template),
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
    if template is None or index is None or template.nproc_per_node != 1:
        return None
    if template.rendezvous.backend == RdzvBackend.STATIC:
        return index
    if template.rendezvous.backend == RdzvBackend.ETCD or template.pod["spec"].get("hostNetwork"):
        return None
    order = sorted(range(template.nodes), key=lambda node: f"{node}.")
    return order.index(index) if index < template.nodes else None
