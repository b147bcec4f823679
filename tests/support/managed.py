"""The managedFields entry that an API server keeps of an apply, for tests without one."""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from torchctl.runtime.kinds import OwnedFields

__all__ = ["applied"]


def applied(
    body: Mapping[str, Any], manager: str = "torchctl", atomic: Collection[str] = ()
) -> tuple[OwnedFields, ...]:
    """Returns the entry of an object applied as `body`: lists of things with a name are keyed, other lists are atomic.

    Args:
        body: The object in its JSON form.
        manager: The field manager.
        atomic: Names of fields that are owned as a whole.
    """
    fields = {key: value for key, value in body.items() if key not in ("apiVersion", "kind")}
    return (OwnedFields(manager, msgspec.json.encode(_tree(fields, atomic)).decode()),)


def _tree(value: Any, atomic: Collection[str]) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {f"f:{key}": {} if key in atomic else _tree(inner, atomic) for key, inner in value.items()}
    if isinstance(value, list) and all(isinstance(item, Mapping) and "name" in item for item in value):
        return {f"k:{msgspec.json.encode({'name': item['name']}).decode()}": _tree(item, atomic) for item in value}
    return {}
