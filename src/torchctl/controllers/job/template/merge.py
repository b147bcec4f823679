"""How the parts of a pod are put over each other: by key, the later word wins."""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from pydantic import BaseModel

from torchctl.api import quantity

__all__ = ["by_key", "canonical", "deep", "plain", "unique", "without_null"]

Json = dict[str, Any]
_AMOUNTS = ("requests", "limits", "overhead")
_AMOUNT = ("sizeLimit", "divisor")


def plain(model: BaseModel | None, *, nulls_in: str = "") -> Json:
    """What a user wrote, in JSON form: nothing that was left out, nothing that is null.

    Args:
        nulls_in: A key under which a null stays, because it takes a default away.
    """
    if model is None:
        return {}
    written: Json = without_null(model.model_dump(mode="json", by_alias=True, exclude_unset=True), keep=nulls_in)
    return written


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


def without_null(value: Any, *, keep: str = "") -> Any:
    """A JSON value without the keys of its objects that are null; what is under the key `keep` stays as it is."""
    if isinstance(value, Mapping):
        kept = {key: item for key, item in value.items() if item is not None or (keep and key == keep)}
        return {key: item if keep and key == keep else without_null(item, keep=keep) for key, item in kept.items()}
    if isinstance(value, list | tuple):
        return [without_null(item, keep=keep) for item in value]
    return value


def canonical(value: Any) -> Any:
    """A part of a pod with every quantity as the API server writes it back."""
    if isinstance(value, Mapping):
        return {key: _canonical(key, item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [canonical(item) for item in value]
    return value


def _canonical(key: str, value: Any) -> Any:
    if key in _AMOUNTS and isinstance(value, Mapping) and all(_is_amount(item) for item in value.values()):
        return {name: quantity.canonical(amount) for name, amount in value.items()}
    if key in _AMOUNT and _is_amount(value):
        return quantity.canonical(value)
    return canonical(value)


def _is_amount(value: Any) -> bool:
    try:
        return isinstance(value, int | str) and bool(str(quantity.parse(value)))
    except ValueError:
        return False
