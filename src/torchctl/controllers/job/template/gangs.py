"""Decides, here alone, which scheduler places the pods of a job, and whether as a gang."""

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from torchctl.api.conditions import JobReason
from torchctl.api.job import JobSpec
from torchctl.api.names import AUTO, DEFAULT_SCHEDULER, KAI_DEFAULT_QUEUE, KAI_SCHEDULER, NATIVE, VOLCANO
from torchctl.api.queue import QueueSpec, Scheduling
from torchctl.controllers.gangs.choice import choose
from torchctl.controllers.job.template.errors import Impossible
from torchctl.controllers.job.template.frozen import FrozenKai, FrozenKueue, FrozenNative, FrozenTopology, FrozenVolcano
from torchctl.controllers.queuespec.scheduling import scheduler_of
from torchctl.runtime.kinds import Kind

__all__ = ["Placement", "placement"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The scheduler of a job's pods.

    Args:
        scheduler_name: The pods' schedulerName; empty for the cluster's default.
        auto: Whether the operator chose it.
        kai, volcano, native, kueue: The one that makes the pods a gang, if one does.
    """

    scheduler_name: str
    auto: bool
    kai: FrozenKai | None = None
    volcano: FrozenVolcano | None = None
    native: FrozenNative | None = None
    kueue: FrozenKueue | None = None


def placement(queue: QueueSpec, job: JobSpec, default: str, absent: Container[Kind[Any]], queue_name: str) -> Placement:
    """Decides for a job in its queue.

    Args:
        default: The scheduler of queues that name none, as the operator's settings have it.
        absent: The kinds of PodGroups that the API server does not serve.

    Raises:
        Impossible: The job is elastic and the gangs of its scheduler cannot change their size.
    """
    asked, gang, elastic = scheduler_of(queue, default), queue.scheduling.gang, job.elastic is not None
    if queue.scheduling.kueue_queue is not None:
        # Kueue gives quota and places nothing: whichever scheduler the pods have does that.
        return Placement(scheduler_name=asked, auto=False, kueue=FrozenKueue(queue=queue.scheduling.kueue_queue))
    auto = asked == AUTO
    chosen = asked if not auto else choose(absent, elastic=elastic) if gang else ""
    if chosen == NATIVE and elastic and gang:
        raise Impossible(
            JobReason.INVALID_SPEC,
            f"spec.elastic does not go with scheduling.scheduler {NATIVE} of TorchrunQueue {queue_name}: gangs of "
            "Kubernetes itself cannot change their size; set scheduling.gang to false there, or submit the job to "
            "another queue",
        )
    return Placement(
        scheduler_name="" if chosen in (NATIVE, DEFAULT_SCHEDULER) else chosen,
        auto=auto,
        kai=_kai(queue) if chosen == KAI_SCHEDULER else None,
        volcano=_volcano(queue) if chosen == VOLCANO else None,
        native=FrozenNative(gang=gang) if chosen == NATIVE else None,
    )


def _kai(queue: QueueSpec) -> FrozenKai:
    """Returns KAI's settings.

    A gang has a queue in any case: without one it could have no PodGroup of its own, and no gang KAI would make of it.
    """
    default = KAI_DEFAULT_QUEUE if queue.scheduling.gang else ""
    return FrozenKai(queue=queue.kai_queue or default, gang=queue.scheduling.gang, topology=_topology(queue.scheduling))


def _topology(scheduling: Scheduling) -> FrozenTopology | None:
    asked = scheduling.topology
    if asked is None:
        return None
    return FrozenTopology(name=asked.name, required=asked.required or "", preferred=asked.preferred or "")


def _volcano(queue: QueueSpec) -> FrozenVolcano:
    return FrozenVolcano(queue=queue.scheduling.volcano_queue or "", gang=queue.scheduling.gang)
