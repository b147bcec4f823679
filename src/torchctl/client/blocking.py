"""The synchronous face of the SDK, also where an event loop runs already, as in a notebook.

One thread runs an event loop with the asynchronous client; each call here waits for one there.
"""

import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar, Unpack

from anyio.from_thread import BlockingPortal, start_blocking_portal

from torchctl.api.jobstatus import JobStatus
from torchctl.client.client import Client, Options
from torchctl.client.cluster import Target
from torchctl.client.delivery import PATIENCE_S
from torchctl.client.handles import JobHandle
from torchctl.client.views import QueueView
from torchctl.client.wait import FINISHED, Goal
from torchctl.runtime.kinds import Key

if TYPE_CHECKING:
    from torchctl.client.changes import Kept
    from torchctl.client.commands import Done
    from torchctl.client.copying import Copied
    from torchctl.client.logs.reading import JobLine
    from torchctl.client.sync import Synced

__all__ = ["BlockingClient", "BlockingJob"]

P = ParamSpec("P")
T = TypeVar("T")


class BlockingClient:
    """`Client`, with methods that wait. Close it, or use it in a `with` block.

        client = BlockingClient(Target(context="dev"))
        job = client.job("vit").wait("Running")

    Args:
        target: As for `Client.connect`, whose errors this raises.
    """

    def __init__(self, target: Target | None = None) -> None:
        with ExitStack() as stack:
            self._thread = _Thread(stack.enter_context(start_blocking_portal(name="torchctl-client")))
            self._client = stack.enter_context(self._thread.portal.wrap_async_context_manager(Client.connect(target)))
            self._stack = stack.pop_all()
        # Python joins the thread before it runs what atexit knows, so a program that does not close would never end.
        threading._register_atexit(_close, weakref.ref(self))  # type: ignore[attr-defined]  # no public hook comes before

    def __repr__(self) -> str:
        return f"<Blocking {self._client!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes connections and ends the thread. What was read stays usable."""
        self._stack.close()

    @property
    def namespace(self) -> str:
        return self._client.namespace

    def submit(
        self,
        command: str | Sequence[str] | None = None,
        *,
        directory: str | Path | None = None,
        workspace: bool = True,
        timeout_s: float = PATIENCE_S,
        **options: Unpack[Options],
    ) -> "BlockingJob":
        """As `Client.submit`."""
        submit = partial(
            self._client.submit, command, directory=directory, workspace=workspace, timeout_s=timeout_s, **options
        )
        return BlockingJob(self, self._thread.run(submit))

    def job(self, name: str, *, namespace: str = "") -> "BlockingJob":
        """As `Client.job`."""
        return BlockingJob(self, self._thread.run(self._client.job, name, namespace=namespace))

    def jobs(self, *, namespace: str = "", all_namespaces: bool = False, labels: str = "") -> list["BlockingJob"]:
        """As `Client.jobs`."""
        found = self._thread.run(self._client.jobs, namespace=namespace, all_namespaces=all_namespaces, labels=labels)
        return [BlockingJob(self, job) for job in found]

    def queue(self, name: str, *, namespace: str = "") -> QueueView:
        """As `Client.queue`."""
        return self._thread.run(self._client.queue, name, namespace=namespace)

    def queues(self, *, namespace: str = "", all_namespaces: bool = False) -> list[QueueView]:
        """As `Client.queues`."""
        return self._thread.run(self._client.queues, namespace=namespace, all_namespaces=all_namespaces)


class BlockingJob:
    """`JobHandle`, with methods that wait. It keeps its client open for as long as somebody holds it."""

    def __init__(self, client: BlockingClient, job: JobHandle) -> None:
        self._client = client
        self._thread = client._thread
        self._job = job

    def __repr__(self) -> str:
        return f"<Blocking {self._job!r}>"

    @property
    def name(self) -> str:
        return self._job.name

    @property
    def namespace(self) -> str:
        return self._job.namespace

    @property
    def key(self) -> Key:
        return self._job.key

    @property
    def status(self) -> JobStatus:
        return self._job.status

    @property
    def phase(self) -> str:
        return self._job.phase

    def refresh(self) -> Self:
        """As `JobHandle.refresh`."""
        self._thread.run(self._job.refresh)
        return self

    def wait(self, until: str | Goal = FINISHED, *, timeout_s: float | None = None) -> Self:
        """As `JobHandle.wait`. An interrupt ends the waiting and leaves the job alone."""
        self._thread.run(self._job.wait, until, timeout_s=timeout_s)
        return self

    def logs(
        self,
        *,
        follow: bool = False,
        rank: int | None = None,
        node: int | None = None,
        attempt: int | None = None,
        since: datetime | None = None,
        tail: int | None = None,
    ) -> "Generator[JobLine]":
        """Yields what the workers print, as `JobHandle.logs`.

        for line in job.logs(follow=True):
            print(line.label, line.text)
        """
        reading = self._job.logs(follow=follow, rank=rank, node=node, attempt=attempt, since=since, tail=tail)
        with self._thread.portal.wrap_async_context_manager(reading) as lines:
            while (line := self._thread.run(_next, lines)) is not None:
                yield line

    def sync(self, directory: str | Path = ".", *, restart: bool = True, timeout_s: float = 120.0) -> "Synced":
        """As `JobHandle.sync`."""
        return self._thread.run(self._job.sync, directory, restart=restart, timeout_s=timeout_s)

    def rollback(self, *, to: str = "", restart: bool = True, timeout_s: float = 120.0) -> "Synced":
        """As `JobHandle.rollback`."""
        return self._thread.run(self._job.rollback, to=to, restart=restart, timeout_s=timeout_s)

    def run(
        self,
        argv: Sequence[str],
        *,
        rank: int | None = None,
        node: int | None = None,
        stdin: bytes | None = None,
        timeout_s: float | None = None,
    ) -> "Done":
        """As `JobHandle.run`."""
        return self._thread.run(self._job.run, argv, rank=rank, node=node, stdin=stdin, timeout_s=timeout_s)

    def download(
        self, source: str, target: str | Path = ".", *, rank: int | None = None, node: int | None = None
    ) -> "Copied":
        """As `JobHandle.download`."""
        return self._thread.run(self._job.download, source, target, rank=rank, node=node)

    def upload(self, source: str | Path, target: str, *, rank: int | None = None, node: int | None = None) -> "Copied":
        """As `JobHandle.upload`."""
        return self._thread.run(self._job.upload, source, target, rank=rank, node=node)

    def suspend(self) -> bool:
        """As `JobHandle.suspend`."""
        return self._thread.run(self._job.suspend)

    def resume(self) -> bool:
        """As `JobHandle.resume`."""
        return self._thread.run(self._job.resume)

    def scale(self, nodes: int) -> bool:
        """As `JobHandle.scale`."""
        return self._thread.run(self._job.scale, nodes)

    def restart(self) -> None:
        """As `JobHandle.restart`."""
        self._thread.run(self._job.restart)

    def delete(self, *, checkpoints: bool = False) -> "Kept | None":
        """As `JobHandle.delete`."""
        return self._thread.run(self._job.delete, checkpoints=checkpoints)


def _close(client: weakref.ref[BlockingClient]) -> None:
    """Closes a client that nobody has closed when the program ends."""
    if (still_open := client()) is not None:
        still_open.close()


async def _next(lines: "AsyncIterator[JobLine]") -> "JobLine | None":
    """Returns the next line, None after the last one: an error that ends an iterator cannot cross threads."""
    return await anext(lines, None)


class _Thread:
    """The thread with the event loop."""

    def __init__(self, portal: BlockingPortal) -> None:
        self.portal = portal

    def run(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls an asynchronous function there. If the wait for it is interrupted, so is the function."""
        call: Callable[[], Awaitable[T]] = partial(function, *args, **kwargs)
        future = self.portal.start_task_soon(call)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise
