"""Copies files between this machine and a worker, by `tar` in the pod.

What comes from a pod is untrusted: it is unpacked by the rules of a workspace (`torchctl.workspace.core`), below a
directory of its own, and takes its place only once all of it has arrived. What is read on either side is never held
as a whole.
"""

import os
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from posixpath import basename, dirname, normpath
from typing import TYPE_CHECKING

import anyio

from torchctl.api.names import TRAINER
from torchctl.client.errors import RequestRefused, UsageError
from torchctl.client.execstream import pump
from torchctl.client.logs.workers import Worker
from torchctl.client.tarring import Arriving, members_of, packed
from torchctl.runtime.client.channels import Channel, Output
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import StreamFailed
from torchctl.runtime.client.execstream import run_command
from torchctl.workspace.errors import WorkspaceError

if TYPE_CHECKING:
    from torchctl.client.jobs import Job

__all__ = ["Copied", "Place", "download", "parse", "upload"]

SILENCE_S = 120.0
"""Seconds for which tar in the pod may say nothing."""

MAX_SAID = 4096


@dataclass(frozen=True, slots=True)
class Place:
    """A path here, or with a job one in a worker of that job."""

    path: str
    job: str = ""


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied: where it is now, and how much."""

    path: str
    files: int
    bytes: int


def parse(text: str) -> Place:
    """Reads `JOB:PATH` or a local path; one with a colon of its own is written with a slash before it, as for scp."""
    job, colon, path = text.partition(":")
    if not colon or "/" in job or not job:
        return Place(text)
    if not path:
        raise UsageError(f"{text!r} names no path", f"Write {job}:/path/in/the/pod.")
    return Place(path, job)


# From the pod.


async def download(job: "Job", worker: Worker, source: str, target: Path) -> Copied:
    """Copies a file or directory of a worker to this machine. RBAC: get and create on pods/exec.

    Args:
        job: The job.
        worker: Its worker.
        source: The path in the pod.
        target: The new name; an existing directory takes it under its own name.

    Raises:
        UsageError: The target exists already, or cannot be written.
        RequestRefused: The pod cannot read the path, has no tar, or sends what must not be unpacked.
    """
    directory, name = _split(source)
    target = _free(target, name)
    try:
        with tempfile.TemporaryDirectory(prefix=".torchctl-", dir=target.parent) as staging:
            arriving = Arriving(Path(staging), name)
            await _run(job, worker, ["tar", "-c", "-f", "-", "-C", directory, "--", name], arriving.write)
            files, size = arriving.end()
            os.rename(Path(staging) / name, target)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}", "Choose another place.") from error
    return Copied(str(target), files, size)


# To the pod.


async def upload(job: "Job", worker: Worker, source: Path, target: str) -> Copied:
    """Copies a file or directory of this machine into a worker; what is there under that name is written over.

    RBAC: get and create on pods/exec.

    Args:
        job: The job.
        worker: Its worker.
        source: The path here.
        target: The new name in the pod; with a slash at its end, the directory that takes it under its own name.

    Raises:
        UsageError: The source cannot be read.
        RequestRefused: The pod cannot write there, or has no tar.
    """
    directory, name = _named(source, target)
    try:
        members = await anyio.to_thread.run_sync(members_of, source)
        sending = _sent(packed(source, name, members))
        await _run(job, worker, ["tar", "-x", "-f", "-", "-C", directory], _nowhere, sending)
    except OSError as error:
        raise UsageError(f"{error.filename or source} cannot be read: {error.strerror}") from error
    size = sum(each.size for each in members)
    return Copied(f"{directory.rstrip('/')}/{name}", sum(each.kind != "directory" for each in members), size)


async def _sent(chunks: Iterator[bytes]) -> AsyncGenerator[bytes]:
    for chunk in chunks:
        yield chunk


def _free(target: Path, name: str) -> Path:
    """Returns the name that the copy gets here. Raises UsageError if it is taken."""
    target = target / name if target.is_dir() else target
    if os.path.lexists(target):
        raise UsageError(f"{target} exists already", "Remove it, or choose another name.")
    return target


def _named(source: Path, target: str) -> tuple[str, str]:
    """Returns the directory in the pod and the name that the copy gets there."""
    return (target, source.resolve().name) if target.endswith("/") else _split(target)


# Both.


async def _run(
    job: "Job",
    worker: Worker,
    argv: Sequence[str],
    write: Callable[[bytes], None],
    source: AsyncGenerator[bytes] | None = None,
) -> None:
    """Runs tar in the pod. Raises RequestRefused with its last words if it fails."""
    said = bytearray()

    def sort(output: Output) -> None:
        if output.channel is Channel.STDOUT:
            write(output.data)
        elif len(said) < MAX_SAID:
            said.extend(output.data[:MAX_SAID])

    client, what = job.cluster.client, f"pod {worker.pod}"
    try:
        with job.cluster.explained(what):
            code = await _tar(client, worker.pod, job.namespace, argv, sort, source)
    except WorkspaceError as error:
        raise RequestRefused(f"{what}: {error.message}", error.next_step) from error
    if code:
        words = said.decode(errors="replace").strip() or f"tar ended with exit code {code}"
        raise RequestRefused(f"{what}: {words}", "Check the path and its rights in the pod.")


async def _tar(
    client: Client,
    pod: str,
    namespace: str,
    argv: Sequence[str],
    write: Callable[[Output], None],
    source: AsyncGenerator[bytes] | None,
) -> int:
    stdin = source is not None
    async with run_command(client, pod, namespace, argv, container=TRAINER, stdin=stdin) as command:
        try:
            return await pump(command, write, source, silence_s=SILENCE_S)
        except StreamFailed as error:
            if "not found" not in error.message:
                raise
            raise RequestRefused(f"pod {pod} has no tar", "Copying needs tar in the job's image.") from error


def _split(path: str) -> tuple[str, str]:
    """Returns the directory and the name of a path in a pod, which is absolute or below the container's directory."""
    whole = normpath(path)
    name = basename(whole)
    if name in ("", ".", ".."):
        raise UsageError(f"{path!r} has no name of its own", "Name a file or directory, such as /checkpoints/1.")
    return dirname(whole) or ".", name


def _nowhere(data: bytes) -> None:
    """tar says nothing while it unpacks."""
