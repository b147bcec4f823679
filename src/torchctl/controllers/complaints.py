"""Reads which fields an API server's answer complains of, and names list items by key instead of index. Pure.

If an apply does not have the shape of its kind, the answer is a text that names items of lists by their keys.
Validation answers with causes that name them by their index, which a person who has not seen
the object cannot count.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from torchctl.controllers.finding import Complaint
from torchctl.runtime.client.errors import ApiError, Invalid

__all__ = ["STEP", "UNREADABLE_MARK", "below", "complaints", "is_unreadable"]

UNREADABLE_MARK = "failed to create typed patch object"
"""The start of the API server's answer, with status 500, to an apply that does not have the shape of its kind: it has a
field that the kind does not know, or text in place of a number. Another try does no better."""
STEP = r"\.[\w-]+|\[[^\]\n]{0,1100}\]"
"""A step of a path: a field, the key of a map, or an item of a list by index or by `key="value"`."""
_COMPLAINT = re.compile(rf"(?<!\S)((?:{STEP})++): ([^\n;]+)")
"""A field and what is wrong with it, of which an answer has one, or one in each line."""
_LONGEST = 4096
"""Characters of an answer that are read: names of fields are in it as a user wrote them."""
_MOST = 8
"""Fields of one answer that are read."""
_KEYS = ("name", "mountPath")
"""Keys that name the items of a pod's lists."""


def is_unreadable(error: Exception) -> bool:
    """Whether the API server refused an apply because it does not have the shape of its kind."""
    return isinstance(error, ApiError) and error.code == 500 and error.message.startswith(UNREADABLE_MARK)


def complaints(error: Exception, body: Mapping[str, Any]) -> tuple[Complaint, ...]:
    """The fields that an answer names; empty if it names none.

    Args:
        body: What was sent.
    """
    if isinstance(error, ApiError) and is_unreadable(error):
        found = _COMPLAINT.findall(error.message.partition(UNREADABLE_MARK)[2][:_LONGEST])
        return tuple(Complaint(path, wrong) for path, wrong in found)
    if not isinstance(error, Invalid) or error.details is None:
        return ()
    causes = [cause for cause in error.details.causes[:_MOST] if cause.field and len(cause.field) <= _LONGEST]
    return tuple(Complaint("".join(_named(f".{cause.field}", body)), cause.message) for cause in causes)


def below(value: Any, step: str) -> Any:
    """Returns the value at a step of a path, or None. List items go by index, map keys by name in brackets."""
    inner = step[1:-1] if step.startswith("[") else step[1:]
    if isinstance(value, Mapping):
        return value.get(inner)
    listed = isinstance(value, list) and inner.isdecimal() and len(inner) < 6 and int(inner) < len(value)
    return value[int(inner)] if listed else None


def _named(path: str, body: Any) -> Iterator[str]:
    """The steps of a path, with the name of an item in the place of its index."""
    value = body
    for step in re.findall(STEP, path):
        inside, value = isinstance(value, list), below(value, step)
        key = next((key for key in _KEYS if isinstance(value, Mapping) and key in value), "") if inside else ""
        yield f'[{key}="{value[key]}"]' if key else step
