"""The sync of a workspace: which pod should exist for it, what follows when one has ended, and how long it may take."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from torchctl.api import names
from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.job import Failure, WorkspaceStatus
from torchctl.api.kube import Pod
from torchctl.controllers.finding import Finding
from torchctl.controllers.job import pods
from torchctl.controllers.job.actions import Halt
from torchctl.controllers.job.children.sync import FETCH, SERVE
from torchctl.controllers.job.children.workspace import stays
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.steps import reload, syncpod, tries
from torchctl.controllers.job.steps.tries import TRIES, number, number_in, revision_of
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.runtime.conditions import find, is_true

__all__ = ["Syncing", "in_time", "sync"]

_SERVER_PAUSE_S = 10.0
_SERVER_LONGEST_PAUSE_S = 300.0
_SERVERS_COUNTED = timedelta(hours=1)
"""Time in which failed servers count: the first is replaced at once, later ones after ever longer pauses."""


@dataclass(frozen=True, slots=True)
class Syncing:
    """The state of the workspace's sync, and the sync pods to make and to end.

    Args:
        number: The try whose pod should exist, None if there is nothing to do.
        revision: The revision that that pod is asked for.
        kept: Whether that pod leaves what the claim has.
        remove: Sync pods that have to go first: they would write, or serve, another revision.
        halt: Sync pods whose try is over, and which another container keeps from ending.
        report: The job's new workspace status.
        failure: The last try's failure, when there is no further one.
        reason: Of the job's end, if there is a failure.
        look_again_s: Seconds until the time for the sync is over.
    """

    finding: Finding
    number: int | None = None
    revision: str = ""
    kept: bool = False
    remove: tuple[Pod, ...] = ()
    halt: tuple[Halt, ...] = ()
    report: WorkspaceStatus | None = None
    failure: Failure | None = None
    reason: JobReason = JobReason.WORKSPACE_SYNC_FAILED
    look_again_s: float | None = None


def sync(observed: Observed, template: FrozenTemplate, now: datetime) -> Syncing:
    """Says which sync pod should exist for the revision that is asked for, and how far it is."""
    return _paced(_sync(observed, template, now), observed, now)


def in_time(found: Syncing, observed: Observed, template: FrozenTemplate, now: datetime) -> Syncing:
    """Fails the sync if the time for all tries together is used up. A suspended job uses none."""
    assert template.workspace is not None
    counted = _tries(observed)
    if found.finding.ok or found.failure is not None or not counted or _stands_still(observed):
        return found
    limit = template.workspace.timeout_s
    left = limit - tries.used_s(counted, _since(observed), now)
    if left > 0:
        runs = tries.has_begun(counted[-1])
        moments = (found.look_again_s, left if runs else None)
        return replace(found, look_again_s=min((one for one in moments if one is not None), default=None))
    latest, failed = counted[-1], [pod for pod in counted if tries.has_ended(pod)]
    why = found.finding.message
    if failed and failed[-1] is not latest:
        why = f"{why}; before that pod {failed[-1].metadata.name} failed: {syncpod.cause(failed[-1]).message}"
    message = f"the workspace was not there after {limit} s (volumes.workspace.timeoutSeconds): {why}"
    failure = Failure(
        pod=latest.metadata.name, node=latest.spec.node_name, reason=JobReason.WORKSPACE_TIMEOUT, message=why
    )
    finding = Finding(False, JobReason.WORKSPACE_TIMEOUT, message, warn=True)
    return Syncing(finding, report=found.report, failure=failure, reason=JobReason.WORKSPACE_TIMEOUT)


def _sync(observed: Observed, template: FrozenTemplate, now: datetime) -> Syncing:
    record, every = observed.job.status.workspace, observed.sync_pods
    target = reload.wanted(observed.job) if record is None else record.requested
    if record is None:
        brought = [pod for pod in every if syncpod.is_done(pod, template, record) and revision_of(pod) != target]
        if brought:  # before anybody saw it, another one was asked for
            report = syncpod.report(brought[-1], None)
            return Syncing(Finding(False, JobReason.SYNCING, f"revision {target} is about to be synced"), report=report)
    ours = _ours(observed)
    others = [pod for pod in every if pod not in ours and not pods.has_ended(pod)]
    if others:
        message = f"pod {others[0].metadata.name} of another revision is being stopped; another follows when it is gone"
        remove = tuple(pod for pod in others if pod.metadata.deletion_timestamp is None)
        return Syncing(Finding(False, JobReason.SYNCING, message), remove=remove, report=record)
    latest = max(ours, key=number, default=None)
    if latest is None:
        first = max(syncpod.following(every), number_in(record.pod) if record is not None else 0)
        message = f"pod {names.sync_pod(observed.job.metadata.name, first)} is about to be created"
        found = Syncing(Finding(False, JobReason.SYNCING, message), first, report=record)
    else:
        found = _judge(observed, latest, template, now)
    if latest is not None and found.number == number(latest):  # it stays as it is
        return replace(found, revision=revision_of(latest), kept=tries.is_kept(latest))
    kept = reload.reloads(observed.job.spec) and record is not None and bool(record.revision)
    return replace(found, revision=target, kept=kept)


def _ours(observed: Observed) -> tuple[Pod, ...]:
    """Returns the sync pods of the revision that is wanted now, without those of earlier syncs."""
    record = observed.job.status.workspace
    target = reload.wanted(observed.job) if record is None else record.requested
    first = number_in(record.pod) if record is not None else 0
    later = tuple(pod for pod in observed.sync_pods if number(pod) >= first)
    if record is not None and reload.reloads(observed.job.spec):
        return later  # whatever each was asked for, the claim has what was sent last
    return tuple(pod for pod in later if revision_of(pod) == target)


def _tries(observed: Observed) -> list[Pod]:
    return tries.after_latest_fetch(_ours(observed), _since(observed))


def _since(observed: Observed) -> datetime | None:
    """Returns when the job was suspended or resumed last; for a job that never was, the time of its first status."""
    suspended = find(observed.job.status.conditions, JobCondition.SUSPENDED)
    return suspended.last_transition_time if suspended is not None else None


def _stands_still(observed: Observed) -> bool:
    return is_true(observed.job.status.conditions, JobCondition.SUSPENDED)


def _judge(observed: Observed, pod: Pod, template: FrozenTemplate, now: datetime) -> Syncing:
    name, following, record = pod.metadata.name, number(pod) + 1, observed.job.status.workspace
    if pod.metadata.deletion_timestamp is not None:
        if stays(template) and tries.fetched(pod):
            message = f"pod {name}, which served the workspace, is being deleted; another takes its place"
            return Syncing(Finding(False, JobReason.SYNCING, message), following, report=record)
        message = f"pod {name} is being deleted; another follows when it is gone"
        return Syncing(Finding(False, JobReason.SYNCING, message), report=record)
    if syncpod.is_done(pod, template, record):
        if template.hot_reload and record is not None and record.revision:
            return _reloading(observed, template, pod, record, now)
        report = syncpod.report(pod, record)
        done = f" at {report.revision}" if report and report.revision else ""
        ready = Finding(True, JobReason.WORKSPACE_READY, f"pod {name} has brought the workspace{done}")
        return Syncing(ready, number(pod) if stays(template) else None, report=report)
    if not tries.has_ended(pod):
        return Syncing(syncpod.progress(pod, template), number(pod), report=record)
    if tries.fetched(pod):
        return Syncing(_server_ended(pod), following, report=record)
    return _failed(pod, _tries(observed), record)


def _reloading(
    observed: Observed, template: FrozenTemplate, pod: Pod, record: WorkspaceStatus, now: datetime
) -> Syncing:
    """The companion of a job that reloads is there; workers may be about to take up what was sent.

    If they mount the claim, they have it.
    """
    name, wanted = pod.metadata.name, reload.wanted(observed.job)
    settled = pods.is_ready(pod) or not template.launches
    sent = wanted if reload.is_sent(observed.job.spec, record, wanted) else ""
    if template.launches:
        report = reload.running(syncpod.said(pod), record, sent, now, settled=settled)
    else:
        report = reload.placed(syncpod.said(pod), record, sent, now)
    done = f"pod {name} has brought the workspace at {report.revision}{reload.brought(observed.job, report)}"
    finding = Finding(True, JobReason.WORKSPACE_READY, done)
    left_s = reload.unproved_s(report, now) if sent and settled and sent not in (report.revision, report.digest) else 0
    if sent and (left_s or not settled):
        runs = observed.worker_job is not None and not settled
        who = reload.behind(observed.job, observed.pods, template.desired(observed.job.spec), wanted) if runs else ""
        says = f"{who}; `kubectl logs {name} -c {SERVE}` says why" if who else ""
        says = says or f"`kubectl logs {name} -c {SERVE}` says which, and why"
        message = f"not every worker runs revision {wanted} yet: {says}"
        finding = Finding(True, JobReason.RELOADING, message)
    return Syncing(finding, number(pod), report=report, look_again_s=left_s or None)


def _server_ended(pod: Pod) -> Finding:
    """A pod that brought the workspace, and that cannot serve it (any more)."""
    if tries.failure(pod) is None and pods.succeeded(pod):  # of a template that had the workers mount the claim
        return Finding(
            False, JobReason.SYNCING, f"pod {pod.metadata.name} has brought the workspace; another serves it"
        )
    said = f"pod {pod.metadata.name}, which served the workspace, failed: {syncpod.cause(pod).message}"
    return Finding(False, JobReason.SYNC_FAILED, said, warn=True)


def _failed(pod: Pod, counted: Sequence[Pod], record: WorkspaceStatus | None) -> Syncing:
    name, cause, following = pod.metadata.name, syncpod.cause(pod), number(pod) + 1
    if pod not in counted:
        message = f"pod {name} failed before the job was suspended or resumed; another follows"
        return Syncing(Finding(False, JobReason.SYNCING, message), following, report=record)
    if tries.is_unreachable(pod):
        message = f"pod {name} could not reach the source: {cause.message}; another follows after a pause"
        return Syncing(Finding(False, JobReason.SYNC_FAILED, message, warn=True), following, report=record)
    count = sum(tries.has_ended(one) and not tries.is_unreachable(one) for one in counted)
    if count < TRIES and not tries.is_refused(pod):
        message = f"pod {name} failed (try {count} of {TRIES}): {cause.message}"
        return Syncing(Finding(False, JobReason.SYNC_FAILED, message, warn=True), following, report=record)
    tried = "was refused" if tries.is_refused(pod) else f"failed (try {count} of {TRIES})"
    step = f"see `kubectl logs {name} -c {FETCH}`, correct the source and submit the job again"
    finding = Finding(False, JobReason.SYNC_FAILED, f"pod {name} {tried}: {cause.message}; {step}", warn=True)
    return Syncing(finding, report=record, failure=cause)


def _paced(found: Syncing, observed: Observed, now: datetime) -> Syncing:
    """Makes a sync pod that follows another wait for its pause, and until the other holds no volume any more."""
    latest = max(_ours(observed), key=number, default=None)
    if latest is None or found.number != number(latest) + 1 or latest.metadata.deletion_timestamp is not None:
        return found
    if _stands_still(observed) or not pods.has_ended(latest):
        return replace(found, number=None)
    left = _pause_left_s(observed, latest, now)
    return replace(found, number=None, look_again_s=left) if left > 0 else found


def _pause_left_s(observed: Observed, latest: Pod, now: datetime) -> float:
    if tries.fetched(latest):
        pause, begun = _server_pause_s(_ours(observed), now), latest.metadata.creation_timestamp
    else:
        pause = tries.pause_s([pod for pod in _tries(observed) if tries.has_ended(pod)])
        begun = tries.ended_at(latest) or latest.metadata.creation_timestamp
    left = pause - (now - begun).total_seconds() if begun is not None else 0.0
    return left if left <= pause + 1 else 0.0  # a clock that is far ahead says nothing


def _server_pause_s(ours: Sequence[Pod], now: datetime) -> float:
    """Returns the pause before the next server: each one that failed lately doubles it, as a kubelet's restarts do."""
    failed = [pod for pod in ours if tries.has_ended(pod) and tries.fetched(pod)]
    lately = [pod for pod in failed if now - (pod.metadata.creation_timestamp or now) < _SERVERS_COUNTED]
    return min(_SERVER_PAUSE_S * 2.0 ** (len(lately) - 2), _SERVER_LONGEST_PAUSE_S) if len(lately) > 1 else 0.0
