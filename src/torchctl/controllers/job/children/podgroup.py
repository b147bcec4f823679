"""KAI's PodGroup of an attempt: all of its pods are placed together (of an elastic job the fewest), or none.

A PodGroup of our own is what makes an Indexed Job a gang in KAI: the one that KAI's podgrouper would make has
minMember 1, and whether it reads the Job's annotation depends on which owners it may see.
"""

from typing import Any

from torchctl.api import labels, names
from torchctl.api.kube import KAI_PODGROUP
from torchctl.controllers.job.children.owner import Owner
from torchctl.controllers.job.template.frozen import FrozenTemplate, FrozenTopology

__all__ = ["gang_annotations", "group_name", "job_annotations", "kai_labels", "pod_group"]


def pod_group(owner: Owner, template: FrozenTemplate, attempt: int) -> dict[str, Any]:
    """The PodGroup of an attempt. KAI knows PodGroups by bare name, so the job's uid is in it."""
    kai = template.kai
    assert kai is not None
    name = group_name(owner, attempt)
    body = owner.body(
        KAI_PODGROUP,
        name,
        labels.ROLE_WORKER,
        attempt=attempt,
        given=template.metadata,
        labels=kai_labels(template),
    )
    spec: dict[str, Any] = {"minMember": template.min_nodes, "queue": kai.queue}
    if "priorityClassName" in template.pod["spec"]:
        spec["priorityClassName"] = template.pod["spec"]["priorityClassName"]
    if kai.topology is not None:
        spec["topologyConstraint"] = _constraint(kai.topology)
    return body | {"spec": spec}


def group_name(owner: Owner, attempt: int) -> str:
    """The name of the attempt's PodGroup, which no other attempt and no other job ever has."""
    return names.kai_pod_group(names.worker_job(owner.name, attempt), owner.uid)


def _constraint(topology: FrozenTopology) -> dict[str, str]:
    levels = {"requiredTopologyLevel": topology.required, "preferredTopologyLevel": topology.preferred}
    return {"topology": topology.name} | {field: level for field, level in levels.items() if level}


def kai_labels(template: FrozenTemplate) -> dict[str, str]:
    """Labels that put Job and pods into their KAI queue."""
    return {labels.KAI_QUEUE: template.kai.queue} if template.kai and template.kai.queue else {}


def gang_annotations(owner: Owner, template: FrozenTemplate, attempt: int) -> dict[str, str]:
    """Annotations of the pods that belong to the PodGroup."""
    if template.kai is None or not template.kai.own_group:
        return {}
    return {labels.KAI_POD_GROUP: group_name(owner, attempt), labels.KAI_SKIP_PODGROUPER: "true"}


def job_annotations(template: FrozenTemplate) -> dict[str, str]:
    """The gang's size for a KAI before 0.15, which makes the PodGroup itself; later ones ignore it."""
    if template.kai is None or not template.kai.gang:
        return {}
    return {labels.KAI_BATCH_MIN_MEMBER: str(template.min_nodes)}
