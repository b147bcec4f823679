"""Whether pods of a shape may run on a node, as kube-scheduler's filters NodeAffinity and TaintToleration judge it."""

from collections.abc import Iterable, Mapping

from torchctl.controllers.coordinator.values import PodShape, Requirement, Taint, Toleration

__all__ = ["HELD", "NODE_NAME", "holds", "label_keys", "matches", "selects", "tolerated", "untolerated"]

NODE_NAME = "metadata.name"
"""The key of requirements on the node's name (matchFields)."""

HELD = ":held/"
"""The key of requirements on whether a node is kept for a gang, with its key behind. No label begins with a colon."""

_KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})


def label_keys(shapes: Iterable[PodShape]) -> tuple[str, ...]:
    """Returns the node labels that decide for these shapes, sorted."""
    keys = {key for shape in shapes for key, _ in shape.selector}
    keys |= {needed.key for shape in shapes for term in shape.affinity for needed in term}
    return tuple(sorted(key for key in keys if not key.startswith(HELD)))


def matches(shape: PodShape, labels: Mapping[str, str], taints: Iterable[Taint]) -> bool:
    """Whether the pods may run on a node with these labels and taints. NODE_NAME counts as a label."""
    return selects(shape, labels) and not untolerated(shape, taints)


def selects(shape: PodShape, labels: Mapping[str, str]) -> bool:
    """Whether nodeSelector and required node affinity choose a node with these labels."""
    if any(labels.get(key) != value for key, value in shape.selector):
        return False
    return not shape.affinity or any(_term_holds(term, labels) for term in shape.affinity)


def untolerated(shape: PodShape, taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """Returns the taints that keep the pods away."""
    return tuple(taint for taint in taints if taint.effect in _KEEPS_AWAY and not tolerated(taint, shape.tolerations))


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "Equal" | "":
            return bool(toleration.key) and toleration.value == taint.value
        case "Lt":
            return _compared(taint.value, toleration.value, less=True)
        case "Gt":
            return _compared(taint.value, toleration.value, less=False)
    return False


def _term_holds(term: tuple[Requirement, ...], labels: Mapping[str, str]) -> bool:
    """Whether every requirement holds; an empty term chooses no node."""
    return bool(term) and all(holds(needed, labels.get(needed.key)) for needed in term)


def holds(needed: Requirement, value: str | None) -> bool:
    """Whether a requirement holds for the value that its key has; None: it has none."""
    match needed.operator:
        case "In":
            return value in needed.values
        case "NotIn":
            return value not in needed.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Lt" | "Gt":
            bound = needed.values[0] if needed.values else ""
            return value is not None and _compared(value, bound, less=needed.operator == "Lt")
    return False  # an operator of a later Kubernetes: no node is chosen by what is not understood


def _compared(value: str, bound: str, *, less: bool) -> bool:
    try:
        return int(value) < int(bound) if less else int(value) > int(bound)
    except ValueError:
        return False
