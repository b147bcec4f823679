"""Runs a command in a worker and moves its input and output, both at once, so that neither waits for the other."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from torchctl.runtime.client.channels import Ended, Output
from torchctl.runtime.client.errors import Unavailable
from torchctl.runtime.client.execstream import Command

__all__ = ["STALL_TIMEOUT_S", "pump"]

STALL_TIMEOUT_S = 300.0
"""Seconds for which a command may take nothing of its input."""


async def pump(
    command: Command,
    write: Callable[[Output], None],
    source: AsyncIterator[bytes] | None = None,
    *,
    silence_s: float | None = None,
) -> int:
    """Feeds a command until its input ends, hands its output on until it ends, and returns its exit code.

    Args:
        command: A running command.
        write: Takes what the command writes; it may block as long as it holds the command up.
        source: The command's input; None for none.
        silence_s: Seconds for which the command may write nothing; None for as long as it likes.

    Raises:
        StreamFailed: The command could not be started.
        Unavailable, Timeout: The connection broke.
        Exception: What the source raises.
    """
    feeding = asyncio.create_task(_feed(command, source)) if source is not None else None
    try:
        while isinstance(said := await _next(command, feeding, silence_s), Output):
            write(said)
        return said.exit_code
    finally:
        if feeding is not None:
            feeding.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await feeding


async def _feed(command: Command, source: AsyncIterator[bytes]) -> None:
    async for data in source:
        await command.write(data, STALL_TIMEOUT_S)
    await command.end_input(STALL_TIMEOUT_S)


async def _next(command: Command, feeding: asyncio.Task[None] | None, silence_s: float | None) -> Output | Ended:
    """Returns what the command says next. If its input fails meanwhile, that error counts."""
    if feeding is None or feeding.done():
        return await command.read(silence_s)
    reading = asyncio.create_task(command.read(silence_s))
    try:
        await asyncio.wait({reading, feeding}, return_when=asyncio.FIRST_COMPLETED)
        if feeding.done():
            _check(feeding)
        return await reading
    finally:
        reading.cancel()


def _check(feeding: asyncio.Task[None]) -> None:
    """Raises the error of the input. A broken connection shows to whoever reads it, after the command's last words."""
    error = feeding.exception()
    if error is not None and not isinstance(error, Unavailable):
        raise error
