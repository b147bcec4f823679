"""Says why a job failed, root cause first, from its status. Pure."""

from torchctl.client.errors import visible
from torchctl.client.views import JobView

__all__ = ["failure_text"]


def failure_text(job: JobView) -> list[str]:
    """Returns the lines that say which rank failed first, how, and with which traceback; empty if none has failed."""
    failure, status = job.status.failure, job.status
    if failure is None:
        return []
    who = f"pod {failure.pod}" if failure.rank is None else f"rank {failure.rank} (pod {failure.pod})"
    where = f" on node {failure.node}" if failure.node else ""
    code = "" if failure.exit_code is None else f" with exit code {failure.exit_code}"
    restarts = f" after {status.restarts.total} incidents" if status.restarts.total > 1 else ""
    lines = [f"{job.metadata.name} is {status.phase}{restarts}: {who}{where} failed first{code}: {failure.reason}"]
    return lines + [f"  {visible(line.expandtabs(4))}".rstrip() for line in failure.message.splitlines()]
