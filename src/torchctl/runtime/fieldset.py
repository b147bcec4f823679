"""Reads fieldsV1, the trees in metadata.managedFields that say which fields a manager owns. Pure.

A node names its children by a prefix: `f:name` a field, `k:{...}` the item of a list with these keys, `v:...` the item
of a set. `.` stands for the node itself.

A node without children is owned as a whole if it stands for a plain value, or for a list or map that the schema calls
atomic. But the entry of a map looks the same once somebody else has taken all its fields. Which of the two it is only
the schema knows, and the answer to an apply: nothing is lost in that. So who asks brings what such answers have shown.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

__all__ = ["Path", "Tree", "covers", "extract"]

Tree = Mapping[str, Any]

Path = tuple[str, ...]
"""The nodes that lead to a field. All items of a list with keys have one path, because one schema holds for them."""


def covers(tree: Tree, value: Any, is_atomic: Callable[[Path], bool], path: Path = ()) -> bool:
    """Tells if the tree owns every field of a value, as the API server records it for who applies that value.

    A list that is empty, or holds null, may be missing from the tree although it was applied; then this is False.

    Args:
        tree: The fields that a manager owns.
        value: The value that it applied.
        is_atomic: Tells if the list or map at a path is owned as a whole. It is called for each node without children.
        path: The tree's own path.
    """
    if not tree:
        return isinstance(value, str) or not _leaves_a_trace(value) or is_atomic(path)
    if isinstance(value, Mapping):
        for key, inner in value.items():  # a loop, because each child of each reconcile is compared
            name = f"f:{key}"
            if name not in tree or not covers(tree[name], inner, is_atomic, (*path, name)):
                return False
        return True
    if isinstance(value, Sequence) and not isinstance(value, str):
        return all(_covers_item(tree, index, item, is_atomic, path) for index, item in enumerate(value))
    return True


def extract(tree: Tree, live: Any) -> Any:
    """Returns the part of a live value that a manager owns: to apply it again changes nothing.

    Args:
        tree: The fields that the manager owns.
        live: The value, which has these fields.
    """
    if not tree:
        return live
    if isinstance(live, Mapping):
        return {key: extract(tree[f"f:{key}"], inner) for key, inner in live.items() if f"f:{key}" in tree}
    if isinstance(live, Sequence) and not isinstance(live, str):
        return [part for index, item in enumerate(live) for part in _owned_item(tree, index, item)]
    return live


def _owned_item(tree: Tree, index: int, item: Any) -> list[Any]:
    if not isinstance(item, Mapping):
        return [item] if _is_member(tree, item) or f"i:{index}" in tree else []
    keyed = (child for name, child in tree.items() if name.startswith("k:") and _is_of(name, item))
    return [extract(child, item) for child in keyed][:1]


def _leaves_a_trace(value: Any) -> bool:
    """Tells if a list or map has a plain value in it, which would be a node of its own unless the whole is atomic."""
    if isinstance(value, Mapping):
        return any(map(_is_recorded, value.values()))
    return isinstance(value, Sequence) and not isinstance(value, str) and any(map(_is_recorded, value))


def _is_recorded(value: Any) -> bool:
    return _leaves_a_trace(value) if isinstance(value, Mapping | list | tuple) else value is not None


def _covers_item(tree: Tree, index: int, item: Any, is_atomic: Callable[[Path], bool], path: Path) -> bool:
    if not isinstance(item, Mapping):
        return _is_member(tree, item) or f"i:{index}" in tree
    keyed = (child for name, child in tree.items() if name.startswith("k:") and _is_of(name, item))
    return any(covers(child, item, is_atomic, (*path, "k:")) for child in keyed)


def _is_member(tree: Tree, item: Any) -> bool:
    return any(name.startswith("v:") and msgspec.json.decode(name[2:]) == item for name in tree)


def _is_of(name: str, item: Mapping[str, Any]) -> bool:
    """Tells if the keys in `name` are those of the item. Keys that it leaves to their defaults are not compared."""
    keys = msgspec.json.decode(name[2:])
    present = [key for key in keys if key in item]
    return bool(present) and all(item[key] == keys[key] for key in present)
