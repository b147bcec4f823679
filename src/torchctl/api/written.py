"""Writes what a user wrote as JSON in one form, so that equal specs compare equal. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from torchctl.api import quantity

__all__ = ["canonical", "plain", "without_null"]

Json = dict[str, Any]
_AMOUNTS = ("requests", "limits", "overhead")
_AMOUNT = ("sizeLimit", "divisor")


def plain(model: BaseModel | None, *, nulls_in: str = "") -> Json:
    """Returns what a user wrote, in JSON form, without fields that were left out or are null.

    Args:
        nulls_in: A key under which a null stays, because it takes a default away.
    """
    if model is None:
        return {}
    written: Json = without_null(model.model_dump(mode="json", by_alias=True, exclude_unset=True), keep=nulls_in)
    return written


def canonical(value: Any) -> Any:
    """Returns a part of a pod or a claim with each quantity as the API server writes it back."""
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


def without_null(value: Any, *, keep: str = "") -> Any:
    """Returns a JSON value without keys that are null; the value under the key `keep` stays as it is."""
    if isinstance(value, Mapping):
        kept = {key: item for key, item in value.items() if item is not None or (keep and key == keep)}
        return {key: item if keep and key == keep else without_null(item, keep=keep) for key, item in kept.items()}
    if isinstance(value, list | tuple):
        return [without_null(item, keep=keep) for item in value]
    return value
