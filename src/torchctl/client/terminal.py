"""This program's terminal as the input and output of a command in a pod."""

import asyncio
import os
import shutil
import signal
import sys
import termios
import threading
import tty
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager

from torchctl.client.execstream import STALL_TIMEOUT_S, pump
from torchctl.runtime.client.channels import Channel, Output
from torchctl.runtime.client.execstream import Command

__all__ = ["attend", "is_interactive", "raw"]

CHUNK = 2**15


def is_interactive() -> bool:
    """Tells if a person sits at both ends: input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


@contextmanager
def raw() -> Iterator[None]:
    """Hands every key on as it is, Ctrl-C too, while the block runs."""
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


async def attend(command: Command, *, stdin: bool, tty: bool) -> int:
    """Connects a command to this program's input and output until it ends, and returns its exit code."""
    resizing = asyncio.create_task(_resized(command)) if tty else None
    try:
        return await pump(command, _write, _typed() if stdin else None)
    finally:
        if resizing is not None:
            resizing.cancel()
            await asyncio.gather(resizing, return_exceptions=True)


async def _typed() -> AsyncGenerator[bytes]:
    """Yields what comes on standard input, until its end.

    A thread reads it, because a file cannot be waited for. It holds one chunk, and the process does not wait for it.
    """
    loop, chunks = asyncio.get_running_loop(), asyncio.Queue[bytes](1)
    reader = threading.Thread(target=_read, args=(loop, chunks), daemon=True, name="standard input")
    reader.start()
    while data := await chunks.get():
        yield data


async def _resized(command: Command) -> None:
    """Tells a command the size of the terminal, now and whenever it changes. Runs until it is cancelled."""
    changed = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGWINCH, changed.set)
    try:
        while True:
            size = shutil.get_terminal_size()
            await command.resize(size.columns, size.lines, STALL_TIMEOUT_S)
            await changed.wait()
            changed.clear()
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)


def _write(output: Output) -> None:
    """Writes what a command wrote to where it belongs."""
    stream = sys.stderr if output.channel is Channel.STDERR else sys.stdout
    stream.buffer.write(output.data)
    stream.buffer.flush()


def _read(loop: asyncio.AbstractEventLoop, chunks: asyncio.Queue[bytes]) -> None:
    data = b"-"
    while data:
        data = os.read(sys.stdin.fileno(), CHUNK)
        try:
            asyncio.run_coroutine_threadsafe(chunks.put(data), loop).result()
        except RuntimeError:
            return  # the program has ended
