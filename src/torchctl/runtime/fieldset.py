"""Reads fieldsV1, the trees in metadata.managedFields that say which fields a manager owns. Pure.

A node names its children by a prefix: `f:name` a field, `k:{...}` the item of a list with these keys, `v:...` the item
of a set. A node without children is owned as a whole: a plain value, or a list or map that the schema calls atomic.
`.` stands for the node itself.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

__all__ = ["Tree", "covers"]

Tree = Mapping[str, Any]


def covers(tree: Tree, value: Any) -> bool:
    """Tells if the tree owns every field of a value, as the API server records it for who applies that value.

    A list that is empty, or holds null, may be missing from the tree although it was applied; then this is False.
    """
    if not tree:
        return True
    if isinstance(value, Mapping):
        return all(f"f:{key}" in tree and covers(tree[f"f:{key}"], inner) for key, inner in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return all(_covers_item(tree, index, item) for index, item in enumerate(value))
    return True


def _covers_item(tree: Tree, index: int, item: Any) -> bool:
    if not isinstance(item, Mapping):
        return _is_member(tree, item) or f"i:{index}" in tree
    return any(name.startswith("k:") and _is_of(name, item) and covers(child, item) for name, child in tree.items())


def _is_member(tree: Tree, item: Any) -> bool:
    return any(name.startswith("v:") and msgspec.json.decode(name[2:]) == item for name in tree)


def _is_of(name: str, item: Mapping[str, Any]) -> bool:
    """Tells if the keys in `name` are those of the item. Keys that it leaves to their defaults are not compared."""
    keys = msgspec.json.decode(name[2:])
    present = [key for key in keys if key in item]
    return bool(present) and all(item[key] == keys[key] for key in present)
