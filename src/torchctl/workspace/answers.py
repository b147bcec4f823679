"""Between aiohttp and the receiver: bodies without an end are bounded in time, errors become answers of one line."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeVar

import aiohttp
from aiohttp import web

from .errors import Refused, WorkspaceError
from .frames import ENCODINGS, Frame, Malformed
from .program import meaning
from .store import Vanished

__all__ = ["Handler", "Stop", "answered", "body", "in_thread"]

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_IDLE_S = 60.0
_PIECE, _GATHER_S = 256 * 1024, 0.004


class Stop(Exception):
    """A request that is answered with an error. `code` is for programs, the message for people."""

    def __init__(
        self,
        status: int,
        message: str,
        next_step: str = "",
        *,
        code: str = "",
        more: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.content = {**(more or {}), "code": code, "message": message, "next_step": next_step}


class Cut(Exception):
    """The client is gone; nobody reads the answer."""


def answered(handler: Handler) -> Handler:
    """Turn the errors of a handler into answers."""

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except Stop as stop:
            answer = web.json_response(stop.content, status=stop.status)
        except Cut:
            answer = web.Response(status=400)
        except Vanished as error:
            answer = _refusal(410, "gone", error)
        except Refused as error:
            answer = _refusal(422, "refused", error)
        except WorkspaceError as error:
            answer = _refusal(500, "failed", error)
        except OSError as error:
            answer = _refusal(507, "volume", meaning(error))
        answer.force_close()  # the rest of the body, which nobody wants, ends with the connection
        return answer

    return handle


def _refusal(status: int, code: str, error: WorkspaceError) -> web.Response:
    content = {"code": code, "message": error.message, "next_step": error.next_step}
    return web.json_response(content, status=status)


async def body(request: web.Request) -> AsyncIterator[bytes]:
    """Yield the content of the body as it arrives, in pieces that are worth a thread's while if they come fast.

    The server hands on what was sent (`auto_decompress=False`), so nothing is unpacked for whoever has no token.

    Raises:
        Stop: nothing came for a minute, or what came cannot be unpacked.
        Cut: the connection broke.
    """
    encoding = request.headers.get("Content-Encoding", "identity").lower()
    if encoding not in ("identity", *ENCODINGS):
        raise _undecoded()
    frame = None if encoding == "identity" else Frame()
    async for chunk in _arriving(request):
        try:
            for piece in (chunk,) if frame is None else frame.unpack(chunk):
                yield piece
        except Malformed:
            raise _undecoded() from None


def _undecoded() -> Stop:
    return Stop(400, "the body is not what its Content-Encoding says", "Send it again", code="encoding")


async def _arriving(request: web.Request) -> AsyncIterator[bytes]:
    while True:
        try:
            async with asyncio.timeout(_IDLE_S):
                chunk = await request.content.readany()
        except TimeoutError:
            raise Stop(408, f"nothing was sent for {_IDLE_S:g} s", "Go on from the offset", code="idle") from None
        except (ConnectionError, aiohttp.ClientError) as error:
            raise Cut from error
        except web.RequestPayloadError:
            raise _undecoded() from None
        if not chunk:
            return
        yield await _gathered(request.content, chunk)


async def _gathered(content: aiohttp.StreamReader, first: bytes) -> bytes:
    """Return what came first and what follows at once. A port-forward delivers some tens of KiB at a time."""
    if len(first) >= _PIECE:
        return first
    await asyncio.sleep(_GATHER_S)  # cheaper than to be woken by each of the pieces that come meanwhile
    # The next read meets an error again.
    with contextlib.suppress(ConnectionError, aiohttp.ClientError, web.RequestPayloadError):
        return first + content.read_nowait()
    return first


async def in_thread(work: Callable[[], T]) -> T:
    """Run work that blocks on the disk in a thread. Whoever is cancelled meanwhile waits for its end."""
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
