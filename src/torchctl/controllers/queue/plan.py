"""What a TorchrunQueue needs done, decided from one observation. Pure.

A queue with a KAI Queue of its own passes through: finalizer, then KAI Queue; and on its way out, once no
unfinished job is left: KAI Queue gone, then finalizer gone. In between, a KAI Queue that was claimed under
an earlier `spec.kaiQueue` goes too, likewise once no unfinished job is left.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchctl.api.job import TorchrunJob
from torchctl.api.kube import KaiQueue
from torchctl.api.names import QUEUE_FINALIZER
from torchctl.api.phases import TERMINAL
from torchctl.api.queue import KaiQueuePolicy, TorchrunQueue
from torchctl.controllers.queue.kai import claimed_by, kai_queue
from torchctl.controllers.queue.validate import problem_of

__all__ = ["KAI_POLL_S", "RETRY_S", "Observed", "Plan", "Refusal", "is_foreign", "look_again", "manages", "plan"]

RETRY_S = 60.0
"""When to try again what was refused; a change of what was watched comes first."""

KAI_POLL_S = 10.0
"""How often to look for KAI where it is missing. Its arrival brings no object, so no change tells of it."""


@dataclass(frozen=True, slots=True)
class Observed:
    """All that the reconciler knows of a queue.

    Attributes:
        queue: The queue itself.
        jobs: The TorchrunJobs that name it.
        kai_available: Whether the cluster has KAI's Queue kind.
        kai_queues: Every KAI Queue, by name.
        allowed_parents: Under which parents the operator may make KAI Queues; None: under any.
    """

    queue: TorchrunQueue
    jobs: tuple[TorchrunJob, ...]
    kai_available: bool
    kai_queues: Mapping[str, KaiQueue]
    allowed_parents: frozenset[str] | None = None

    @property
    def kai_queue(self) -> KaiQueue | None:
        """The KAI Queue of the name that the spec asks for, whoever owns it."""
        return self.kai_queues.get(self.queue.spec.kai_queue or "")

    @property
    def claimed(self) -> tuple[KaiQueue, ...]:
        """The KAI Queues that this queue made."""
        ours = claimed_by(self.queue.metadata.uid)
        return tuple(found for found in self.kai_queues.values() if ours(found.metadata))

    @property
    def unfinished(self) -> tuple[TorchrunJob, ...]:
        return tuple(job for job in self.jobs if job.status.phase not in TERMINAL)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The API server, or what stands in its way, did not take a write."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do.

    Attributes:
        problem: Why nothing can be done with this spec: reason and message of Accepted=False.
        finalizers: metadata.finalizers as they must be, before anything else is done; None where they are right.
        apply: The KAI Queue to apply.
        delete: KAI Queues of ours that must go.
    """

    problem: tuple[str, str] | None = None
    finalizers: tuple[str, ...] | None = None
    apply: Mapping[str, Any] | None = None
    delete: tuple[KaiQueue, ...] = ()


def manages(queue: TorchrunQueue) -> bool:
    """Whether the queue asks the operator for a KAI Queue."""
    return queue.spec.kai_queue is not None and queue.spec.kai_queue_policy is KaiQueuePolicy.MANAGE


def plan(observed: Observed) -> Plan:
    if observed.queue.metadata.deletion_timestamp is not None:
        return _plan_deletion(observed)
    problem = problem_of(observed.queue, observed.allowed_parents)
    if problem is not None:
        return Plan(problem=problem)
    if not manages(observed.queue):
        return _let_go(observed)
    if not observed.kai_available:
        return Plan()
    if not _holds_finalizer(observed):
        return Plan(finalizers=(*observed.queue.metadata.finalizers, QUEUE_FINALIZER))
    wanted = observed.queue.spec.kai_queue
    return Plan(
        apply=kai_queue(observed.queue) if _parent_exists(observed) and not is_foreign(observed) else None,
        delete=tuple(found for found in _idle(observed) if found.metadata.name != wanted),
    )


def _plan_deletion(observed: Observed) -> Plan:
    if observed.unfinished or not _holds_finalizer(observed):
        return Plan()
    return _let_go(observed)


def _let_go(observed: Observed) -> Plan:
    """The KAI Queues first; only once they are seen gone the finalizer, which is what remembers them."""
    if observed.claimed or not _holds_finalizer(observed):
        return Plan(delete=_idle(observed))
    return Plan(finalizers=tuple(held for held in observed.queue.metadata.finalizers if held != QUEUE_FINALIZER))


def _idle(observed: Observed) -> tuple[KaiQueue, ...]:
    """The KAI Queues of ours in which nothing can run any more: a job keeps the one that it started in."""
    return () if observed.unfinished else observed.claimed


def _parent_exists(observed: Observed) -> bool:
    parent = observed.queue.spec.parent_kai_queue
    return parent is None or parent in observed.kai_queues


def is_foreign(observed: Observed) -> bool:
    """Whether the KAI Queue of the name that the spec asks for is somebody else's."""
    found = observed.kai_queue
    return found is not None and not claimed_by(observed.queue.metadata.uid)(found.metadata)


def _holds_finalizer(observed: Observed) -> bool:
    return QUEUE_FINALIZER in observed.queue.metadata.finalizers


def look_again(observed: Observed, refusal: Refusal | None) -> float | None:
    """Seconds until the next look that no change brings about, or None."""
    if refusal is not None:
        return RETRY_S
    return KAI_POLL_S if observed.queue.spec.kai_queue and not observed.kai_available else None
