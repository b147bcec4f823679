"""Rows of tables from objects: pure. How a table is drawn is the caller's business."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from torchctl.api.phases import TERMINAL
from torchctl.client.durations import short
from torchctl.client.errors import printable
from torchctl.client.views import JobView, QueueView
from torchctl.runtime.conditions import find

__all__ = ["NONE", "Table", "age", "jobs_table", "one_line", "queues_table", "revision", "why"]

NONE = "-"
MAX_WHY = 100
_DIGITS = 12
"""The number of characters of a revision that tell it from others."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table: headings, and rows of as many cells."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def lines(self) -> list[str]:
        """Returns the table as text, with columns as wide as their widest cell."""
        sizes = [max(map(len, column)) for column in zip(self.headings, *self.rows, strict=True)]
        return ["   ".join(map(str.ljust, line, sizes)).rstrip() for line in (self.headings, *self.rows)]


def jobs_table(jobs: Iterable[JobView], now: datetime, *, namespaces: bool = False, wide: bool = False) -> Table:
    """Returns a row for each job, by namespace and name; with `wide` also attempt, revision and what it waits for."""
    headings: tuple[str, ...] = ("NAME", "QUEUE", "PHASE", "NODES", "GPUS", "WORKERS", "RESTARTS", "AGE")
    headings = (("NAMESPACE",) * namespaces) + headings + (("ATTEMPT", "REVISION", "WHY") if wide else ())
    ordered = sorted(jobs, key=lambda job: (job.metadata.namespace, job.metadata.name))
    return Table(headings, tuple(_job_row(job, now, namespaces, wide) for job in ordered))


def queues_table(queues: Iterable[QueueView], now: datetime, *, namespaces: bool = False, wide: bool = False) -> Table:
    """Returns a row for each queue, by namespace and name; with `wide` also image, GPU type and what is wrong."""
    headings: tuple[str, ...] = ("NAME", "READY", "GPUS/NODE", "RUNNING", "QUEUED", "GPUS", "KAI-QUEUE", "AGE")
    headings = (("NAMESPACE",) * namespaces) + headings + (("GPU-TYPE", "IMAGE", "WHY") if wide else ())
    ordered = sorted(queues, key=lambda queue: (queue.metadata.namespace, queue.metadata.name))
    return Table(headings, tuple(_queue_row(queue, now, namespaces, wide) for queue in ordered))


def _job_row(job: JobView, now: datetime, namespaces: bool, wide: bool) -> tuple[str, ...]:
    status, nodes = job.status, job.status.nodes.desired or job.spec.num_nodes
    row = (
        job.metadata.name,
        job.spec.job_queue,
        status.phase or "New",
        str(nodes or NONE),
        str(status.gpus or job.spec.num_gpus or 0),
        status.workers_status or NONE,
        str(status.restarts.total),
        age(job.metadata.creation_timestamp, now),
    )
    more = (str(status.attempt), _revision(job), why(job)) if wide else ()
    return ((job.metadata.namespace,) * namespaces) + row + more


def why(job: JobView) -> str:
    """Returns what a job waits for, or what it failed of: the message of the condition that says so."""
    status = job.status
    if status.phase == "Succeeded":
        return ""
    failed = find(status.conditions, "Failed")
    if failed is not None and failed.status == "True":
        return one_line(f"{failed.reason}: {failed.message}")
    held = (condition for condition in status.conditions if condition.status != "True")
    first = next((one for one in held if one.type not in ("Suspended", "Complete", "Failed")), None)
    if first is None or status.phase in ("Running", *TERMINAL):
        return ""
    return one_line(f"{first.reason}: {first.message}")


def _queue_row(queue: QueueView, now: datetime, namespaces: bool, wide: bool) -> tuple[str, ...]:
    ready = find(queue.status.conditions, "Ready")
    row = (
        queue.metadata.name,
        ready.status if ready is not None else "Unknown",
        str(queue.spec.node_resources.gpus),
        str(queue.status.jobs.running),
        str(queue.status.jobs.queued),
        str(queue.status.gpus.running),
        queue.spec.kai_queue or NONE,
        age(queue.metadata.creation_timestamp, now),
    )
    wrong = "" if ready is None or ready.status == "True" else one_line(f"{ready.reason}: {ready.message}")
    more = (queue.spec.node_resources.gpu_type or NONE, queue.spec.image or NONE, wrong) if wide else ()
    return ((queue.metadata.namespace,) * namespaces) + row + more


def _revision(job: JobView) -> str:
    workspace = job.status.workspace
    return revision(workspace.revision) or NONE if workspace is not None else NONE


def revision(text: str) -> str:
    """Returns a revision in short: the first digits of a commit or of a tree's digest."""
    return printable(text.removeprefix("sha256:"))[:_DIGITS]


def age(since: datetime | None, now: datetime) -> str:
    """Returns how long ago something was, in short."""
    return short((now - since).total_seconds()) if since is not None else NONE


def one_line(text: str) -> str:
    """Returns a message as one line, cut so that it fits into a cell."""
    line = printable(text)
    return line if len(line) <= MAX_WHY else f"{line[: MAX_WHY - 3]}..."
