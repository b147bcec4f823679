"""Typed reads and writes. Reads are repeated while that can help; a write is sent once, and only past the fence."""

import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

import msgspec

from torchctl.runtime.client import requests
from torchctl.runtime.client.codec import Codec, Page
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.errors import ApiError, Gone, Malformed, error_for
from torchctl.runtime.client.exchange import (
    ByteStream,
    Gate,
    HttpResponse,
    LineStream,
    PodTransport,
    RequestMetrics,
    Transport,
    UpgradeRefused,
)
from torchctl.runtime.client.requests import HttpRequest, Propagation
from torchctl.runtime.client.retry import RetryPolicy
from torchctl.runtime.client.transport import AiohttpTransport
from torchctl.runtime.client.warnings import Warnings
from torchctl.runtime.client.websocket import WebSocket
from torchctl.runtime.client.writes import Deleted, Written, note_write
from torchctl.runtime.clock import Clock, SystemClock
from torchctl.runtime.kinds import Key, Kind, Object, ObjectMeta
from torchctl.runtime.settings import ClientSettings

__all__ = ["Client", "WriteFence", "connect"]

T = TypeVar("T", bound=Object)
Body = Mapping[str, Any]

LIST_ATTEMPTS = 3
"""The number of attempts to read a list whose continue token expires."""


class WriteFence(Protocol):
    """Decides if writes may be sent now."""

    def check(self) -> None:
        """Raises NotLeader if writes may not be sent."""
        ...


class _Gone(msgspec.Struct, frozen=True):
    """The answer to a delete: the object as it is now, or a Status that names it in its details."""

    class Details(msgspec.Struct, frozen=True):
        uid: str = ""

    metadata: ObjectMeta = ObjectMeta()
    details: Details | None = None


class Client:
    """The API server's objects, typed.

    All methods raise `ApiError` when the server refuses or cannot be asked. Reads of single objects and whole lists
    are repeated after 429, 5xx and lost connections until `retry.deadline_s`; `list_page` and `watch` are not,
    because their callers have a policy of their own. Writes are repeated after a 429 only. Each attempt of a write
    passes the fence immediately before it is sent, and successful writes are noted (see `record_writes`).

    Args:
        transport: Carries the requests.
        codec: Decodes the answers. Share one among clients whose objects are cached, so that these share strings.
        clock: Times the waits between attempts.
        rng: Gives their jitter.
        fence: Holds writes back while this process does not lead; None never does.
        field_manager: The field manager that owns applied fields.
        retry: Number and delays of repeated attempts.
        settings: Deadlines of requests.
        dry_run: All writes are dry runs: the server checks and answers them, and keeps nothing.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        codec: Codec | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        fence: WriteFence | None = None,
        field_manager: str = "torchctl",
        retry: RetryPolicy | None = None,
        settings: ClientSettings | None = None,
        dry_run: bool = False,
    ) -> None:
        self.codec = codec or Codec()
        self.field_manager = field_manager
        self._transport = transport
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self._gate: Gate | None = fence.check if fence is not None else None
        self._retry = retry or RetryPolicy()
        self._settings = settings or ClientSettings()
        self._dry_run = dry_run
        self._warnings = Warnings()

    def __repr__(self) -> str:
        return f"<Client of {self._transport!r} as {self.field_manager}>"

    def unfenced(self) -> "Client":
        """Returns this client without its fence: for the Lease, and for controllers that every replica runs."""
        return self._variant(dry_run=self._dry_run)

    def dry(self) -> "Client":
        """Returns a client whose writes are dry runs. They need no leadership, because nothing is kept."""
        return self._variant(dry_run=True)

    def _variant(self, *, dry_run: bool) -> "Client":
        return Client(
            self._transport,
            codec=self.codec,
            clock=self._clock,
            rng=self._rng,
            field_manager=self.field_manager,
            retry=self._retry,
            settings=self._settings,
            dry_run=dry_run,
        )

    # Reading.

    async def get(self, kind: Kind[T], name: str, namespace: str = "", *, subresource: str = "") -> T:
        """Reads one object, live; with `subresource`, that one in its place (`kind` says what it is). RBAC: get.

        Raises:
            NotFound: There is none.
        """
        request = requests.get(kind, name, namespace, subresource=subresource)
        return self.codec.decode(kind, await self._send(request))

    async def get_raw(self, kind: Kind[Any], name: str, namespace: str = "") -> dict[str, Any]:
        """Reads one object with all its fields, as a dict. RBAC: get."""
        body = await self._send(requests.get(kind, name, namespace))
        return msgspec.json.decode(body, type=dict[str, Any])

    # `list` is a method here, so annotations below it say Sequence.
    async def list(self, kind: Kind[T], *, namespace: str = "", labels: str = "", fields: str = "") -> list[T]:
        """Reads all objects that match, page by page, at one version. RBAC: list.

        Objects that cannot be decoded are left out; `list_page` returns them.
        """
        for attempt in range(1, LIST_ATTEMPTS + 1):
            try:
                return [*await self._pages(kind, namespace, labels, fields)]
            except Gone:
                if attempt == LIST_ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    async def list_raw(self, kind: Kind[Any], *, namespace: str = "", labels: str = "") -> Sequence[dict[str, Any]]:
        """Reads all objects that match with all their fields, as dicts, page by page. RBAC: list."""
        items: list[dict[str, Any]] = []
        continue_ = ""
        while True:
            request = requests.list_page(kind, namespace=namespace, labels=labels, continue_=continue_)
            page = msgspec.json.decode(await self._send(request), type=dict[str, Any])
            # The items of a list do not carry what each would carry alone.
            items += ({"apiVersion": kind.api_version, "kind": kind.kind} | item for item in page["items"] or ())
            continue_ = page["metadata"].get("continue", "")
            if not continue_:
                return items

    async def list_page(
        self,
        kind: Kind[T],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        limit: int = 500,
        continue_: str = "",
        resource_version: str = "",
    ) -> Page[T]:
        """Reads one page with one request, of the newest state unless `resource_version` is set. RBAC: list.

        Raises:
            Gone: The continue token is too old; list again from the start.
        """
        request = requests.list_page(
            kind,
            namespace=namespace,
            labels=labels,
            fields=fields,
            limit=limit,
            continue_=continue_,
            resource_version=resource_version,
        )
        return self.codec.decode_page(kind, await self._attempt(request))

    @asynccontextmanager
    async def watch(
        self,
        kind: Kind[Any],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        resource_version: str = "",
        send_initial_events: bool = False,
        timeout_s: float = 270.0,
    ) -> AsyncGenerator[LineStream]:
        """Opens a stream of changes. Decode its lines with `codec.decode_events`. RBAC: watch.

        Args:
            kind: The kind to watch.
            namespace: Empty for all.
            labels: Label selector.
            fields: Field selector.
            resource_version: Changes after this version; empty starts anywhere.
            send_initial_events: The stream begins with the existing objects and a bookmark.
            timeout_s: Seconds after which the server ends the stream.
        """
        request = requests.watch(
            kind,
            namespace=namespace,
            labels=labels,
            fields=fields,
            resource_version=resource_version,
            send_initial_events=send_initial_events,
            timeout_s=timeout_s,
        )
        async with self._transport.stream(self._limited(request)) as stream:
            if stream.status != 200:
                raise self._refusal(request, stream.status, stream.headers, await stream.read_body())
            yield stream

    # Streams of pods. These are not repeated: whoever reads one knows where to go on.

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncGenerator[ByteStream]:
        """Sends a request, such as one for a log, and yields its answer as a stream of bytes."""
        async with self._pods.stream(self._limited(request)) as stream:
            if stream.status != 200:
                raise self._refusal(request, stream.status, stream.headers, await stream.read_body())
            yield stream

    @asynccontextmanager
    async def upgrade(self, request: HttpRequest, protocol: str) -> AsyncGenerator[WebSocket]:
        """Opens a websocket with this subprotocol. RBAC: see `portforward` and `execstream`."""
        try:
            async with self._pods.upgrade(self._limited(request), protocol) as socket:
                yield socket
        except UpgradeRefused as refused:
            answer = refused.response
            raise self._refusal(request, answer.status, answer.headers, answer.body) from None

    @property
    def _pods(self) -> PodTransport:
        if not isinstance(self._transport, PodTransport):
            raise TypeError(f"{self._transport!r} carries no streams of pods")
        return self._transport

    async def server_version(self) -> str:
        """Returns the version of the API server, such as `v1.36.3`. RBAC: none."""
        body = await self._send(HttpRequest("GET", "/version", "get"))
        return str(msgspec.json.decode(body, type=dict[str, str])["gitVersion"])

    async def pod_log(self, name: str, namespace: str, container: str = "") -> str:
        """Returns a container's log so far. RBAC: get on pods/log."""
        body = await self._send(requests.pod_log(name, namespace, container=container))
        return body.decode(errors="replace")

    # Writing.

    async def create(
        self,
        kind: Kind[T],
        body: Body,
        namespace: str = "",
        *,
        name: str = "",
        subresource: str = "",
        field_manager: str | None = None,
    ) -> T:
        """Creates an object or, with `name` and `subresource`, a subresource such as a pod's `binding`. RBAC: create.

        Raises:
            AlreadyExists: The name is taken.
        """
        request = requests.create(
            kind,
            self.codec.encode(body),
            namespace or _namespace(body),
            name=name,
            subresource=subresource,
            manager=field_manager or self.field_manager,
        )
        return await self._write(kind, request)

    async def apply(
        self,
        kind: Kind[T],
        body: Body,
        *,
        force: bool = False,
        subresource: str = "",
        field_manager: str | None = None,
        dry_run: bool = False,
    ) -> T:
        """Server-side apply: creates the object, or sets our fields of it to those of `body`. RBAC: patch (and create).

        Name and namespace come from the body. With `metadata.uid` it never creates; with `metadata.resourceVersion`
        it changes that version or nothing.

        Raises:
            Conflict: The object has another uid or version or, unless `force`, another manager owns one of the fields.
        """
        request = requests.apply(
            kind,
            body["metadata"]["name"],
            self.codec.encode(body),
            _namespace(body),
            manager=field_manager or self.field_manager,
            force=force,
            subresource=subresource,
            dry_run=dry_run,
        )
        return await self._write(kind, request, note=not dry_run)

    async def merge_patch(
        self, kind: Kind[T], name: str, patch: Body, *, namespace: str = "", subresource: str = ""
    ) -> T:
        """Sends a JSON merge patch; with `metadata.resourceVersion`, it changes only that version. RBAC: patch."""
        body = self.codec.encode(patch)
        request = requests.merge_patch(kind, name, body, namespace, subresource=subresource, manager=self.field_manager)
        return await self._write(kind, request)

    async def json_patch(
        self,
        kind: Kind[T],
        name: str,
        operations: Sequence[Body],
        *,
        namespace: str = "",
        subresource: str = "",
    ) -> T:
        """Sends a JSON patch (RFC 6902). A `test` operation guards it: if one fails, nothing changes. RBAC: patch.

        Raises:
            Invalid: A test failed, or a path does not exist.
        """
        body = self.codec.encode(operations)
        request = requests.json_patch(kind, name, body, namespace, subresource=subresource, manager=self.field_manager)
        return await self._write(kind, request)

    async def replace(self, kind: Kind[T], body: Body, *, subresource: str = "") -> T:
        """Replaces a whole object, if it still has the version that `body` names. RBAC: update.

        Raises:
            Conflict: The object has another version.
        """
        request = requests.replace(
            kind,
            body["metadata"]["name"],
            self.codec.encode(body),
            _namespace(body),
            subresource=subresource,
            manager=self.field_manager,
        )
        return await self._write(kind, request)

    async def delete(
        self,
        kind: Kind[Any],
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation = "Background",
        grace_seconds: int | None = None,
    ) -> None:
        """Deletes one object, if it has this uid and version. RBAC: delete.

        Raises:
            NotFound: There is none.
            Conflict: It has another uid or version.
        """
        options = requests.delete_options(
            uid=uid, resource_version=resource_version, propagation=propagation, grace_s=grace_seconds
        )
        body = await self._send(requests.delete(kind, name, self.codec.encode(options), namespace))
        if not self._dry_run:
            note_write(Deleted(kind, Key(namespace, name), uid or _uid(body)))

    async def delete_collection(
        self,
        kind: Kind[Any],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        propagation: Propagation = "Background",
    ) -> None:
        """Deletes all objects that match with one request. Not noted for the barrier. RBAC: deletecollection."""
        body = self.codec.encode(requests.delete_options(propagation=propagation))
        await self._send(requests.delete_collection(kind, body, namespace, labels=labels, fields=fields))

    # Sending.

    async def _write(self, kind: Kind[T], request: HttpRequest, *, note: bool = True) -> T:
        note = note and not self._dry_run
        body = await self._send(request)
        try:
            obj = self.codec.decode(kind, body)
        except Malformed:  # the write is committed all the same
            if note:
                _note(kind, self.codec.metadata(body))
            raise
        if note:
            _note(kind, obj.metadata)
        return obj

    async def _pages(self, kind: Kind[T], namespace: str, labels: str, fields: str) -> Sequence[T]:
        items: list[T] = []
        continue_ = ""
        while True:
            request = requests.list_page(kind, namespace=namespace, labels=labels, fields=fields, continue_=continue_)
            page = self.codec.decode_page(kind, await self._send(request))
            items += page.items
            continue_ = page.continue_
            if not continue_:
                return items

    async def _send(self, request: HttpRequest) -> bytes:
        """Sends a request until it succeeds or fails in a way that no retry can help."""
        began, attempt = self._clock.monotonic(), 0
        while True:
            attempt += 1
            try:
                return await self._attempt(request)
            except ApiError as error:
                wait_s = self._retry.delay(
                    error,
                    write=request.is_write,
                    attempt=attempt,
                    elapsed_s=self._clock.monotonic() - began,
                    jitter=self._rng.random(),
                )
                if wait_s is None:
                    raise
            await self._clock.sleep(wait_s)

    async def _attempt(self, request: HttpRequest) -> bytes:
        gate = self._gate if request.is_write else None
        if self._dry_run and request.is_write:
            request = requests.dry(request)
        response: HttpResponse = await self._transport.send(self._limited(request), gate)
        if "Warning" in response.headers:
            self._warnings.log(response.headers, request)
        if 200 <= response.status < 300:
            return response.body
        raise self._refusal(request, response.status, response.headers, response.body)

    def _limited(self, request: HttpRequest) -> HttpRequest:
        """Returns the request with its deadline."""
        settings = self._settings
        if request.is_write:
            timeout_s = settings.write_timeout_s
        else:
            timeout_s = settings.list_timeout_s if request.is_bulk else settings.read_timeout_s
        return msgspec.structs.replace(request, timeout_s=timeout_s)

    def _refusal(self, request: HttpRequest, status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
        return error_for(status, body, headers, now=self._clock.now(), write=request.is_write)


def _note(kind: Kind[Any], meta: ObjectMeta) -> None:
    if meta.resource_version:
        key = Key(meta.namespace, meta.name)
        note_write(Written(kind, key, meta.uid, meta.resource_version, meta.labels))


@asynccontextmanager
async def connect(
    connection: Connection,
    *,
    metrics: RequestMetrics | None = None,
    fence: WriteFence | None = None,
    clock: Clock | None = None,
    user_agent: str = "torchctl",
    field_manager: str = "torchctl",
    settings: ClientSettings | None = None,
    retry: RetryPolicy | None = None,
) -> AsyncGenerator[Client]:
    """Yields a client of the API server at `connection`. Its transport is closed at the end of the block."""
    async with AiohttpTransport(
        connection, metrics=metrics, clock=clock, user_agent=user_agent, settings=settings
    ) as transport:
        yield Client(transport, fence=fence, clock=clock, field_manager=field_manager, settings=settings, retry=retry)


def _namespace(body: Body) -> str:
    namespace: str = body["metadata"].get("namespace", "")
    return namespace


def _uid(body: bytes) -> str:
    try:
        answer = msgspec.json.decode(body, type=_Gone)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    return answer.details.uid if answer.details is not None else answer.metadata.uid
