"""Field sets of server-side apply: the fields that a value has, and how values are compared, merged and cut by them.

A path is a tuple of elements as fieldsV1 writes them: `f:name` a field, `k:{...}` the item of a list with these keys,
`v:...` the item of a set. A schema is the OpenAPI schema of a CRD, of which only the `x-kubernetes-` marks count.
Without one, maps are granular and lists are atomic, as the API server treats what it knows nothing about.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "Comparison",
    "Path",
    "Schema",
    "compared",
    "decoded",
    "encoded",
    "fields",
    "merged",
    "named",
    "null_in",
    "outside",
    "removed",
]

Path = tuple[str, ...]
Schema = Mapping[str, Any]
Value = Any

MISSING: Any = object()

_text = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


@dataclass(frozen=True)
class Comparison:
    """The paths in which two values differ."""

    added: set[Path] = field(default_factory=set)
    changed: set[Path] = field(default_factory=set)
    removed: set[Path] = field(default_factory=set)

    def without(self, ignored: Iterable[Path]) -> "Comparison":
        return Comparison(*(outside(paths, ignored) for paths in (self.added, self.changed, self.removed)))


def outside(paths: Iterable[Path], ignored: Iterable[Path]) -> set[Path]:
    """Returns the paths that are not at or below an ignored one."""
    ignored = (*ignored,)
    return {path for path in paths if not any(path[: len(top)] == top for top in ignored)}


def fields(value: Value, schema: Schema, path: Path = ()) -> set[Path]:
    """Returns the paths that an applier of the value owns."""
    if _is_leaf(value, schema):
        return {path}
    found: set[Path] = set()
    for element, child, below in _children(value, schema):
        if child is not None:
            found |= fields(child, below, (*path, element))
        if not _is_declared(element, schema) or child is None or child == {}:
            found.add((*path, element))
    return found


def compared(old: Value, new: Value, schema: Schema) -> Comparison:
    """Returns the paths that differ between two objects."""
    comparison = Comparison()
    _compare(old, new, schema, (), comparison)
    return comparison


def merged(live: Value, applied: Value, schema: Schema) -> Value:
    """Returns the live value with the fields of the applied one."""
    if type(live) is not type(applied) or _is_leaf(applied, schema):
        return applied
    if isinstance(applied, dict):
        result = dict(live)
        for name, child in applied.items():
            below = _below(f"f:{name}", schema)
            result[name] = merged(live[name], child, below) if name in live else child
        return result
    return _merged_list(live, applied, schema)


def removed(value: Value, paths: Iterable[Path], schema: Schema) -> Value:
    """Returns the value without the items at these paths; None if nothing is left of it."""
    here, further = set(), dict[str, list[Path]]()
    for element, *rest in paths:
        if rest:
            further.setdefault(element, []).append((*rest,))
        else:
            here.add(element)
    kept = [
        (element, removed(child, further[element], below) if element in further else child)
        for element, child, below in _children(value, schema)
        if element not in here
    ]
    if isinstance(value, dict):
        return {element[2:]: child for element, child in kept} or None
    return [child for _, child in kept] or None


def null_in(value: Value, schema: Schema, path: str = "") -> str:
    """Returns the path of the first null that a typed field holds, "" if there is none."""
    if value is None:
        return path if "type" in schema and not schema.get("nullable") else ""
    inner: Iterable[tuple[str, Value, Schema]] = ()
    if isinstance(value, dict):
        inner = ((f"{path}.{name}", child, _below(f"f:{name}", schema)) for name, child in value.items())
    elif isinstance(value, list):
        inner = ((f"{path}[{index}]", child, schema.get("items") or {}) for index, child in enumerate(value))
    return next((found for each in inner if (found := null_in(each[1], each[2], each[0]))), "")


def named(paths: Iterable[Path], schema: Schema) -> set[Path]:
    """Returns the paths together with the declared fields that they lead through."""
    found = set(paths)
    for path in paths:
        at = schema
        for index, element in enumerate(path[:-1], 1):
            if element.startswith("f:") and _is_declared(element, at):
                found.add(path[:index])
            at = _below(element, at)
    return found


def encoded(paths: Iterable[Path]) -> dict[str, Any]:
    """Returns the fieldsV1 tree of some paths."""
    tree: dict[str, Any] = {}
    paths = set(paths)
    for path in sorted(paths):
        at = tree
        for element in path:
            at = at.setdefault(element, {})
    for path in paths:
        at = tree
        for element in path:
            at = at[element]
        if at:
            at["."] = {}
    return tree


def decoded(tree: Mapping[str, Any], path: Path = ()) -> set[Path]:
    """Returns the paths of a fieldsV1 tree."""
    if not tree:
        return {path} if path else set()
    found: set[Path] = set()
    for element, below in tree.items():
        found |= {path} if element == "." else decoded(below, (*path, element))
    return found


def _compare(old: Value, new: Value, schema: Schema, path: Path, into: Comparison) -> None:
    if old is new:
        return  # most of an object is shared with its last state
    if all(_is_leaf(value, schema) or not value for value in (old, new)) or _differ_in_form(old, new):
        if old is MISSING:
            into.added.add(path)
        elif new is MISSING:
            into.removed.add(path)
        elif not _same(old, new):
            into.changed.add(path)
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in old.keys() | new.keys():
            left, right = old.get(name, MISSING), new.get(name, MISSING)
            if left is not right:
                element = f"f:{name}"
                _compare(left, right, _below(element, schema), (*path, element), into)
        return
    before = {element: (child, below) for element, child, below in _children(old, schema)}
    after = {element: (child, below) for element, child, below in _children(new, schema)}
    for element in before.keys() | after.keys():
        below = (before.get(element) or after[element])[1]
        left, right = (side.get(element, (MISSING,))[0] for side in (before, after))
        _compare(left, right, below, (*path, element), into)
    if old is MISSING:
        into.added.add(path)
    elif new is MISSING:
        into.removed.add(path)


def _differ_in_form(old: Value, new: Value) -> bool:
    there = [value for value in (old, new) if value is not MISSING and value is not None]
    return len(there) == 2 and type(there[0]) is not type(there[1])


def _merged_list(live: list[Any], applied: list[Any], schema: Schema) -> list[Any]:
    """Merges two sets or lists with keys: shared items in the applied order, before each the live ones that were."""
    ours = {element: child for element, child, _ in _children(live, schema)}
    theirs = {element: child for element, child, _ in _children(applied, schema)}
    shared = [element for element in theirs if element in ours]
    result: dict[str, Any] = {}
    waiting = deque(ours)
    for element, child in theirs.items():
        while waiting and (waiting[0] not in shared or waiting[0] != shared[0]):
            other = waiting.popleft()
            if other not in theirs:
                result[other] = ours[other]
        result[element] = merged(ours[element], child, schema.get("items", {})) if element in ours else child
        if shared and shared[0] == element:
            shared.pop(0)
    for other in waiting:
        result.setdefault(other, ours[other])
    return [*result.values()]


def _is_leaf(value: Value, schema: Schema) -> bool:
    if isinstance(value, dict):
        return bool(schema.get("x-kubernetes-map-type") == "atomic")
    if isinstance(value, list):
        return bool(schema.get("x-kubernetes-list-type", "atomic") == "atomic")
    return value is not MISSING


def _children(value: Value, schema: Schema) -> Iterator[tuple[str, Value, Schema]]:
    if _is_leaf(value, schema) or not isinstance(value, dict | list):
        return
    if isinstance(value, dict):
        for name, child in value.items():
            yield f"f:{name}", child, _below(f"f:{name}", schema)
        return
    keys = schema.get("x-kubernetes-list-map-keys")
    for item in value:
        element = f"k:{_text({key: item[key] for key in keys if key in item})}" if keys else f"v:{_text(item)}"
        yield element, item, _below(element, schema)


def _below(element: str, schema: Schema) -> Schema:
    """Returns the schema of a field or an item."""
    if not element.startswith("f:"):
        return schema.get("items") or {}
    found = schema.get("properties", {}).get(element[2:], schema.get("additionalProperties"))
    return found if isinstance(found, Mapping) else {}


def _is_declared(element: str, schema: Schema) -> bool:
    declared: Mapping[str, Any] = schema.get("properties", {})
    return element.startswith("f:") and element[2:] in declared


def _same(left: Value, right: Value) -> bool:
    """Tells if two values are written alike: 1, 1.0 and true are not."""
    if type(left) is type(right) and isinstance(left, str | int):
        return bool(left == right)
    return _text(left) == _text(right)
