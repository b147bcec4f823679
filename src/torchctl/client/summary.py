"""What `status` says of a job: pure. Fields, the conditions that matter, and the workers of the attempt."""

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from torchctl.api.counts import counted
from torchctl.api.errorline import error_line
from torchctl.api.kube import ContainerStatus, Pod
from torchctl.api.labels import ATTEMPT, ROLE, ROLE_WORKER, attempt_of
from torchctl.api.names import TRAINER
from torchctl.client.errors import printable
from torchctl.client.tables import NONE, Table, age, one_line, revision
from torchctl.client.views import JobView
from torchctl.runtime.conditions import find

__all__ = ["INDEX", "Summary", "changes", "index_of", "summarize"]

INDEX = "batch.kubernetes.io/job-completion-index"
"""The label of a worker's index."""
MAX_COMMAND = 200


@dataclass(frozen=True, slots=True)
class Summary:
    """A job as a person reads it."""

    fields: tuple[tuple[str, str], ...]
    conditions: Table
    workers: Table

    def lines(self) -> list[str]:
        """Returns the summary as text."""
        width = max(len(name) for name, _ in self.fields) + 2
        lines = [f"{name + ':':<{width}} {value}" for name, value in self.fields]
        for table in (self.conditions, self.workers):
            if table.rows:
                lines += ["", *table.lines()]
        return lines


def summarize(job: JobView, pods: Iterable[Pod], now: datetime, *, every: bool = False) -> Summary:
    """Summarizes a job.

    Args:
        job: The job.
        pods: Its pods; those of other attempts and sync pods are left out.
        now: The time.
        every: Show also the pods that would be left out.
    """
    shown = [pod for pod in pods if every or _is_of_attempt(pod, job.status.attempt)]
    ordered = sorted(shown, key=lambda pod: (attempt_of(pod.metadata.labels), index_of(pod), pod.metadata.name))
    headings = ("WORKER", "POD", "STATE", "NODE", "AGE")
    return Summary(
        fields=tuple(_fields(job, now)),
        conditions=Table(
            ("CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"),
            tuple(
                (one.type, one.status, age(one.last_transition_time, now), one.reason, printable(one.message))
                for one in job.status.conditions
            ),
        ),
        workers=Table(headings, tuple(_pod_row(pod, now) for pod in ordered)),
    )


def changes(before: JobView | None, now: JobView | None) -> Iterator[str]:
    """Yields a line for what has changed between two looks at a job, for output that is no terminal."""
    if now is None:
        yield "deleted"
        return
    old = before.status if before is not None else None
    new = now.status
    if old is None or (old.phase, old.workers_status) != (new.phase, new.workers_status):
        yield f"{new.phase or 'New'}{f', {new.workers_status}' if new.workers_status else ''}"
    for condition in new.conditions:
        earlier = find(old.conditions, condition.type) if old is not None else None
        if earlier is None or (earlier.status, earlier.reason) != (condition.status, condition.reason):
            yield f"{condition.type}={condition.status} {condition.reason}: {one_line(condition.message)}"


def index_of(pod: Pod) -> int:
    """Returns the index of a worker; -1 for a pod that is none."""
    text = pod.metadata.labels.get(INDEX, "")
    return int(text) if text.isdecimal() else -1


def _fields(job: JobView, now: datetime) -> Iterator[tuple[str, str]]:
    status = job.status
    yield "Job", f"{job.metadata.name} in namespace {job.metadata.namespace}"
    yield "Queue", job.spec.job_queue
    yield "Phase", status.phase or "New: the operator has not looked at it yet"
    command = printable(job.spec.command or shlex.join(job.spec.args))
    yield "Command", command if len(command) <= MAX_COMMAND else f"{command[: MAX_COMMAND - 3]}..."
    yield "Size", _size(job)
    yield "Workers", status.workers_status or NONE
    yield "Attempt", f"{status.attempt}{_restarts(job)}"
    if status.workspace is not None and status.workspace.revision:
        code = status.workspace
        yield (
            "Code",
            f"{revision(code.revision)} ({code.source}, {counted(code.files, 'file')}, {counted(code.bytes, 'byte')})",
        )
    yield "Created", f"{age(job.metadata.creation_timestamp, now)} ago"
    if status.start_time is not None:
        end = status.completion_time or now
        yield "Run time", f"{age(status.start_time, end)}{'' if status.completion_time else ' so far'}"
    if status.failure is not None:
        yield "Failure", _failure(job)


def _size(job: JobView) -> str:
    number, elastic = job.status.nodes.desired or job.spec.num_nodes, job.spec.elastic
    nodes = counted(number, "node") if number else f"{NONE} nodes"
    between = f", elastic {elastic.min_nodes} to {elastic.max_nodes}" if elastic is not None else ""
    return f"{nodes}, {counted(job.status.gpus or job.spec.num_gpus or 0, 'GPU')}{between}"


def _restarts(job: JobView) -> str:
    restarts = job.status.restarts
    causes = ", ".join(f"{count} {cause}" for cause, count in sorted(restarts.by_cause.items()))
    return f" after {counted(restarts.total, 'incident')} ({causes})" if restarts.total else ""


def _failure(job: JobView) -> str:
    failure = job.status.failure
    assert failure is not None
    parts = (
        "" if failure.rank is None else f"rank {failure.rank}",
        f"pod {failure.pod}" if failure.pod else "",
        f"node {failure.node}" if failure.node else "",
        "" if failure.exit_code is None else f"exit code {failure.exit_code}",
        failure.reason,
    )
    said = one_line(error_line(failure.message))
    return f"{', '.join(filter(None, parts))}{f': {said}' if said else ''}"


def _is_of_attempt(pod: Pod, attempt: int) -> bool:
    labels = pod.metadata.labels
    return labels.get(ROLE) == ROLE_WORKER and ATTEMPT in labels and attempt_of(labels) == attempt


def _pod_row(pod: Pod, now: datetime) -> tuple[str, ...]:
    index = index_of(pod)
    return (
        str(index) if index >= 0 else pod.metadata.labels.get(ROLE, NONE),
        pod.metadata.name,
        _state(pod),
        pod.spec.node_name or NONE,
        age(pod.metadata.creation_timestamp, now),
    )


def _state(pod: Pod) -> str:
    """Returns the state of a pod in a few words: what its trainer does, or what keeps it from starting."""
    if pod.metadata.deletion_timestamp is not None:
        return "Terminating"
    status = pod.status
    containers = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    # The trainer's own word comes first.
    for container in sorted(containers, key=lambda one: one.name != TRAINER):
        if said := _container_state(container):
            return said
    scheduled = find(status.conditions, "PodScheduled")
    if scheduled is not None and scheduled.status == "False":
        return one_line(f"{scheduled.reason}: {scheduled.message}")
    return status.reason or status.phase or "Pending"


def _container_state(container: ContainerStatus) -> str:
    """Returns what a container says of its pod; empty if nothing."""
    state = container.state
    if state.terminated is not None and (container.name == TRAINER or state.terminated.exit_code):
        reason = state.terminated.reason or "Ended"
        return f"{reason} ({state.terminated.exit_code})" if state.terminated.exit_code else reason
    if container.name == TRAINER and state.running is not None:
        return "Running" if container.ready else "Running, not ready"
    if state.waiting is not None and state.waiting.reason not in ("", "PodInitializing", "ContainerCreating"):
        return state.waiting.reason
    return ""
