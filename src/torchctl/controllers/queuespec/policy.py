"""Which scheduler's Queue a TorchrunQueue asks the operator for, and what is known of it. Pure."""

from torchctl.api.queue import QueuePolicy, QueueSpec, TorchrunQueue
from torchctl.api.queueconditions import QueueCondition
from torchctl.runtime.conditions import find
from torchctl.runtime.kinds import Condition

__all__ = ["condition_of", "managed_queue", "manages_kai", "manages_volcano"]


def manages_kai(spec: QueueSpec) -> bool:
    """Whether the queue asks the operator for a KAI Queue."""
    return spec.kai_queue is not None and spec.kai_queue_policy is QueuePolicy.MANAGE


def manages_volcano(spec: QueueSpec) -> bool:
    """Whether the queue asks the operator for a Volcano Queue."""
    scheduling = spec.scheduling
    return scheduling.volcano_queue is not None and scheduling.volcano_queue_policy is QueuePolicy.MANAGE


def managed_queue(spec: QueueSpec) -> str:
    """Returns the Queue that the operator makes for this one, as `KAI Queue train`; empty if it makes none."""
    if manages_kai(spec):
        return f"KAI Queue {spec.kai_queue}"
    return f"Volcano Queue {spec.scheduling.volcano_queue}" if manages_volcano(spec) else ""


def condition_of(queue: TorchrunQueue) -> Condition | None:
    """Returns the condition about the scheduler's Queue that the operator makes, or KAI's if it makes none."""
    is_volcano = manages_volcano(queue.spec)
    type_ = QueueCondition.VOLCANO_QUEUE_READY if is_volcano else QueueCondition.KAI_QUEUE_READY
    return find(queue.status.conditions, type_)
