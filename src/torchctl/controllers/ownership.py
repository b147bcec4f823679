"""Writes the fields of a status that one controller owns, and removes what others have put there.

Server-side apply removes a field that is no longer applied only if nobody else owns it. Whoever writes over a status,
such as a restored backup, owns the fields that come back with that, and they would stay for ever.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from torchctl.api.conditions import JobCondition
from torchctl.api.jobstatus import JobStatus
from torchctl.api.queueconditions import QueueCondition
from torchctl.api.queuestatus import QueueStatus
from torchctl.runtime.client.client import Client
from torchctl.runtime.kinds import Kind

__all__ = ["apply_status", "own_part", "surplus"]

Json = dict[str, Any]
Status = TypeVar("Status", JobStatus, QueueStatus)
_CONDITIONS = frozenset[str]({*JobCondition, *QueueCondition})
"""The types that are ours."""


async def apply_status(
    client: Client, kind: Kind[Any], body: Json, ours: Callable[[str], bool], *, field_manager: str | None = None
) -> None:
    """Applies a status to the version that `body` names, and removes all else from the fields that are ours.

    Conditions of types that are none of ours stay.
    The removal is a second request, which follows only if somebody else owns such a field. RBAC: patch.

    Args:
        ours: Tells by its name if a field of the status is written by this controller alone.

    Raises:
        Conflict: The object has another uid or version. Nothing was written.
    """
    applied = await client.apply(kind, body, subresource="status", force=True, field_manager=field_manager)
    written = msgspec.to_builtins(applied.status)
    patch = surplus(body["status"], {name: value for name, value in written.items() if ours(name)})
    if patch:
        meta = body["metadata"]
        beyond = {"metadata": {"uid": meta["uid"]}, "status": patch}
        await client.merge_patch(kind, meta["name"], beyond, namespace=meta["namespace"], subresource="status")


def own_part(status: Status) -> Status:
    """Returns a status without the conditions of types that are none of ours."""
    own = tuple(condition for condition in status.conditions if condition.type in _CONDITIONS)
    return status if len(own) == len(status.conditions) else msgspec.structs.replace(status, conditions=own)


def surplus(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> Json:
    """Returns the JSON merge patch that removes from `found` what `wanted` has not; empty if there is nothing.

    Conditions of types that are none of ours stay: whoever has added one keeps it. Of two lists, the items count, not
    their order.
    """
    patch: Json = {}
    for name, value in found.items():
        if isinstance(value, Mapping) and name in wanted:
            beyond = surplus(wanted[name], value)
            patch |= {name: beyond} if beyond else {}
        elif isinstance(value, list | tuple):
            others = [item for item in value if name == "conditions" and item["type"] not in _CONDITIONS]
            kept = [*wanted.get(name, ()), *others]
            if any(item not in kept for item in value):
                patch[name] = kept or None
        elif name not in wanted:
            patch[name] = None
    return patch
