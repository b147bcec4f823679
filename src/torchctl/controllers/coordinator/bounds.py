"""Reads from queues and ResourceQuotas what their gangs may hold. Pure."""

from collections.abc import Iterable, Iterator

from torchctl.api import quantity
from torchctl.api.capacity import QuotaSpec, ResourceQuota
from torchctl.api.queue import TorchrunQueue
from torchctl.api.quota import QueueQuota
from torchctl.controllers.coordinator.values import Limits, NamespaceQuota, Queue, Requirement
from torchctl.controllers.queuespec.scheduling import named_scheduler
from torchctl.runtime.kinds import key_of

__all__ = ["namespace_quota", "queue_of"]


def queue_of(queue: TorchrunQueue, unknown: Iterable[str] = ()) -> Queue:
    """Returns the settings of a queue. One that names a scheduler is refused a cohort, and lends nothing.

    Args:
        unknown: Jobs that hold a place in it, and nobody knows how large a one.
    """
    spec = queue.spec
    return Queue(
        key=str(key_of(queue)),
        weight=spec.weight,
        quota=_limits(spec.quota),
        cohort="" if named_scheduler(spec) else spec.cohort or "",
        borrowing=_limits(spec.borrowing_limit),
        preemption=spec.preemption,
        max_nodes=spec.max_nodes,
        unknown=tuple(unknown),
    )


def _limits(given: QueueQuota) -> Limits:
    cpus = None if given.cpus is None else quantity.parse(given.cpus).milli
    memory = None if given.memory is None else int(quantity.parse(given.memory).ceil().value)
    return Limits(gpus=given.gpus, cpus=cpus, memory=memory, jobs=given.jobs)


def namespace_quota(quota: ResourceQuota) -> NamespaceQuota:
    """Returns what a ResourceQuota allows, has left, and governs."""
    used, hard = quota.status.used, {name: _amount(name, given) for name, given in quota.status.hard.items()}
    return NamespaceQuota(
        namespace=quota.metadata.namespace,
        name=quota.metadata.name,
        hard=hard,
        left={name: amount - _amount(name, used.get(name, "0")) for name, amount in hard.items()},
        scopes=tuple(_scopes(quota.spec)),
    )


def _scopes(spec: QuotaSpec) -> Iterator[Requirement]:
    for scope in spec.scopes or ():
        yield Requirement(scope, "Exists")
    if spec.scope_selector is not None:
        for given in spec.scope_selector.match_expressions or ():
            yield Requirement(given.scope_name, given.operator, given.values or ())


def _amount(name: str, given: str) -> int:
    """Returns an amount in the units of `namespace_demand`: CPUs in thousandths."""
    found = quantity.parse(given)
    return found.milli if name in ("cpu", "requests.cpu", "limits.cpu") else int(found.ceil().value)
