"""The PodGroup of an attempt: all of its pods are placed together (of an elastic job the fewest), or none."""

from typing import Any

from torchctl.api import labels, names
from torchctl.controllers.gangs.scheduler import Gang
from torchctl.controllers.job.children.owner import Owner
from torchctl.controllers.job.template.frozen import FrozenTemplate

__all__ = ["gang_of", "group_name", "pod_group"]


def pod_group(owner: Owner, template: FrozenTemplate, attempt: int) -> dict[str, Any]:
    """The PodGroup of an attempt whose gang scheduler has one."""
    scheduler, gang = template.pod_groups, gang_of(owner, template, attempt)
    assert scheduler is not None
    body = owner.body(
        scheduler.kind,
        group_name(owner, attempt),
        labels.ROLE_WORKER,
        attempt=attempt,
        given=template.metadata,
        labels=scheduler.marks(gang).labels,
    )
    return body | {"spec": scheduler.spec(gang)}


def gang_of(owner: Owner, template: FrozenTemplate, attempt: int) -> Gang:
    """The attempt, as its gang scheduler is told of it."""
    return Gang(
        group=group_name(owner, attempt),
        least=template.min_nodes,
        most=template.max_nodes,
        priority_class=template.pod["spec"].get("priorityClassName", ""),
    )


def group_name(owner: Owner, attempt: int) -> str:
    """The name of the attempt's PodGroup, which no other attempt and no other job ever has."""
    return names.pod_group(names.worker_job(owner.name, attempt), owner.uid)
