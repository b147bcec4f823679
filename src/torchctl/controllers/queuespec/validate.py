"""Checks of a TorchrunQueue that its schema cannot express. Pure."""

from collections.abc import Iterator

from torchctl.api.names import KAI_SCHEDULER, TRAINER
from torchctl.api.quantity import parse
from torchctl.api.queue import QueueSpec, TorchrunQueue
from torchctl.api.queueconditions import QueueReason
from torchctl.api.rules import nesting, problems
from torchctl.api.written import plain
from torchctl.controllers.queuespec import resources
from torchctl.controllers.queuespec.podtemplate import misshapen
from torchctl.controllers.queuespec.policy import manages_kai, manages_volcano
from torchctl.controllers.queuespec.scheduling import named_scheduler
from torchctl.controllers.queuespec.support import for_the_coordinator

__all__ = ["problem_of"]


def problem_of(
    queue: TorchrunQueue, allowed_parents: frozenset[str] | None, *, coordinated: bool = False
) -> tuple[str, str] | None:
    """Returns the first problem of a queue as (reason, message), or None.

    Args:
        allowed_parents: The KAI queues that may be parents; None: all.
        coordinated: Whether the coordinator is on.
    """
    return next(_problems(queue, allowed_parents, coordinated), None)


def _problems(
    queue: TorchrunQueue, allowed_parents: frozenset[str] | None, coordinated: bool
) -> Iterator[tuple[str, str]]:
    for broken in nesting(queue.spec):
        yield QueueReason.INVALID_SPEC, str(broken)
    message = _container_problem(queue.spec)
    if message:
        yield QueueReason.INVALID_SPEC, message
    for broken in problems(queue.spec):
        yield QueueReason.INVALID_SPEC, str(broken)
    fields, other = for_the_coordinator(queue.spec), named_scheduler(queue.spec)
    if fields and not coordinated:
        step = "remove the field" + (
            ", or set scheduling.volcanoQueuePolicy: Manage for a Volcano Queue that heeds weight and quota"
            if queue.spec.scheduling.volcano_queue and not manages_volcano(queue.spec)
            else ""
        )
        message = f"{fields}: only with the coordinator, which is off (--coordinator); {step}"
        yield QueueReason.NOT_SUPPORTED_YET, message
    elif fields and other:
        message = f"{fields}: only for jobs that the coordinator lets in, and {other} has those of this queue"
        yield QueueReason.NOT_SUPPORTED_YET, f"{message}; remove the field, or have {other} do it"
    unheeded = _volcano_problem(queue.spec) if manages_volcano(queue.spec) else ""
    if unheeded:
        yield QueueReason.INVALID_SPEC, unheeded
    misplaced = _topology_problem(queue.spec)
    if misplaced:
        yield QueueReason.INVALID_SPEC, f"spec.scheduling.topology: {misplaced}"
    for index, entry in enumerate(queue.spec.resources):
        wrong = resources.problem_of(entry)
        if wrong:
            yield QueueReason.INVALID_SPEC, f"spec.resources[{index}] ({entry.name}): template.{wrong}"
    clash = resources.clash_of(queue.spec.resources)
    if clash:
        yield QueueReason.INVALID_SPEC, f"spec.resources: {clash}"
    if allowed_parents is not None and manages_kai(queue.spec) and queue.spec.parent_kai_queue not in allowed_parents:
        parent = queue.spec.parent_kai_queue
        yield (
            QueueReason.PARENT_NOT_ALLOWED,
            f"spec.parentKaiQueue: {parent or 'none'} is not among the parents that this operator allows "
            f"(--kai-parent-queues): {', '.join(sorted(allowed_parents)) or 'none'}",
        )


def _volcano_problem(spec: QueueSpec) -> str:
    """Finds bounds that a Volcano Queue would not keep: no CPUs are any number of CPUs to it."""
    for name, amount in (("cpus", spec.quota.cpus), ("memory", spec.quota.memory)):
        if amount is not None and parse(amount).value <= 0:
            return f"spec.quota.{name}: {amount} is no bound to Volcano: name an amount, or remove the field"
    if spec.quota.gpus is not None and spec.node_resources.gpus_per_node is not None:
        return (
            "spec.quota.gpus: a Volcano Queue bounds extended resources, and the GPUs of gpusPerNode come from "
            "resource claims: remove the field"
        )
    return ""


def _topology_problem(spec: QueueSpec) -> str:
    """Checks that a topology has a PodGroup to go into: KAI places the job, as a gang."""
    scheduling = spec.scheduling
    if scheduling.topology is None:
        return ""
    if spec.kai_queue is None or scheduling.scheduler not in (None, KAI_SCHEDULER):
        return "only KAI places by topology: set spec.kaiQueue, and no other spec.scheduling.scheduler, or remove it"
    if not scheduling.gang:
        return "a topology is shared by a gang: set spec.scheduling.gang to true, or remove the topology"
    if scheduling.topology.required is None and scheduling.topology.preferred is None:
        return "names no level: set required or preferred to a level of the KAI Topology"
    return ""


def _container_problem(spec: QueueSpec) -> str:
    """Checks that the first container, and only that, is the trainer. Without containers the operator makes it."""
    pod = spec.pod_template.spec if spec.pod_template is not None else None
    containers = [container.name for container in (pod.containers or ())] if pod is not None else []
    field = "spec.podTemplate.spec.containers"
    if containers and containers[0] != TRAINER:
        return f"{field}[0].name is {containers[0]!r}: the first container must be named {TRAINER!r}"
    if containers.count(TRAINER) > 1:
        return f"{field}: more than one container is named {TRAINER!r}"
    wrong = misshapen(plain(pod))
    return f"spec.podTemplate.spec.{wrong}" if wrong else _sync_pod_problem(spec)


def _sync_pod_problem(spec: QueueSpec) -> str:
    workspace = spec.storage.workspace
    given = workspace.pod_template if workspace is not None else None
    wrong = misshapen(plain(given.spec)) if given is not None else ""
    return f"spec.storage.workspace.podTemplate.spec.{wrong}" if wrong else ""
