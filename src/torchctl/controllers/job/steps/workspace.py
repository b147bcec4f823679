"""Step two: the workspace. Which sync pod should exist, whether the code is there, and what is wrong if it is not.

A workspace is synced once, and again when volumes.workspace.revision asks for another one. The second time the claim is
written over while the pods of the first time are still there to be read, so what is asked for is written to status
first (`requested`, and the name of the first pod that is asked for it); pods before that one are history. A running
attempt keeps what it has: a new revision is for the next one.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import msgspec

from torchctl.api import labels, names
from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.job import Failure, TorchrunJob, WorkspaceStatus
from torchctl.api.kube import Pod
from torchctl.controllers.finding import Finding
from torchctl.controllers.job import pods
from torchctl.controllers.job.actions import Halt
from torchctl.controllers.job.children.sync import FETCH, SERVE
from torchctl.controllers.job.children.workspace import serves
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.job.steps import reload, tries
from torchctl.controllers.job.steps.tries import TRIES, number, number_in, revision_of
from torchctl.controllers.job.template.frozen import FrozenTemplate, FrozenWorkspace
from torchctl.runtime.conditions import find, is_true

__all__ = ["Syncing", "assess", "missing_claim"]

_SERVER_PAUSE_S = 10.0
_SERVER_LONGEST_PAUSE_S = 300.0
_SERVERS_COUNTED = timedelta(hours=1)
"""Time in which failed servers count: the first is replaced at once, later ones after ever longer pauses."""
_FOLLOWS = "; revision "


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


def assess(observed: Observed, template: FrozenTemplate, now: datetime) -> Syncing:
    """Judges the workspace from the claim and the sync pods; what was ready once stays so for the attempt.

    Args:
        now: The time, aware of its zone.
    """
    if template.workspace is None:
        return Syncing(Finding(True, JobReason.NO_WORKSPACE, "the job has no workspace"))
    recorded = is_true(observed.job.status.conditions, JobCondition.WORKSPACE_READY)
    halt = tries.halt(observed.sync_pods, now, recorded=recorded)
    found = _assess(observed, template, now)
    if not found.finding.ok and found.failure is None:
        late = reload.waits(observed.job, _wanted(observed.job))
        found = replace(found, finding=replace(found.finding, message=f"{found.finding.message}{late}"))
    return replace(found, halt=halt)


def _assess(observed: Observed, template: FrozenTemplate, now: datetime) -> Syncing:
    status = observed.job.status
    known = find(status.conditions, JobCondition.WORKSPACE_READY)
    stale = status.workspace is not None and _is_stale(observed.job, status.workspace)
    again = stale and not _is_in_use(observed)
    if known is not None and known.status == "True" and not again and not _still_serves(observed, template):
        stays = Finding(True, known.reason, known.message.partition(_FOLLOWS)[0])
        return _noted(Syncing(stays, report=status.workspace), observed, stale=stale)
    lost = _claim_lost(observed, template, was_synced=status.workspace is not None)
    if lost is not None:
        return Syncing(lost, report=status.workspace)
    if again:
        return _again(observed)
    found = _paced(_sync(observed, template, now), observed, now)
    return _in_time(_noted(found, observed, stale=stale), observed, template, now)


def missing_claim(name: str) -> Finding:
    """A claim of the user's that is not there (yet)."""
    message = f"PersistentVolumeClaim {name} does not exist; create it, this job goes on by itself then"
    return Finding(False, JobReason.CLAIM_NOT_FOUND, message, warn=True)


# What is asked for, and what there is.


def _wanted(job: TorchrunJob) -> str:
    workspace = job.spec.volumes.workspace
    return (workspace.revision if workspace is not None else None) or ""


def _is_stale(job: TorchrunJob, there: WorkspaceStatus) -> bool:
    """Whether a sync pod has to bring another revision than the one that was synced."""
    wanted = _wanted(job)
    return not reload.is_met(wanted, there) and not reload.is_sent(job.spec, there, wanted)


def _is_in_use(observed: Observed) -> bool:
    """Whether workers of an attempt may read the workspace."""
    return observed.was_started or not all(map(pods.has_ended, observed.old_pods))


def _still_serves(observed: Observed, template: FrozenTemplate) -> bool:
    """Whether there may be workers that have not pulled the workspace yet."""
    if not serves(template):
        return False
    if template.hot_reload:
        return True
    done = [pod for pod in observed.pods if pods.pulled(pod, names.INIT_CONTAINER) or pods.succeeded(pod)]
    return template.elastic is not None or len(done) < template.nodes


def _noted(found: Syncing, observed: Observed, *, stale: bool) -> Syncing:
    if not stale or not found.finding.ok:
        return found
    message = f"{found.finding.message}{_FOLLOWS}{_wanted(observed.job)} follows with the next attempt"
    return replace(found, finding=replace(found.finding, message=message))


def _again(observed: Observed) -> Syncing:
    """Starts the sync of another revision: status records which one, and its first pod."""
    wanted, last = _wanted(observed.job), observed.job.status.workspace
    assert last is not None
    first = max(_next(observed.sync_pods), number_in(last.pod) + 1)
    report = WorkspaceStatus(requested=wanted, pod=names.sync_pod(observed.job.metadata.name, first))
    return Syncing(Finding(False, JobReason.SYNCING, f"revision {wanted} is about to be synced"), report=report)


def _claim_lost(observed: Observed, template: FrozenTemplate, *, was_synced: bool) -> Finding | None:
    workspace = template.workspace
    assert workspace is not None
    name = workspace.claim or names.workspace_claim(observed.job.metadata.name)
    claim = observed.claims.get(name) if workspace.claim else observed.workspace
    if claim is not None and claim.status.phase == "Lost":
        message = f"PersistentVolumeClaim {name} has lost its volume: submit the job again"
        return Finding(False, JobReason.CLAIM_LOST, message, warn=True)
    if claim is None and workspace.claim:
        return missing_claim(name)
    if workspace.cache and observed.cache is None:
        return missing_claim(workspace.cache)
    if claim is None and was_synced:
        message = f"PersistentVolumeClaim {name} was deleted after the sync: submit the job again"
        return Finding(False, JobReason.CLAIM_LOST, message, warn=True)
    return None


# The sync itself.


def _sync(observed: Observed, template: FrozenTemplate, now: datetime) -> Syncing:
    record, every = observed.job.status.workspace, observed.sync_pods
    target = _wanted(observed.job) if record is None else record.requested
    if record is None:
        brought = [pod for pod in every if _is_done(pod, template) and revision_of(pod) != target]
        if brought:  # before anybody saw it, another one was asked for
            report = _report(brought[-1], None)
            return Syncing(Finding(False, JobReason.SYNCING, f"revision {target} is about to be synced"), report=report)
    ours = _ours(observed)
    others = [pod for pod in every if pod not in ours and not pods.has_ended(pod)]
    if others:
        message = f"pod {others[0].metadata.name} of another revision is being stopped; another follows when it is gone"
        remove = tuple(pod for pod in others if pod.metadata.deletion_timestamp is None)
        return Syncing(Finding(False, JobReason.SYNCING, message), remove=remove, report=record)
    latest = max(ours, key=number, default=None)
    if latest is None:
        first = max(_next(every), number_in(record.pod) if record is not None else 0)
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
    target = _wanted(observed.job) if record is None else record.requested
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
        if serves(template) and tries.fetched(pod):
            message = f"pod {name}, which served the workspace, is being deleted; another takes its place"
            return Syncing(Finding(False, JobReason.SYNCING, message), following, report=record)
        message = f"pod {name} is being deleted; another follows when it is gone"
        return Syncing(Finding(False, JobReason.SYNCING, message), report=record)
    if _is_done(pod, template):
        if template.hot_reload and record is not None and record.revision:
            return _reloading(observed, template, pod, record, now)
        report = _report(pod, record)
        done = f" at {report.revision}" if report and report.revision else ""
        ready = Finding(True, JobReason.WORKSPACE_READY, f"pod {name} has brought the workspace{done}")
        return Syncing(ready, number(pod) if serves(template) else None, report=report)
    if not tries.has_ended(pod):
        return Syncing(_progress(pod, template), number(pod), report=record)
    if tries.fetched(pod):
        return Syncing(_server_ended(pod), following, report=record)
    return _failed(pod, _tries(observed), record)


def _reloading(
    observed: Observed, template: FrozenTemplate, pod: Pod, record: WorkspaceStatus, now: datetime
) -> Syncing:
    """The companion of a job that reloads is there; workers may be about to take up what was sent."""
    name, wanted, settled = pod.metadata.name, _wanted(observed.job), pods.is_ready(pod)
    sent = wanted if reload.is_sent(observed.job.spec, record, wanted) else ""
    report = reload.running(_said(pod), record, sent, now, settled=settled)
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
    said = f"pod {pod.metadata.name}, which served the workspace, failed: {_cause(pod).message}"
    return Finding(False, JobReason.SYNC_FAILED, said, warn=True)


def _failed(pod: Pod, counted: Sequence[Pod], record: WorkspaceStatus | None) -> Syncing:
    name, cause, following = pod.metadata.name, _cause(pod), number(pod) + 1
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


def _in_time(found: Syncing, observed: Observed, template: FrozenTemplate, now: datetime) -> Syncing:
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
        why = f"{why}; before that pod {failed[-1].metadata.name} failed: {_cause(failed[-1]).message}"
    message = f"the workspace was not there after {limit} s (volumes.workspace.timeoutSeconds): {why}"
    failure = Failure(
        pod=latest.metadata.name, node=latest.spec.node_name, reason=JobReason.WORKSPACE_TIMEOUT, message=why
    )
    finding = Finding(False, JobReason.WORKSPACE_TIMEOUT, message, warn=True)
    return Syncing(finding, report=found.report, failure=failure, reason=JobReason.WORKSPACE_TIMEOUT)


# What a sync pod says.


def _is_done(pod: Pod, template: FrozenTemplate) -> bool:
    if template.hot_reload:
        return tries.serves(pod)
    return pods.is_ready(pod) if serves(template) else tries.fetched(pod)


def _cause(pod: Pod) -> Failure:
    ended = tries.failure(pod)
    code = ended.exit_code if ended is not None else None
    told = (ended.message.strip() if ended is not None else "") or pod.status.message or pod.status.reason
    return Failure(
        pod=pod.metadata.name,
        node=pod.spec.node_name,
        exit_code=code,
        reason=pod.status.reason or (ended.reason if ended is not None else ""),
        message=pods.shorten(told) or f"exit code {code}",
    )


def _progress(pod: Pod, template: FrozenTemplate) -> Finding:
    problem = pods.problem(pod)
    if problem is not None:
        return Finding(False, *problem, warn=True)
    name, workspace = pod.metadata.name, template.workspace
    assert workspace is not None
    if tries.is_kept(pod):
        message = f"pod {name} takes over: it serves what the claim has once it is ready"
        return Finding(False, JobReason.SYNCING, message)
    if pods.waits_for_claim(pod):
        message = f"pod {name} waits for its PersistentVolumeClaim to be bound; if it stays, see `kubectl describe pvc`"
        return Finding(False, JobReason.SYNCING, message)
    if pod.spec.node_name and not tries.has_begun(pod):
        waits = f"waits on node {pod.spec.node_name} for its volumes and its image"
        return Finding(False, JobReason.SYNCING, f"pod {name} {waits}; if it stays, see `kubectl describe pod {name}`")
    if tries.fetched(pod):
        late = [status.name for status in pod.status.container_statuses or () if not status.ready]
        message = f"pod {name} has brought the workspace, and serves it when it is ready; not yet: {', '.join(late)}"
        return Finding(False, JobReason.SYNCING, message)
    if workspace.uploaded:
        return _awaits(pod, workspace)
    return Finding(False, JobReason.SYNCING, f"pod {name} is bringing the workspace ({workspace.source})")


def _awaits(pod: Pod, workspace: FrozenWorkspace) -> Finding:
    """A sync pod to which a person has to bring the code."""
    name, job = pod.metadata.name, pod.metadata.labels.get(labels.JOB_NAME, "")
    if not tries.has_begun(pod):
        return Finding(False, JobReason.SYNCING, f"pod {name}, which takes the upload, is waiting for a node")
    how = f"run `kubectl torchrun sync {job}` in its directory" if workspace.receives else "see docs/storage.md"
    until = f"it gives up after {workspace.timeout_s} s"
    message = f"pod {name} waits for the workspace to be uploaded: {how}; {until}"
    return Finding(False, JobReason.WAITING_FOR_UPLOAD, message)


def _report(pod: Pod, record: WorkspaceStatus | None) -> WorkspaceStatus | None:
    """Reads the fetch container's report from its termination message, and adds the revision that was asked for.

    If the message is no such report, only the revision that was asked for is known.
    """
    asked, first, report = revision_of(pod), record.pod if record is not None else "", _said(pod)
    if report is None:
        return record or (WorkspaceStatus(requested=asked) if asked else None)
    return msgspec.structs.replace(report, requested=asked, pod=first)


def _said(pod: Pod) -> WorkspaceStatus | None:
    ended = pods.termination(pod, FETCH)
    try:
        said = json.loads(ended.message) if ended else None
        return msgspec.convert(said, WorkspaceStatus) if said else None
    except (ValueError, RecursionError, msgspec.ValidationError):
        return None


def _next(every: Sequence[Pod]) -> int:
    return max((number(pod) + 1 for pod in every), default=0)
