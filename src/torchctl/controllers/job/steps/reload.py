"""Hot reload: what status says of a revision that was sent to the running job. Pure.

The companion, which is the sync pod's container `serve`, takes a new tree, puts it into the claim and tells the
launchers. The operator has no part in that, and reads two things: `spec.volumes.workspace.revision`, in which whoever
sent the tree writes its digest once the companion has it, and the readiness of the companion, which is ready while no
worker that it knows runs an older tree. So no attempt is restarted, and no other sync pod brings what is there.
docs/design/hot-reload.md says why.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from torchctl.api.job import HotReload, JobSpec, TorchrunJob, WorkspaceStatus
from torchctl.api.kube import Pod
from torchctl.api.labels import BEHIND, FILES_ONLY
from torchctl.controllers.job import pods

__all__ = [
    "PROBED_S",
    "behind",
    "brought",
    "in_the_end",
    "is_met",
    "is_sent",
    "placed",
    "reloads",
    "running",
    "unproved_s",
    "waits",
    "wanted",
]

PROBED_S = 5.0
"""Seconds after which the kubelet has asked a companion, which it does each second, and reported the answer."""

_DIGEST = "sha256:"
_NAMED = 8


def reloads(spec: JobSpec) -> bool:
    """Whether workers take up new code while they run."""
    return spec.hot_reload is not HotReload.OFF


def wanted(job: TorchrunJob) -> str:
    """Returns the revision that spec asks for; empty if any will do."""
    workspace = job.spec.volumes.workspace
    return (workspace.revision if workspace is not None else None) or ""


def is_met(wanted: str, there: WorkspaceStatus) -> bool:
    """Whether a revision is the one that is there; if none is asked for, any is."""
    return wanted in ("", there.requested, there.revision, there.revision.removeprefix(_DIGEST))


def is_sent(spec: JobSpec, record: WorkspaceStatus | None, wanted: str) -> bool:
    """Whether a revision is one that the companion was sent, so that the claim has it.

    It is the digest of a tree then. Any other, such as a tag of git, a sync pod brings before the next attempt.
    """
    return reloads(spec) and record is not None and bool(record.revision) and wanted.startswith(_DIGEST)


def unproved_s(record: WorkspaceStatus, now: datetime) -> float:
    """Returns seconds until the companion's readiness is news of the revision that was sent last, and not of before.

    Args:
        now: The time, aware of its zone.
    """
    left = PROBED_S - (now - record.sent_time).total_seconds() if record.sent_time is not None else 0.0
    return left if 0 < left <= PROBED_S else 0.0  # a clock that is far ahead says nothing


def running(
    brought: WorkspaceStatus | None, record: WorkspaceStatus, wanted: str, now: datetime, *, settled: bool
) -> WorkspaceStatus:
    """Returns what status says of the workspace of a job that reloads.

    Args:
        brought: What the sync pod reported when it had brought the workspace.
        record: What status says.
        wanted: The revision that was sent last; empty if none was.
        now: The time, aware of its zone.
        settled: Whether the companion is ready: it knows no worker that runs an older revision.
    """
    if not wanted or wanted in (record.revision, record.digest):
        return msgspec.structs.replace(record, requested=wanted or record.requested)
    if wanted != record.requested:
        return msgspec.structs.replace(record, requested=wanted, sent_time=now.replace(microsecond=0))
    if not settled or unproved_s(record, now):
        return record
    return _there(brought, record, wanted)


def placed(brought: WorkspaceStatus | None, record: WorkspaceStatus, wanted: str, now: datetime) -> WorkspaceStatus:
    """Returns what status says of a workspace that all workers mount, so that they have what was sent.

    The arguments are those of `running`.
    """
    if not wanted or wanted in (record.revision, record.digest):
        return msgspec.structs.replace(record, requested=wanted or record.requested)
    return _there(brought, msgspec.structs.replace(record, sent_time=now.replace(microsecond=0)), wanted)


def _there(brought: WorkspaceStatus | None, record: WorkspaceStatus, wanted: str) -> WorkspaceStatus:
    if brought is not None and wanted in (brought.revision, brought.digest):
        return msgspec.structs.replace(brought, requested=wanted, pod=record.pod, sent_time=record.sent_time)
    return WorkspaceStatus(
        requested=wanted, pod=record.pod, sent_time=record.sent_time, revision=wanted, source="zip", digest=wanted
    )


def behind(job: TorchrunJob, workers: Sequence[Pod], nodes: int, wanted: str) -> str:
    """Names the workers that do not have the revision that was sent; empty if nothing outside the companion says who.

    Workers that do not run are seen here. Of those that run and cannot take it, whoever sent it leaves a note.

    Args:
        workers: The pods of the attempt.
        nodes: The number of workers that the job should have.
    """
    there = {pods.index(pod): pod for pod in workers if pod.metadata.deletion_timestamp is None}
    down = [_down(index, there.get(index)) for index in range(nodes)]
    lacking = [one for one in down if one]
    rest = f" and {len(lacking) - _NAMED} more" if len(lacking) > _NAMED else ""
    revision, _, who = job.metadata.annotations.get(BEHIND, "").partition(" ")
    noted = f"{pods.shorten(who)} when `sync` looked last" if revision == wanted and who else ""
    return ", ".join([*lacking[:_NAMED]]) + rest + ("; " if lacking and noted else "") + noted


def waits(job: TorchrunJob, wanted: str) -> str:
    """Adds to what is said while there is no companion that a revision which was sent waits for it."""
    there = job.status.workspace
    if (
        there is None
        or not job.spec.hot_reload.launches
        or not is_sent(job.spec, there, wanted)
        or wanted in (there.revision, there.digest)
    ):
        return ""
    return f"; until then no worker may run revision {wanted}, which was sent to them"


def brought(job: TorchrunJob, there: WorkspaceStatus) -> str:
    """Adds to what is said of a workspace that its files changed under programs that run, if that was asked for."""
    only = job.metadata.annotations.get(FILES_ONLY, "")
    files = "; programs that ran then go on with what they had loaded (sync --no-restart)"
    return files if only and only in (there.revision, there.digest) else ""


def in_the_end(job: TorchrunJob, there: WorkspaceStatus) -> str:
    """Says which code the workers of a job had that has ended; nobody looks at them again.

    The companion is news of workers that run. If they end before its readiness proves what was sent last, nobody knows
    whether they ran it, and status keeps what was known to run.
    """
    sent = wanted(job)
    if not job.spec.hot_reload.launches:
        return f"the workspace has revision {sent if is_sent(job.spec, there, sent) else there.revision}"
    known = f"the last revision that all workers were seen to run is {there.revision}"
    if is_sent(job.spec, there, sent) and sent not in (there.revision, there.digest):
        return f"{known}; the job ended before they were seen to run {sent}, which was sent to them"
    return f"{known}{brought(job, there)}"


def _down(index: int, pod: Pod | None) -> str:
    if pod is None:
        return f"worker {index} (it has no pod)"
    if pods.is_up(pod) or pods.has_ended(pod):
        return ""
    return f"worker {index} (pod {pod.metadata.name} is not up)"
