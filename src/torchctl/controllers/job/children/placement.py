"""Limits the workers to the nodes that the coordinator decided on."""

from collections.abc import Sequence
from typing import Any

from torchctl.api.jobstatus import Admission

__all__ = ["limited"]

Json = dict[str, Any]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def limited(pod: Json, let_in: Admission | None) -> Json:
    """Returns the pod template with the node affinity that the coordinator's record asks for.

    Every term of a required node affinity gets the requirement, because one term that holds is enough.
    """
    if let_in is None or not (let_in.only_nodes or let_in.avoid_nodes):
        return pod
    spec = pod["spec"]
    affinity = spec.get("affinity") or {}
    by_node = affinity.get("nodeAffinity") or {}
    terms = (by_node.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    if let_in.only_nodes:
        needed = [_with(term, [_field("In", name)]) for term in terms for name in let_in.only_nodes]
    else:
        avoided = [_field("NotIn", name) for name in let_in.avoid_nodes]
        needed = [_with(term, avoided) for term in terms]
    by_node = by_node | {_REQUIRED: {"nodeSelectorTerms": needed}}
    return pod | {"spec": spec | {"affinity": affinity | {"nodeAffinity": by_node}}}


def _with(term: Json, fields: Sequence[Json]) -> Json:
    return term | {"matchFields": [*term.get("matchFields", ()), *fields]}


def _field(operator: str, node: str) -> Json:
    """A requirement on the node's name, which has exactly one value (core validation, NodeSelectorRequirement)."""
    return {"key": "metadata.name", "operator": operator, "values": [node]}
