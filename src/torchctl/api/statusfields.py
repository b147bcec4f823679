"""Descriptions and bounds of status fields, for the schema alone: the operator reads a status without checking them."""

from collections.abc import Sequence
from typing import Any

from msgspec import Meta

__all__ = [
    "AMOUNT",
    "CONDITIONS",
    "COUNTED",
    "NODE_NAME",
    "OBSERVED_GENERATION",
    "SHOWN",
    "count",
    "flag",
    "listed",
    "mapping",
    "moment",
    "nested",
    "node_names",
    "text",
    "turn",
]

_MAX_COUNT = 2**31 - 1
SHOWN = "x-shown"
"""Marks a field whose zero the API server writes out, so that a column of `kubectl get` shows it."""


def _meta(description: str, **schema: Any) -> Meta:
    return Meta(description=description, extra_json_schema=schema)


def text(description: str, *, max_length: int = 253, enum: Sequence[str] = ()) -> Meta:
    """A string of at most `max_length` characters, or one of `enum`."""
    return _meta(description, enum=list(enum)) if enum else _meta(description, maxLength=max_length)


def count(description: str, *, minimum: int = 0, maximum: int = _MAX_COUNT, shown: bool = False) -> Meta:
    """A whole number."""
    shown_as: dict[str, Any] = {SHOWN: True} if shown else {}
    return _meta(description, minimum=minimum, maximum=maximum, **shown_as)


def flag(description: str) -> Meta:
    """A boolean."""
    return _meta(description)


def moment(description: str) -> Meta:
    """A time, RFC 3339."""
    return _meta(description, format="date-time")


def mapping(description: str) -> Meta:
    """A small map."""
    return _meta(description, maxProperties=64)


def listed(description: str) -> Meta:
    """A small list that each write replaces as a whole."""
    return _meta(description, maxItems=64, **{"x-kubernetes-list-type": "atomic"})


def turn(description: str) -> Meta:
    """A policy's count of turns, which goes far beyond other counts."""
    return _meta(description, minimum=0, maximum=2**62, format="int64")


def node_names(description: str) -> Meta:
    """Names of nodes; each write replaces them as a whole."""
    return _meta(description, maxItems=1024, **{"x-kubernetes-list-type": "atomic"})


def nested(*, shown: bool = False) -> Meta:
    """An object, described by its own type.

    It is atomic, because server-side apply would leave null behind if all fields of a granular object go.
    """
    shown_as: dict[str, Any] = {SHOWN: True} if shown else {}
    return Meta(extra_json_schema={"x-kubernetes-map-type": "atomic", **shown_as})


AMOUNT = Meta(extra_json_schema={"maxLength": 64})
"""A quantity, as the value of a map."""
NODE_NAME = Meta(extra_json_schema={"maxLength": 253})
"""A node's name, as an item of a list."""
COUNTED = Meta(extra_json_schema={"minimum": 0, "maximum": _MAX_COUNT})
"""A whole number, as the value of a map."""
OBSERVED_GENERATION = _meta(
    "metadata.generation of the spec that this status is about.", minimum=0, maximum=2**53, format="int64"
)
CONDITIONS = _meta(
    "Each step of the way and how it stands; phase and columns derive from them.",
    maxItems=16,
    **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
)
