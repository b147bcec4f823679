"""Receivers of uploads in this process, connections that break, and trees to send."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from aiohttp import web

from torchctl.workspace.core import Limits
from torchctl.workspace.receiver import READ_BUFFER, Receiver

TOKEN = "0f5e1a5e-uid-of-the-pod"

TREE: dict[str, bytes | str | None] = {
    "train.py": b"print('hello')\n",
    "pkg/__init__.py": b"",
    "pkg/model.py": b"M = 1\n",
    "pkg/twin.py": b"M = 1\n",
    "pkg/latest": "model.py",
    "empty": None,
    "big.bin": os.urandom(700_000),
    "odd name\n\udcff": b"x",
}
"""Of everything that a directory may have one, and a content that two files share."""


@asynccontextmanager
async def receiving(root: Path, *, limits: Limits | None = None, **options: Any) -> AsyncIterator[tuple[str, Receiver]]:
    """A receiver for a claim; yields its URL and itself."""
    receiver = Receiver(root, token=TOKEN, limits=limits or Limits(), **options)
    app = web.Application()
    app.add_routes(receiver.routes())
    runner = web.AppRunner(app, access_log=None, auto_decompress=False, shutdown_timeout=1, read_bufsize=READ_BUFFER)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", receiver
    finally:
        await runner.cleanup()
        await receiver.close()


class Cuts:
    """A relay to a receiver. It cuts each connection after the bytes that `after` says, counted in both directions."""

    def __init__(self, url: str, after: Callable[[], int | None]) -> None:
        self.connections = self.bytes = 0
        self._port = int(url.rpartition(":")[2])
        self._after = after
        self._tasks: set[asyncio.Task[None]] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        left = self._after()
        there, away = await asyncio.open_connection("127.0.0.1", self._port)

        async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            nonlocal left
            with suppress(ConnectionError):
                while data := await source.read(4096):
                    if left is not None:
                        data = data[: max(left, 0)]
                        left -= len(data)
                    self.bytes += len(data)
                    target.write(data)
                    await target.drain()
                    if left is not None and left <= 0:
                        break

        pumps = [asyncio.create_task(pump(reader, away)), asyncio.create_task(pump(there, writer))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in pumps:
                task.cancel()
            for end in (writer, away):
                end.transport.abort()


@asynccontextmanager
async def cutting(url: str, after: Callable[[], int | None]) -> AsyncIterator[tuple[str, Cuts]]:
    """Yield the URL of a relay whose connections break."""
    cuts = Cuts(url, after)
    server = await asyncio.start_server(cuts.accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", cuts
    finally:
        server.close()


def plant(place: Path, tree: dict[str, bytes | str | None]) -> Path:
    """Write files (bytes), links (text) and directories (None)."""
    place.mkdir(exist_ok=True)
    for name, content in tree.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir(exist_ok=True)
        elif isinstance(content, str):
            path.symlink_to(content)
        else:
            path.write_bytes(content)
    return place


def contents(place: Path) -> dict[str, object]:
    """A tree as a test compares it: content and execute bit of files, targets of links, directories as None."""
    found: dict[str, object] = {}
    for path in sorted(place.rglob("*")):
        name = path.relative_to(place).as_posix()
        if name in (".sync_success", "lost+found") or name.startswith(".torchctl-"):
            continue
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_dir():
            found[name] = None
        else:
            found[name] = (path.read_bytes(), bool(path.stat().st_mode & 0o100))
    return found
