"""The client: typed reads and writes of any kind.

Reads are repeated on 429, 5xx and connection errors, with back-off, until a deadline. A write is repeated only
where the server turned it away unseen (429): after any other failure its outcome may be unknown, and only a
reconcile that reads first may decide to write again. Every write passes the fence right before it is sent.
"""

import builtins
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar

import msgspec

from torchctl.runtime.client import requests
from torchctl.runtime.client.codec import Codec, Page
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.errors import ApiError, Gone, error_for
from torchctl.runtime.client.requests import HttpRequest
from torchctl.runtime.client.retry import RetryPolicy
from torchctl.runtime.client.transport import AiohttpTransport, HttpResponse, LineStream, Transport
from torchctl.runtime.client.writes import Deleted, Written, note_write
from torchctl.runtime.clock import Clock, SystemClock
from torchctl.runtime.kinds import Key, Kind, Object
from torchctl.runtime.metrics import Metrics

__all__ = ["Client", "Fenced", "Reader", "Writer", "connect"]

T = TypeVar("T", bound=Object)

LIST_ATTEMPTS = 3
"""How often a list begins anew because its continue token expired."""


class Fenced(Protocol):
    """What decides whether this process may write."""

    def check(self) -> None:
        """Raises NotLeader where it may not."""
        ...


class Reader(Protocol):
    """The reads that a reconciler needs."""

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T: ...


class Writer(Protocol):
    """The writes that a reconciler needs."""

    async def apply(
        self, kind: Kind[T], body: Mapping[str, Any], *, force: bool = False, subresource: str = ""
    ) -> T: ...

    async def delete(self, kind: Kind[Any], name: str, *, namespace: str = "", uid: str = "") -> None: ...


class Client:
    """Talks to one API server. RBAC: what each call does to the kind it names."""

    def __init__(
        self,
        transport: Transport,
        *,
        codec: Codec | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        fence: Fenced | None = None,
        retry: RetryPolicy | None = None,
        field_manager: str = "torchctl",
    ) -> None:
        self.codec = codec if codec is not None else Codec()
        self.field_manager = field_manager
        self._transport = transport
        self._clock = clock if clock is not None else SystemClock()
        self._rng = rng if rng is not None else random.Random()
        self._fence = fence
        self._retry = retry if retry is not None else RetryPolicy()

    def __repr__(self) -> str:
        return f"<Client over {self._transport!r}>"

    def unfenced(self) -> "Client":
        """The same client without its fence, for the writes that decide who leads."""
        return Client(
            self._transport, codec=self.codec, clock=self._clock, rng=self._rng, field_manager=self.field_manager
        )

    # Reads.

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T:
        """A live read.

        Raises:
            NotFound: There is no such object, or no such kind.
            ApiError: The server refused, or gave no answer in time.
        """
        response = await self._repeat(requests.get(kind, name, namespace))
        return self._decode(kind, response)

    async def get_raw(self, kind: Kind[Any], name: str, namespace: str = "") -> dict[str, Any]:
        """A live read of the whole object in its JSON form, with all its fields."""
        response = await self._repeat(requests.get(kind, name, namespace))
        raw: dict[str, Any] = msgspec.json.decode(response.body)
        return raw

    async def list(self, kind: Kind[T], *, namespace: str = "", labels: str = "", fields: str = "") -> list[T]:
        """A consistent list of all pages. Objects that cannot be decoded are left out."""
        for attempt in range(LIST_ATTEMPTS):
            try:
                return await self._all_pages(kind, namespace=namespace, labels=labels, fields=fields)
            except Gone:
                if attempt == LIST_ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

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
        """One page, asked for once: a caller with a policy of its own decides about repeating."""
        request = requests.list_page(
            kind,
            namespace=namespace,
            labels=labels,
            fields=fields,
            limit=limit,
            continue_=continue_,
            resource_version=resource_version,
        )
        response = await self._once(request)
        return self.codec.decode_page(kind, response.body)

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
    ) -> AsyncIterator[LineStream]:
        """The lines of a watch, for `codec.decode_event`.

        Raises:
            ApiError: The server did not begin it.
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
        async with self._transport.stream(request) as stream:
            if stream.status >= 300:
                raise self._error(request, HttpResponse(stream.status, stream.headers, await stream.read_body()))
            yield stream

    async def pod_log(self, name: str, namespace: str, container: str = "") -> str:
        """The log of a container so far."""
        response = await self._repeat(requests.pod_log(name, namespace, container=container))
        return response.body.decode(errors="replace")

    # Writes.

    async def create(
        self, kind: Kind[T], body: Mapping[str, Any], namespace: str = "", *, name: str = "", subresource: str = ""
    ) -> T:
        """Creates an object, or calls a subresource of one (a pod's `binding`, `eviction`).

        Raises:
            AlreadyExists: The name is taken.
        """
        request = requests.create(
            kind,
            self.codec.encode(body),
            namespace or body["metadata"].get("namespace", ""),
            name=name,
            subresource=subresource,
            manager=self.field_manager,
        )
        return await self._write(kind, request)

    async def apply(
        self,
        kind: Kind[T],
        body: Mapping[str, Any],
        *,
        force: bool = False,
        subresource: str = "",
        field_manager: str | None = None,
        dry_run: bool = False,
    ) -> T:
        """Server-side apply: creates the object, or gives it these fields. Name and namespace are the body's.

        With `metadata.uid` in the body only that very object is changed, with `metadata.resourceVersion` only
        that very state of it; else Conflict.
        """
        meta = body["metadata"]
        request = requests.apply(
            kind,
            meta["name"],
            self.codec.encode(body),
            meta.get("namespace", ""),
            manager=field_manager or self.field_manager,
            force=force,
            subresource=subresource,
            dry_run=dry_run,
        )
        return await self._write(kind, request, dry_run=dry_run)

    async def merge_patch(
        self, kind: Kind[T], name: str, patch: Mapping[str, Any], *, namespace: str = "", subresource: str = ""
    ) -> T:
        """JSON merge patch (RFC 7386)."""
        request = requests.merge_patch(
            kind, name, self.codec.encode(patch), namespace, subresource=subresource, manager=self.field_manager
        )
        return await self._write(kind, request)

    async def json_patch(
        self, kind: Kind[T], name: str, patch: Sequence[Any], *, namespace: str = "", subresource: str = ""
    ) -> T:
        """JSON patch (RFC 6902)."""
        request = requests.json_patch(
            kind, name, self.codec.encode(patch), namespace, subresource=subresource, manager=self.field_manager
        )
        return await self._write(kind, request)

    async def replace(self, kind: Kind[T], body: Mapping[str, Any], *, subresource: str = "") -> T:
        """PUT. With `metadata.resourceVersion` in the body, Conflict where somebody else wrote meanwhile."""
        meta = body["metadata"]
        request = requests.replace(
            kind,
            meta["name"],
            self.codec.encode(body),
            meta.get("namespace", ""),
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
        propagation: requests.Propagation = "Background",
        grace_seconds: int | None = None,
    ) -> None:
        """Deletes exactly the object with this uid and version, where they are given.

        Raises:
            NotFound: It is gone already.
            Conflict: The object of that name is another one, or another state of it.
        """
        options = requests.delete_options(
            uid=uid, resource_version=resource_version, propagation=propagation, grace_s=grace_seconds
        )
        await self._repeat(requests.delete(kind, name, self.codec.encode(options), namespace))
        note_write(Deleted(kind, Key(namespace, name), uid))

    # Sending.

    async def _all_pages(self, kind: Kind[T], *, namespace: str, labels: str, fields: str) -> builtins.list[T]:
        items: list[T] = []
        continue_ = ""
        while True:
            request = requests.list_page(kind, namespace=namespace, labels=labels, fields=fields, continue_=continue_)
            page = self.codec.decode_page(kind, (await self._repeat(request)).body)
            items.extend(page.items)
            continue_ = page.continue_
            if not continue_:
                return items

    async def _write(self, kind: Kind[T], request: HttpRequest, *, dry_run: bool = False) -> T:
        obj = self._decode(kind, await self._repeat(request))
        meta = obj.metadata
        if not dry_run:
            note_write(Written(kind, Key(meta.namespace, meta.name), meta.uid, meta.resource_version))
        return obj

    async def _repeat(self, request: HttpRequest) -> HttpResponse:
        began, attempt = self._clock.monotonic(), 0
        while True:
            self._check_fence(request)
            try:
                return await self._once(request)
            except ApiError as error:
                attempt += 1
                await self._rest_before(request, error, attempt, self._clock.monotonic() - began)

    def _check_fence(self, request: HttpRequest) -> None:
        if request.is_write and self._fence is not None:
            self._fence.check()

    async def _rest_before(self, request: HttpRequest, error: ApiError, attempt: int, elapsed_s: float) -> None:
        """Waits before the next attempt, or raises `error` where there is to be none."""
        delay_s = self._retry.delay(
            error, write=request.is_write, attempt=attempt, elapsed_s=elapsed_s, jitter=self._rng.random()
        )
        if delay_s is None:
            raise error
        await self._clock.sleep(delay_s)

    async def _once(self, request: HttpRequest) -> HttpResponse:
        response = await self._transport.send(request)
        if response.status >= 300:
            raise self._error(request, response)
        return response

    def _error(self, request: HttpRequest, response: HttpResponse) -> ApiError:
        return error_for(
            response.status, response.body, response.headers, now=self._clock.now(), write=request.is_write
        )

    def _decode(self, kind: Kind[T], response: HttpResponse) -> T:
        return self.codec.decode(kind, response.body)


@asynccontextmanager
async def connect(
    connection: Connection,
    *,
    metrics: Metrics | None = None,
    fence: Fenced | None = None,
    clock: Clock | None = None,
    user_agent: str = "torchctl",
    field_manager: str = "torchctl",
) -> AsyncIterator[Client]:
    """A client over a transport of its own, closed at the end."""
    async with AiohttpTransport(connection, metrics=metrics, clock=clock, user_agent=user_agent) as transport:
        yield Client(transport, fence=fence, clock=clock, field_manager=field_manager)
