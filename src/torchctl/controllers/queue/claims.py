"""Whose a scheduler's Queue is, and how that is recorded. Pure.

Queues of KAI and of Volcano are cluster-scoped, so none can have a namespaced owner reference. An annotation with the
uid of the TorchrunQueue claims one, and a finalizer on the TorchrunQueue makes sure that it is deleted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torchctl.api import names
from torchctl.api.kube import KAI_QUEUE, KaiQueue
from torchctl.api.labels import APP_MANAGED_BY, QUEUE, QUEUE_UID
from torchctl.api.queue import TorchrunQueue
from torchctl.api.volcano import VOLCANO_QUEUE, VolcanoQueue
from torchctl.runtime.intent import INTENT_ANNOTATION, Ownership
from torchctl.runtime.kinds import Kind, ObjectMeta

__all__ = [
    "KAI",
    "QUEUE_NAMESPACE",
    "VOLCANO",
    "Queues",
    "Scheduler",
    "SchedulerQueue",
    "claim_of",
    "claimed_by",
    "metadata",
    "release",
    "scheduler_of",
]

QUEUE_NAMESPACE = f"{names.GROUP}/queue-namespace"

SchedulerQueue = KaiQueue | VolcanoQueue


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A scheduler that has Queues.

    Attributes:
        kind: Its Queues.
        noun: What one of them is called.
        finalizer: Held by a TorchrunQueue while a Queue of its own exists.
        field: The field of spec that names the Queue.
        program: What has to be installed.
    """

    kind: Kind[Any]
    noun: str
    finalizer: str
    field: str
    program: str


KAI = Scheduler(KAI_QUEUE, "KAI Queue", names.KAI_FINALIZER, "kaiQueue", "KAI-Scheduler")
VOLCANO = Scheduler(VOLCANO_QUEUE, "Volcano Queue", names.VOLCANO_FINALIZER, "scheduling.volcanoQueue", "Volcano")


def scheduler_of(queue: SchedulerQueue) -> Scheduler:
    """Returns the scheduler whose Queue it is."""
    return KAI if isinstance(queue, KaiQueue) else VOLCANO


@dataclass(frozen=True, kw_only=True)
class Queues:
    """The Queues of one scheduler, as one TorchrunQueue sees them.

    Attributes:
        scheduler: Whose Queues they are.
        name: The one that the spec names; None if it names none.
        managed: Whether the TorchrunQueue asks the operator for that one; else it only refers to it.
        available: Whether the cluster serves the kind, and lets us watch it.
        by_name: Every Queue; as last seen if they are not available any more.
        uid: The uid of the TorchrunQueue.
    """

    scheduler: Scheduler
    name: str | None
    managed: bool
    available: bool
    by_name: Mapping[str, Any]
    uid: str

    @property
    def named(self) -> Any | None:
        """The Queue that the spec names, whoever owns it."""
        return self.by_name.get(self.name or "")

    @property
    def is_foreign(self) -> bool:
        """Whether the Queue that the spec names belongs to somebody else."""
        return self.named is not None and claim_of(self.named.metadata) != self.uid

    @cached_property
    def claimed(self) -> tuple[Any, ...]:
        """The Queues that the TorchrunQueue claimed."""
        ours = claimed_by(self.uid)
        return tuple(found for found in self.by_name.values() if ours(found.metadata))

    @property
    def in_sight(self) -> tuple[Any, ...]:
        """The claimed Queues that can be acted on: none while they cannot be watched."""
        return self.claimed if self.available else ()

    @property
    def handed_over(self) -> tuple[Any, ...]:
        """Our Queue, if the spec only refers to it by now. It must stay, because jobs may run in it."""
        return () if self.managed else tuple(found for found in self.in_sight if found.metadata.name == self.name)

    @property
    def unwanted(self) -> tuple[Any, ...]:
        """Our Queues that the spec neither asks for nor names."""
        return tuple(found for found in self.in_sight if found.metadata.name != self.name)


def claim_of(meta: ObjectMeta) -> str:
    """Returns the uid of the TorchrunQueue that claimed this Queue; empty if none did."""
    return meta.annotations.get(QUEUE_UID, "")


def claimed_by(uid: str) -> Ownership:
    """Returns a predicate that recognises the Queues that this TorchrunQueue claimed."""
    return lambda meta: claim_of(meta) == uid


def metadata(queue: TorchrunQueue, name: str | None) -> dict[str, Any]:
    """Returns the metadata of a Queue of that name that a TorchrunQueue asks for, with its claim."""
    return {
        "name": name,
        "labels": {APP_MANAGED_BY: names.FIELD_MANAGER},
        "annotations": {
            QUEUE: queue.metadata.name,
            QUEUE_NAMESPACE: queue.metadata.namespace,
            QUEUE_UID: queue.metadata.uid,
        },
    }


def release(found: SchedulerQueue) -> dict[str, Any]:
    """Returns the merge patch that takes our claim off a Queue and leaves all else as it is.

    It applies only to the version that was read.
    """
    claim = (QUEUE, QUEUE_NAMESPACE, QUEUE_UID, INTENT_ANNOTATION)
    return {
        "metadata": {
            "uid": found.metadata.uid,
            "resourceVersion": found.metadata.resource_version,
            "labels": {APP_MANAGED_BY: None},
            "annotations": dict.fromkeys(claim),
        }
    }
