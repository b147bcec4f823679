"""Logs of containers as a kubelet keeps and serves them: followed, from a time on, cut where a test wants it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from aiohttp import web

from torchctl.runtime.kinds import Key

__all__ = ["LogFile", "LogFiles"]

NS = 10**9
BATCH = 100
"""Lines that are written to the connection together."""


@dataclass(slots=True)
class LogFile:
    """The log of one container.

    Attributes:
        lines: The time of each line in nanoseconds since 1970, and its text with the line end.
        cut_after: For each further answer, the bytes after which it is cut; empty: none is.
        quiet_cut_after: The same, but the answer ends as if it was whole.
        requests: How many were made.
    """

    lines: list[tuple[int, bytes]] = field(default_factory=list)
    cut_after: list[int] = field(default_factory=list)
    quiet_cut_after: list[int] = field(default_factory=list)
    requests: int = 0
    has_ended: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def write(self, text: str, at: int) -> None:
        """Adds a line, or a part of one if `text` has no line end."""
        self.lines.append((at, text.encode()))
        self._notify()

    def end(self) -> None:
        """Ends the container: whoever follows the log gets to its end."""
        self.has_ended = True
        self._notify()

    def rotate(self) -> None:
        """Begins a new file, as the kubelet does after 10 MiB: what was written is served no more."""
        self.lines = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Handles a request for the log, with the query of the API server's or a kubelet's URL."""
        self.requests += 1
        response = web.StreamResponse()
        await response.prepare(request)
        is_quiet = bool(self.quiet_cut_after)
        cuts = self.quiet_cut_after or self.cut_after
        left = cuts.pop(0) if cuts else None
        async for data in self._sent(request.query.get("follow") == "true", _since(request), _tail(request)):
            if left is not None and len(data) >= left:
                await response.write(data[:left])
                if not is_quiet:
                    assert request.transport is not None
                    request.transport.close()
                return response
            left = None if left is None else left - len(data)
            await response.write(data)
        return response

    async def _sent(self, follow: bool, since: int, tail: int | None) -> AsyncIterator[bytes]:
        at = 0 if tail is None else max(0, len(self.lines) - tail)
        while True:
            lines, changed = self.lines[at:], self._changed
            at += len(lines)
            for start in range(0, len(lines), BATCH):
                batch = lines[start : start + BATCH]
                yield b"".join(_stamp(moment) + text for moment, text in batch if moment // NS >= since)
            if not lines and (self.has_ended or not follow):
                return
            if not lines:
                await changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class LogFiles:
    """The logs of all pods, by their names."""

    def __init__(self) -> None:
        self._files: dict[Key, LogFile] = {}

    def __getitem__(self, key: Key) -> LogFile:
        return self._files.setdefault(key, LogFile())

    def find(self, key: Key) -> LogFile | None:
        return self._files.get(key)

    def remove(self, key: Key) -> None:
        """Forgets the log of a pod, as a node does with the pod."""
        del self._files[key]

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Handles `/{namespace}/{pod}`."""
        file = self.find(Key(request.match_info["namespace"], request.match_info["pod"]))
        if file is None:
            body = {"kind": "Status", "reason": "NotFound", "message": "no such pod"}
            return web.json_response(body, status=404)
        return await file.answer(request)


def _since(request: web.Request) -> int:
    text = request.query.get("sinceTime")
    return int(datetime.fromisoformat(text).timestamp()) if text else 0


def _tail(request: web.Request) -> int | None:
    text = request.query.get("tailLines")
    return int(text) if text else None


def _stamp(at: int) -> bytes:
    return f"{datetime.fromtimestamp(at // NS, UTC):%Y-%m-%dT%H:%M:%S}.{at % NS:09d}Z ".encode()
