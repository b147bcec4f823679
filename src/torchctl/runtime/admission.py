"""Admission reviews: what the API server asks a webhook, and how it is answered. Pure.

    async def sized(asked: Admission[Thing]) -> None:
        if asked.object is not None and asked.object.spec.size > 10:
            raise Denied("spec.size: at most 10")

is a validator. A mutator returns the object, in its JSON form, as it should be; None leaves it as it is.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from torchctl.runtime.client.codec import Codec
from torchctl.runtime.client.errors import Malformed
from torchctl.runtime.kinds import Kind, Object

__all__ = ["Admission", "Denied", "Mutator", "Validator", "allowed", "denied", "read", "steps"]

T = TypeVar("T", bound=Object)


class Denied(Exception):
    """Raised by a handler: the request is refused, and its user gets this message.

    Attributes:
        code: The HTTP status that the user's request ends with.
    """

    def __init__(self, message: str, *, code: int = 403) -> None:
        super().__init__(message)
        self.code = code


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    groups: tuple[str, ...] = ()


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    operation: str
    name: str = ""
    namespace: str = ""
    sub_resource: str = ""
    dry_run: bool = False
    user_info: _User = _User()
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")


class _Review(msgspec.Struct, frozen=True):
    request: _Request


@dataclass(frozen=True, slots=True)
class Admission(Generic[T]):
    """One question of the API server.

    Attributes:
        uid: Identifies the question.
        operation: CREATE, UPDATE, DELETE or CONNECT.
        object: The object as it would be; None for a DELETE.
        old: The object as it is; None for a CREATE.
        body: `object` with all its fields, in its JSON form.
        dry_run: Nothing will be kept: have no side effects.
    """

    uid: str
    operation: str
    name: str
    namespace: str
    subresource: str
    username: str
    groups: tuple[str, ...]
    dry_run: bool
    object: T | None
    old: T | None
    body: Mapping[str, Any] | None


Validator = Callable[[Admission[Any]], Awaitable[Sequence[str] | None]]
"""Raises `Denied`, or returns warnings for the user, if any."""

Mutator = Callable[[Admission[Any]], Awaitable[Mapping[str, Any] | None]]
"""Returns the object as it should be, or None; raises `Denied`."""


def read(codec: Codec, kind: Kind[T], body: bytes) -> Admission[T]:
    """Reads a review.

    Raises:
        ValueError: It is no AdmissionReview.
        Malformed: The object does not fit the kind's type.
    """
    try:
        asked = msgspec.json.decode(body, type=_Review).request
    except msgspec.MsgspecError as error:
        raise ValueError(f"no AdmissionReview: {error}") from error

    def typed(raw: msgspec.Raw) -> T | None:
        return None if bytes(raw) == b"null" else codec.decode(kind, bytes(raw))

    try:
        new, old = typed(asked.object), typed(asked.old_object)
    except Malformed as error:
        raise Malformed(f"{kind.kind} {asked.name}: {error.message}") from error
    return Admission(
        uid=asked.uid,
        operation=asked.operation,
        name=asked.name,
        namespace=asked.namespace,
        subresource=asked.sub_resource,
        username=asked.user_info.username,
        groups=asked.user_info.groups,
        dry_run=asked.dry_run,
        object=new,
        old=old,
        body=msgspec.json.decode(asked.object),
    )


def allowed(uid: str, *, warnings: Sequence[str] = (), patch: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Builds the answer that lets a request pass, with changes if there are any."""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if warnings:
        response["warnings"] = [*warnings]
    if patch:
        response |= {"patchType": "JSONPatch", "patch": msgspec.json.encode(patch)}  # bytes are base64 in JSON
    return _review(response)


def denied(uid: str, error: Denied) -> dict[str, Any]:
    """Builds the answer that refuses a request."""
    return _review({"uid": uid, "allowed": False, "status": {"code": error.code, "message": str(error)}})


def steps(before: Any, after: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """Yields the JSON patch that makes `after` of `before`. Lists are replaced as a whole."""
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        if before != after:
            yield {"op": "replace", "path": path, "value": after}
        return
    for name in before:
        if name not in after:
            yield {"op": "remove", "path": f"{path}/{_escaped(name)}"}
    for name, value in after.items():
        below = f"{path}/{_escaped(name)}"
        if name in before:
            yield from steps(before[name], value, below)
        else:
            yield {"op": "add", "path": below, "value": value}


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _review(response: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
