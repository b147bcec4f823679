"""Checks the shape of those parts of a podTemplate that the operator reads. Pure.

The schema keeps every field of a pod as it is written, so there may be a list in place of a map. The API server
judges all other parts.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torchctl.api import quantity

__all__ = ["misshapen"]

Check = Callable[[Any], bool]


def misshapen(spec: Mapping[str, Any]) -> str:
    """Returns the first part of a pod's spec with a wrong shape, as `path must be ...`; empty if all are right."""
    return next(_wrong(spec), "")


def _wrong(spec: Mapping[str, Any]) -> Iterator[str]:
    yield from _against(spec, _POD, "")
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field, ())):
            yield from _against(container, _CONTAINER, f"{field}[{index}].")


def _against(found: Mapping[str, Any], shapes: Mapping[str, tuple[Check, str]], path: str) -> Iterator[str]:
    for steps, (check, shape) in shapes.items():
        value: Any = found
        for step in steps.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        if value is not None and not check(value):
            yield f"{path}{steps} must be {shape}"


def _is_map(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _are_amounts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_amount, value.values()))


def _is_amount(value: Any) -> bool:
    try:
        return isinstance(value, int | str) and quantity.parse(value).value >= 0
    except ValueError:
        return False


def _items(key: str = "") -> tuple[Check, str]:
    """Returns the check for a list of objects, each with a text under `key`."""

    def check(value: Any) -> bool:
        return isinstance(value, list) and all(
            isinstance(item, Mapping) and (not key or isinstance(item.get(key), str)) for item in value
        )

    return check, f"a list of objects with {key}" if key else "a list of objects"


_MAP = (_is_map, "an object")
_AMOUNTS = (_are_amounts, "an object of quantities")

_POD: Mapping[str, tuple[Check, str]] = {
    "imagePullSecrets": _items(),
    "initContainers": _items("name"),
    "nodeSelector": _MAP,
    "securityContext": _MAP,
    "tolerations": _items(),
    "volumes": _items("name"),
}
_CONTAINER: Mapping[str, tuple[Check, str]] = {
    "env": _items("name"),
    "envFrom": _items(),
    "resources": _MAP,
    "resources.limits": _AMOUNTS,
    "resources.requests": _AMOUNTS,
    "securityContext": _MAP,
    "securityContext.capabilities": _MAP,
    "securityContext.capabilities.add": (_is_texts, "a list of strings"),
    "volumeMounts": _items("mountPath"),
}
