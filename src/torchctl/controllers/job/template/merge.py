"""Merges the parts of a pod by key; the later part wins."""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any

__all__ = ["by_key", "deep", "unique"]

Json = dict[str, Any]


def by_key(key: str, *lists: Iterable[Json]) -> list[Json]:
    """Lists of named things as one: an item replaces the earlier one of its name, in the earlier one's place."""
    merged: dict[Any, Json] = {}
    for items in lists:
        merged.update({item[key]: item for item in items})
    return list(merged.values())


def unique(*lists: Iterable[Any]) -> list[Any]:
    """Lists as one, in order, each item once."""
    merged: list[Any] = []
    for items in lists:
        merged += [item for item in items if item not in merged]
    return merged


def deep(base: Mapping[str, Any], top: Mapping[str, Any]) -> Json:
    """A new `base` with `top` over it, key by key at every depth."""
    merged = deepcopy(dict(base))
    for key, value in top.items():
        below = merged.get(key)
        merged[key] = deep(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged
