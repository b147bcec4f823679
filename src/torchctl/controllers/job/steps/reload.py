"""Hot reload: what status says of a revision that was sent to the running job. Pure.

The companion, which is the sync pod's container `serve`, takes a new tree, puts it into the claim and tells the
launchers. The operator has no part in that, and reads two things: `spec.volumes.workspace.revision`, in which whoever
sent the tree writes its digest once the companion has it, and the readiness of the companion, which is ready while no
worker that it knows runs an older tree. So no attempt is restarted, and no other sync pod brings what is there.
docs/design/hot-reload.md says why.
"""

import msgspec

from torchctl.api.job import HotReload, JobSpec, WorkspaceStatus

__all__ = ["follows", "is_met", "is_sent", "reloads", "running"]

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


def follows(record: WorkspaceStatus, wanted: str, *, settled: bool) -> bool:
    """Whether workers still have to take up a revision that was sent.

    Args:
        settled: Whether the companion knows no worker that runs an older one.
    """
    return not settled and bool(wanted) and not _is_of(wanted, record)


def running(brought: WorkspaceStatus | None, record: WorkspaceStatus, wanted: str, *, settled: bool) -> WorkspaceStatus:
    """Returns what status says of the workspace of a job that reloads.

    Args:
        brought: What the sync pod reported when it had brought the workspace.
        record: What status says.
        wanted: The revision that was sent last; empty if none was.
    """
    if not wanted or _is_of(wanted, record):
        return msgspec.structs.replace(record, requested=wanted or record.requested)
    if not settled:
        return msgspec.structs.replace(record, requested=wanted)
    if brought is not None and _is_of(wanted, brought):
        return msgspec.structs.replace(brought, requested=wanted, pod=record.pod)
    return WorkspaceStatus(requested=wanted, pod=record.pod, revision=wanted, source="zip", digest=wanted)


def _is_of(wanted: str, there: WorkspaceStatus) -> bool:
    return wanted in (there.revision, there.digest)
