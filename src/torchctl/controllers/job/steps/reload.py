"""Hot reload: what status says of a revision that was sent to the running job. Pure.

The companion, which is the sync pod's container `serve`, takes a new tree, puts it into the claim and tells the
launchers. The operator has no part in that, and reads two things: `spec.volumes.workspace.revision`, in which whoever
sent the tree writes its digest once the companion has it, and the readiness of the companion, which is ready while no
worker that it knows runs an older tree. So no attempt is restarted, and no other sync pod brings what is there.
docs/design/hot-reload.md says why.
"""

from datetime import datetime

import msgspec

from torchctl.api.job import HotReload, JobSpec, WorkspaceStatus

__all__ = ["PROBED_S", "is_met", "is_sent", "reloads", "running", "unproved_s"]

PROBED_S = 5.0
"""Seconds after which the kubelet has asked a companion, which it does each second, and reported the answer."""

_DIGEST = "sha256:"


def reloads(spec: JobSpec) -> bool:
    """Whether workers take up new code while they run."""
    return spec.hot_reload is not HotReload.OFF


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
    if brought is not None and wanted in (brought.revision, brought.digest):
        return msgspec.structs.replace(brought, requested=wanted, pod=record.pod, sent_time=record.sent_time)
    return WorkspaceStatus(
        requested=wanted, pod=record.pod, sent_time=record.sent_time, revision=wanted, source="zip", digest=wanted
    )
