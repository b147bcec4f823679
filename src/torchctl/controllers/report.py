"""Writes a derived status if it changed, to the version that it was derived from, and records Events."""

import re
from collections.abc import Iterable
from typing import Any, Protocol

import msgspec
import structlog

from torchctl.controllers.ownership import apply_status, own_part
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import ApiError, NotFound
from torchctl.runtime.events import EventRecorder
from torchctl.runtime.kinds import Kind, ObjectMeta, ObjectReference

__all__ = ["Reporter", "reference", "undeclared_field"]

log = structlog.get_logger("torchctl.controllers")


_OTHERS = frozenset({"admission"})
"""Fields of a status that another controller writes, under a field manager of its own."""


def _is_ours(field: str) -> bool:
    return field not in _OTHERS


class Reported(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def status(self) -> Any: ...


def reference(kind: Kind[Any], meta: ObjectMeta) -> ObjectReference:
    """Returns the reference by which an Event names the object."""
    return ObjectReference(
        kind=kind.kind, namespace=meta.namespace, name=meta.name, uid=meta.uid, api_version=kind.api_version
    )


def undeclared_field(message: str) -> str | None:
    """Returns the field that the CRD lacks, if that is why the API server refuses an apply.

    It refuses the whole apply then, with code 500, as often as it is sent.
    """
    found = re.search(r"\.(\S+): field not declared in schema", message)
    return found[1] if found else None


class Reporter:
    """Writes the status of objects, and Events about them."""

    def __init__(self, client: Client, events: EventRecorder) -> None:
        self._client = client
        self._events = events
        self._older: set[str] = set()
        """Kinds whose CRD is older than the operator, which is logged once."""

    async def report(
        self, kind: Kind[Any], obj: Reported, status: msgspec.Struct, events: Iterable[tuple[str, str, str]]
    ) -> None:
        """Applies `status` unless it is what the object has beside conditions of others, then records the Events.

        Raises:
            Conflict: The object has changed since it was read. Nothing was written, and no Event recorded.
            ApiError: The API server refused the write, or could not be reached.
        """
        if status == own_part(obj.status):
            return
        meta = obj.metadata
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {
                "name": meta.name,
                "namespace": meta.namespace,
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
            },
            "status": {key: value for key, value in msgspec.to_builtins(status).items() if _is_ours(key)},
        }
        try:
            await apply_status(self._client, kind, body, _is_ours)
        except NotFound:
            return  # deleted since it was read, and with it everybody who wants to know
        except ApiError as error:
            self._say_if_older(kind, error)
            raise
        for type_, reason, message in events:
            log.info(message, kind=kind.kind, reason=reason, type=type_)
            self._events.event(reference(kind, meta), type_, reason, message)

    def _say_if_older(self, kind: Kind[Any], error: ApiError) -> None:
        field = undeclared_field(error.message)
        if field is None or kind.kind in self._older:
            return
        self._older.add(kind.kind)
        crd = f"{kind.plural}.{kind.group}"
        log.error("the CRD is older than the operator: apply config/crd", kind=kind.kind, crd=crd, lacks=field)
