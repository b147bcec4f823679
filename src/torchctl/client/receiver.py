"""Speaks to a receiver: one method a request, each with a deadline, and its errors in three kinds."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator
from types import TracebackType
from typing import Any, TypeVar, TypeVarTuple, Unpack

import aiohttp
import anyio
import msgspec

from torchctl.client.compressed import Compressed, Packer, Plain, whole
from torchctl.client.errors import RequestRefused, one_line
from torchctl.workspace.core import Limits
from torchctl.workspace.frames import ENCODING, ENCODINGS

__all__ = ["Answer", "Gone", "Receiver", "Retry", "State", "bounded"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_STATE_S = 20.0
_CALL_S = 90.0
_PLAN_S = 600.0
"""The receiver hashes what it has already before it says what is missing."""
_STALL_S = 90.0
_MAX_ANSWER = 16 * 2**20


class Retry(Exception):
    """The connection broke, or the receiver is not there yet: the same request may work in a moment."""


class Gone(Exception):
    """The receiver does not know the upload: it was replaced, or its store lost content. Send the manifest again."""


class Answer(msgspec.Struct, frozen=True):
    """What the receiver says of a tree; of an error `code` and `message` too."""

    state: str = ""
    offset: int = 0
    size: int = 0
    missing: list[int] = []
    revision: str = ""
    code: str = ""
    message: str = ""
    next_step: str = ""


class _Limits(msgspec.Struct, frozen=True):
    max_bytes: int
    max_entries: int
    max_path: int


class State(msgspec.Struct, frozen=True):
    """What a receiver says of itself."""

    version: int
    limits: _Limits
    published: str = ""
    encodings: tuple[str, ...] = ()

    @property
    def accepted(self) -> Limits:
        limits = self.limits
        return Limits(max_bytes=limits.max_bytes, max_entries=limits.max_entries, max_path=limits.max_path)


class Receiver:
    """A receiver at `url`. Use it as an asynchronous context manager.

    Attributes:
        compresses: The receiver takes compressed content, and this Python can make it; known after `state()`.

    Raises:
        Retry: the connection broke, or the answer did not come in time.
        Gone: the upload is not known (any more).
        RequestRefused: the receiver refuses the tree or the token, or another upload is under way.
    """

    def __init__(self, url: str, token: str) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"}
        self._http: aiohttp.ClientSession | None = None
        self.compresses = False

    async def __aenter__(self) -> "Receiver":
        # No proxies: the address is of this machine.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=20)
        self._http = aiohttp.ClientSession(
            headers=self._headers, timeout=timeout, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http:
            await self._http.close()

    async def state(self) -> State:
        """Ask for it before anything is sent: it says whether that may be compressed."""
        status, content = await self._call("GET", "/v1/state", _STATE_S)
        _check(status, _decoded(Answer, content))
        state = _decoded(State, content)
        self.compresses = ENCODING in ENCODINGS and ENCODING in state.encodings
        return state

    async def wish(self, revision: str, *, restart: bool) -> None:
        """Tell the companion of a running job whether programs are started again with a tree that is sent next."""
        content = msgspec.json.encode({"revision": revision, "restart": restart})
        status, answer = await self._call("PUT", "/v1/launchers", _STATE_S, data=content)
        _check(status, _decoded(Answer, answer))

    async def put(self, tree: str, manifest: bytes) -> Answer:
        """Send the manifest, or nothing if the receiver has it from before; the answer says what is missing."""
        body: dict[str, Any] = {"data": manifest}
        if manifest and self.compresses:
            body = {"data": await asyncio.to_thread(whole, manifest), "headers": {"Content-Encoding": ENCODING}}
        return await self._ask("PUT", f"/v1/trees/{tree}", _PLAN_S, **body)

    async def look(self, tree: str) -> Answer:
        return await self._ask("GET", f"/v1/trees/{tree}")

    async def commit(self, tree: str) -> Answer:
        return await self._ask("POST", f"/v1/trees/{tree}/commit")

    async def leave(self, tree: str) -> None:
        """Give up the upload, or confirm that it is published."""
        with contextlib.suppress(Retry):
            await self._call("DELETE", f"/v1/trees/{tree}", 5.0)

    async def send(
        self,
        tree: str,
        offset: int,
        size: int,
        chunks: Iterator[bytes],
        sent: Callable[[int], None],
        *,
        compress: bool = True,
    ) -> Answer:
        """Send content from an offset to the end, compressed if the receiver takes that.

        `sent` is told of the content's bytes that are on their way.
        """
        compress = compress and self.compresses
        stream = _Stream(chunks, Compressed() if compress else Plain(), sent)
        length = {"Content-Encoding": ENCODING} if compress else {"Content-Length": str(size - offset)}
        headers = {"Upload-Offset": str(offset), **length}
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + _STALL_S) as stream.scope:
                return await self._ask("PATCH", f"/v1/trees/{tree}", None, data=stream.chunks(), headers=headers)
            raise Retry(f"nothing was taken for {_STALL_S:g} s")
        except Retry:
            if stream.error:
                raise stream.error from None
            raise
        finally:
            await stream.close()

    async def _ask(self, method: str, path: str, timeout_s: float | None = _CALL_S, **more: Any) -> Answer:
        status, content = await self._call(method, path, timeout_s, **more)
        answer = _decoded(Answer, content)
        if answer.code != "offset":
            _check(status, answer)
        return answer

    async def _call(self, method: str, path: str, timeout_s: float | None, **more: Any) -> tuple[int, bytes]:
        assert self._http is not None
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._http.request(method, self._url + path, allow_redirects=False, **more) as response,
            ):
                return response.status, await bounded(response)
        except (aiohttp.ClientError, OSError) as error:  # a TimeoutError is an OSError
            raise Retry(str(error) or type(error).__name__) from error


class _Stream:
    """The body of a request. Keeps its error, because aiohttp hides it.

    While a chunk is sent, threads pack the next one and read the one after it: to read many small files takes as long
    as to compress them.
    """

    def __init__(self, chunks: Iterator[bytes], packer: Packer, sent: Callable[[int], None]) -> None:
        self.error: Exception | None = None
        self.scope = anyio.CancelScope()
        self._chunks = chunks
        self._packer = packer
        self._sent = sent
        self._working = set[asyncio.Future[Any]]()
        self._generator = self._run()

    def chunks(self) -> AsyncGenerator[bytes]:
        return self._generator

    async def close(self) -> None:
        if self._working:
            await asyncio.wait(self._working)
        with contextlib.suppress(RuntimeError):
            await self._generator.aclose()

    async def _run(self) -> AsyncGenerator[bytes]:
        try:
            reading, size = self._start(next, self._chunks, None), 0
            packing: asyncio.Future[bytes] | None = None
            while (chunk := await asyncio.shield(reading)) is not None:
                reading = self._start(next, self._chunks, None)
                ready = await asyncio.shield(packing) if packing else b""
                packing, size, before = self._start(self._packer.pack, chunk), len(chunk), size
                if ready:
                    yield self._leaves(ready)
                    self._sent(before)
            if packing:
                yield self._leaves(await asyncio.shield(packing))
                self._sent(size)
            if rest := self._packer.end():
                yield self._leaves(rest)
        except Exception as error:
            self.error = error
            raise

    def _leaves(self, wire: bytes) -> bytes:
        """Gives the receiver its time anew to take something."""
        self.scope.deadline = anyio.current_time() + _STALL_S
        return wire

    def _start(self, work: "Callable[[Unpack[Ts]], T]", *args: "Unpack[Ts]") -> "asyncio.Future[T]":
        """Has a thread do something that `close` waits for. Nobody must cancel it: the thread would go on."""
        doing = asyncio.get_running_loop().run_in_executor(None, work, *args)
        self._working.add(doing)
        doing.add_done_callback(self._done)
        return doing

    def _done(self, doing: asyncio.Future[Any]) -> None:
        self._working.discard(doing)
        doing.exception()  # if nobody waits for it, the next request reads the same content, and meets it again


def _check(status: int, answer: Answer) -> None:
    """Raise the error that an answer is, if it is one."""
    message = one_line(answer.message or f"the receiver answered {status}")
    if status in (200, 202, 204):
        return
    if status == 410:
        raise Gone(message)
    if answer.code == "busy":
        raise RequestRefused(message, answer.next_step)
    if status in (401, 404, 405, 422, 507):
        raise RequestRefused(message, answer.next_step)
    raise Retry(message)


async def bounded(response: aiohttp.ClientResponse) -> bytes:
    """Read an answer whole. Raise Retry if it is too long."""
    try:
        await response.content.readexactly(_MAX_ANSWER)
    except asyncio.IncompleteReadError as whole:
        return whole.partial
    raise Retry("the receiver's answer is too long")


def _decoded(kind: type[T], content: bytes) -> T:
    try:
        return msgspec.json.decode(content or b"{}", type=kind)
    except msgspec.MsgspecError as error:
        raise RequestRefused(
            f"what answers is no receiver of torchctl ({error})",
            "Look whether something else listens on that port of the pod",
        ) from None
