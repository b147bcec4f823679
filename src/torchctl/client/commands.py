"""Runs a command in a worker to its end and returns what it wrote, for programs; a person's terminal is `terminal`."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchctl.api.names import TRAINER
from torchctl.client.errors import RequestRefused, TimedOut, UsageError
from torchctl.client.execstream import pump
from torchctl.client.wait import job_text
from torchctl.client.workers import find_worker
from torchctl.runtime.client.channels import Channel, Output
from torchctl.runtime.client.execstream import run_command

if TYPE_CHECKING:
    from torchctl.client.jobs import Job

__all__ = ["MAX_OUTPUT", "Done", "run"]

MAX_OUTPUT = 16 * 2**20
"""Bytes that a command may write: they are held in memory."""


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended: its exit code, and what it wrote to standard output and standard error."""

    exit_code: int
    out: bytes
    err: bytes


async def run(
    job: "Job",
    argv: Sequence[str],
    *,
    rank: int | None = None,
    node: int | None = None,
    stdin: bytes | None = None,
    timeout_s: float | None = None,
) -> Done:
    """Runs a command where a rank runs, or on a worker; without either on the first one.

    RBAC: list on pods, get and create on pods/exec; get on torchrunjobs to say why a worker does not run.

    Args:
        argv: The command and its arguments; no shell reads them.
        stdin: What the command reads; None for no input.
        timeout_s: Seconds for which it may run; None for as long as it takes.

    Raises:
        NotFound: The worker does not run.
        UsageError: There is no such rank, or its pod is not known; or this is no command.
        RequestRefused: The command writes more than `MAX_OUTPUT`. It is not ended by that.
        TimedOut: It takes longer. It is not ended by that either.
        ClusterError: It could not be started, or the connection broke.
    """
    _check(argv)
    try:
        async with asyncio.timeout(timeout_s):
            return await _run(job, argv, rank=rank, node=node, stdin=stdin)
    except TimeoutError:
        raise TimedOut(f"{argv[0]} in {job_text(job.key)} runs for more than {timeout_s:g} s", "It goes on.") from None


def _check(argv: Sequence[str]) -> None:
    if isinstance(argv, str):
        raise UsageError(f"the command {argv!r} is no list of words", 'Write ["sh", "-c", ...] for a line of a shell.')
    if not argv or not argv[0]:
        raise UsageError("the command is empty", "Name a program, and its arguments.")
    bad = [word for word in argv if "\0" in word or not _is_text(word)]
    if bad:
        raise UsageError(f"{bad[0]!r} cannot be sent as a word of a command", "Leave out NUL, and what is no UTF-8.")


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


async def _run(job: "Job", argv: Sequence[str], *, rank: int | None, node: int | None, stdin: bytes | None) -> Done:
    worker = await find_worker(job, rank=rank, node=node)
    written = {Channel.STDOUT: bytearray(), Channel.STDERR: bytearray()}

    def keep(output: Output) -> None:
        written[output.channel].extend(output.data)
        if sum(map(len, written.values())) > MAX_OUTPUT:
            raise RequestRefused(
                f"{argv[0]} in pod {worker.pod} writes more than {MAX_OUTPUT // 2**20} MiB",
                "Have it write to a file, and download that.",
            )

    with job.cluster.explained(f"pod {worker.pod} of {job.name}"):
        async with run_command(
            job.cluster.client, worker.pod, job.namespace, argv, container=TRAINER, stdin=stdin is not None
        ) as command:
            code = await pump(command, keep, None if stdin is None else _whole(stdin))
    return Done(code, bytes(written[Channel.STDOUT]), bytes(written[Channel.STDERR]))


async def _whole(stdin: bytes) -> AsyncGenerator[bytes]:
    yield stdin
