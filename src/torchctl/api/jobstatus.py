"""The status of a TorchrunJob, which the operator writes."""

from datetime import datetime
from typing import Annotated

import msgspec

from torchctl.api.casing import camel
from torchctl.api.causes import Cause
from torchctl.api.phases import Phase
from torchctl.api.statusfields import (
    CONDITIONS,
    COUNTED,
    NODE_NAME,
    OBSERVED_GENERATION,
    count,
    flag,
    mapping,
    moment,
    nested,
    node_names,
    text,
    turn,
)
from torchctl.runtime.kinds import Condition

__all__ = [
    "NEVER_FITS",
    "PODS_NOT_PLACED",
    "Admission",
    "Failure",
    "Incident",
    "JobStatus",
    "NodeCounts",
    "OtherLoss",
    "Restarts",
    "WorkerCounts",
    "WorkspaceStatus",
]


NEVER_FITS = "NeverFits"
"""status.admission.reason of an attempt that does not fit even if nothing else runs."""
PODS_NOT_PLACED = "PodsNotPlaced"
"""status.admission.reason of an attempt that follows one of which some pods found no node after it was let in."""


class Restarts(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """Incidents so far."""

    total: Annotated[
        int, count("Incidents, whatever the number of pods each one took; also one that ended the job.", shown=True)
    ] = 0
    by_cause: Annotated[dict[str, Annotated[int, COUNTED]], mapping("Incidents by their cause.")] = {}
    recent_by_cause: Annotated[
        dict[str, Annotated[int, COUNTED]],
        mapping("Those since the workers last ran for long: what the budgets count."),
    ] = {}
    consecutive: Annotated[
        int, count("Incidents since the workers last ran for long; the back-off doubles with it.")
    ] = 0


class NodeCounts(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """Nodes, which are pods."""

    desired: Annotated[int, count("Nodes that the job should have.", shown=True)] = 0
    ready: Annotated[int, count("Nodes whose pod is ready.", shown=True)] = 0


class WorkerCounts(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """The numbers of the attempt's worker pods by state."""

    pending: Annotated[int, count("Pods that wait for a node, an image or a volume.")] = 0
    ready: Annotated[int, count("Running pods that are ready.")] = 0
    running: Annotated[int, count("Running pods.")] = 0
    succeeded: Annotated[int, count("Pods that ended well.")] = 0
    failed: Annotated[int, count("Pods that failed.")] = 0


class WorkspaceStatus(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """The workspace that was synced, or is about to be synced again."""

    requested: Annotated[str, text("spec.volumes.workspace.revision that was asked for, where there was one.")] = ""
    pod: Annotated[str, text("First sync pod of a revision that was asked for later.")] = ""
    revision: Annotated[str, text("Commit or digest that the workers run; after sync --no-restart, have.")] = ""
    sent_time: Annotated[
        datetime | None, moment("When a revision that was sent to the running job was seen in spec (hotReload).")
    ] = None
    source: Annotated[str, text("Where it came from: zip, git, s3 or existing.")] = ""
    digest: Annotated[str, text("SHA-256 of its content.")] = ""
    bytes: Annotated[int, count("Size of its files, in bytes.", maximum=2**53)] = 0
    files: Annotated[int, count("Number of its files.")] = 0


class Failure(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """The first failure of the attempt: the one that caused the others."""

    pod: Annotated[str, text("Name of the pod.")] = ""
    node: Annotated[str, text("Name of the node that it ran on.")] = ""
    rank: Annotated[int | None, count("Rank that failed first, where torchrun reported it.")] = None
    exit_code: Annotated[int | None, count("Its exit code, else the container's.", minimum=-(2**31))] = None
    reason: Annotated[str, text("What happened, in one word: Error, OOMKilled, Evicted, ...")] = ""
    message: Annotated[str, text("What it said last.", max_length=32768)] = ""


class OtherLoss(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """The first deletion, if something else is the first loss; or the first of the other losses, if a deletion is."""

    cause: Annotated[str, text("Its cause.", enum=tuple(Cause))]
    failure: Annotated[Failure, nested()]
    lost: Annotated[datetime | None, moment("When that pod was lost.")] = None


class Incident(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """An incident that is open: the first pod is lost, and what else goes with it is waited for."""

    cause: Annotated[str, text("Cause, as status.restarts.byCause counts it.", enum=tuple(Cause))]
    opened: Annotated[datetime, moment("When the operator saw it.")]
    lost: Annotated[datetime | None, moment("When the pod that is taken for the first was lost.")] = None
    other: Annotated[OtherLoss | None, nested()] = None


class Admission(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """What the coordinator has decided about an attempt, and what it says while the attempt waits."""

    attempt: Annotated[int, count("Attempt that this is about.")] = 0
    let_in_time: Annotated[datetime | None, moment("When the attempt was let in; absent while it waits.")] = None
    clock: Annotated[int, turn("Turns of all queues when it was let in, as the policy counts them.")] = 0
    position: Annotated[int, turn("Turns of its queue, as the policy counts them.")] = 0
    only_nodes: Annotated[
        tuple[Annotated[str, NODE_NAME], ...],
        node_names("Nodes to which its pods are limited, because they were kept for it."),
    ] = ()
    avoid_nodes: Annotated[
        tuple[Annotated[str, NODE_NAME], ...],
        node_names("Nodes on which its pods must not run, because they are kept for another job."),
    ] = ()
    taken_back_time: Annotated[
        datetime | None, moment("When its room was taken back; the attempt ends, and the next one waits again.")
    ] = None
    preempted_for: Annotated[
        str,
        text(
            "The job for which its room was taken back, as namespace/name; empty if pods of it found no node.",
            max_length=512,
        ),
    ] = ""
    misses: Annotated[
        int, count("How often in a row some of its pods found no node after it was let in; the pause doubles with it.")
    ] = 0
    not_before_time: Annotated[
        datetime | None, moment("When it is let in at the earliest, after some of its pods found no node.")
    ] = None
    reserved: Annotated[bool, flag("Whether room on nodes is kept for it.")] = False
    place: Annotated[int, count("Its place in its queue, from 1.")] = 0
    reason: Annotated[str, text("What is short, in one word.")] = ""
    message: Annotated[str, text("What is short, and what would fit.", max_length=1024)] = ""
    waits_for: Annotated[str, text("The job for which room or quota is kept, as namespace/name.", max_length=512)] = ""
    estimated_start_time: Annotated[
        datetime | None,
        moment("When it will start, by estimate: from deadlines, else from how often its queue started jobs."),
    ] = None


class JobStatus(msgspec.Struct, frozen=True, rename=camel, omit_defaults=True):
    """The state that the operator saw, and the decisions that it has committed to."""

    phase: Annotated[str, text("Where the job is, in one word, derived from the conditions.", enum=tuple(Phase))] = ""
    conditions: Annotated[tuple[Condition, ...], CONDITIONS] = ()
    observed_generation: Annotated[int, OBSERVED_GENERATION] = 0
    job_id: Annotated[str, text("Unique id of the job, for ever (TORCHRUN_JOB_ID).")] = ""
    attempt: Annotated[int, count("Attempt that runs or ran last, from 0 (TORCHRUN_ATTEMPT).")] = 0
    active_seconds: Annotated[
        int,
        count(
            "Seconds from admission to the first loss, of the attempts that have ended; the one that runs is not in it."
        ),
    ] = 0
    restarts: Annotated[Restarts, nested(shown=True)] = Restarts()
    nodes: Annotated[NodeCounts, nested(shown=True)] = NodeCounts()
    gpus: Annotated[int, count("GPUs of the whole job.", shown=True)] = 0
    workers_status: Annotated[str, text("Workers in short: 3/4 running, 4/4 succeeded, 1/4 failed.")] = ""
    workers: Annotated[WorkerCounts, nested()] = WorkerCounts()
    selector: Annotated[str, text("Label selector of the worker pods, for the scale subresource.", max_length=1024)] = (
        ""
    )
    master_endpoint: Annotated[str, text("Where the workers meet: host:port of worker 0.", max_length=512)] = ""
    rendezvous_id: Annotated[str, text("torchrun's rendezvous id of the attempt.")] = ""
    queue_revision: Annotated[str, text("ControllerRevision with the template that the job runs with.")] = ""
    admission: Annotated[Admission | None, nested()] = None
    workspace: Annotated[WorkspaceStatus | None, nested()] = None
    failure: Annotated[Failure | None, nested()] = None
    incident: Annotated[Incident | None, nested()] = None
    next_attempt_time: Annotated[
        datetime | None, moment("When the attempt begins at the earliest, while it is waited for.")
    ] = None
    attempt_start_time: Annotated[datetime | None, moment("When the worker Job of the attempt was made.")] = None
    attempt_active_time: Annotated[
        datetime | None,
        moment("When the attempt's time began: all its pods placed, or without a gang scheduler its Job made."),
    ] = None
    attempt_ready_time: Annotated[datetime | None, moment("When all workers of the attempt were ready first.")] = None
    requeues: Annotated[
        int,
        count("How often the attempt's pods were taken and it was queued again, by Kueue or whoever suspends its Job."),
    ] = 0
    host_uid: Annotated[
        str, text("UID of the worker 0 at which the workers of an elastic attempt met.", max_length=64)
    ] = ""
    start_time: Annotated[datetime | None, moment("When the first worker Job was made.")] = None
    completion_time: Annotated[datetime | None, moment("When the job ended.")] = None
