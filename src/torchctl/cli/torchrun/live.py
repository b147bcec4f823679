"""Shows a job as it changes: on a terminal redrawn in place, elsewhere a line for each change."""

import sys
from contextlib import suppress
from datetime import UTC, datetime

import anyio
import click
from rich.live import Live
from rich.text import Text

from torchctl.api.kube import POD, Pod
from torchctl.cli.exits import farewell
from torchctl.client.errors import NotAllowed
from torchctl.client.jobs import Job
from torchctl.client.pods import pods_label
from torchctl.client.states import states
from torchctl.client.summary import changes, summarize
from torchctl.client.views import JobView
from torchctl.client.wait import FINISHED, Goal, Progress, conclude, judge

__all__ = ["follow"]

REDRAW_S = 1.0
"""Seconds after which ages are drawn again, although nothing has changed."""
SETTLE_S = 0.1
"""Seconds between two drawings at least, however many pods change."""


async def follow(job: Job) -> None:
    """Shows a job until it ends.

    Raises:
        JobFailed: It failed.
        NotFound: It was deleted.
    """
    farewell(f"The job goes on. Come back with: kubectl torchrun status -w {job.name} -n {job.namespace}")
    last = await (_redraw(job) if sys.stdout.isatty() else _tell(job))
    conclude(Goal(FINISHED), job.key, last)


async def _tell(job: Job) -> JobView | None:
    """Prints a line for each change, with the time."""
    before: JobView | None = None
    async with job.watch() as seen:
        async for now in seen:
            for line in changes(before, now):
                click.echo(f"{datetime.now(UTC):%H:%M:%SZ} {job.name} {line}")
            before = now
            if judge(Goal(FINISHED), now) is not Progress.WAITING:
                break
    return before


async def _redraw(job: Job) -> JobView | None:
    """Draws the job in place, after each change and each second."""
    screen = _Screen(job)
    with Live(auto_refresh=False) as live:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(screen.watch_job)
            tasks.start_soon(screen.watch_pods)
            while not screen.ended:
                live.update(screen.text(), refresh=True)
                await anyio.sleep(SETTLE_S)
                with anyio.move_on_after(REDRAW_S):
                    await screen.changed()
            tasks.cancel_scope.cancel()
        live.update(screen.text(), refresh=True)
    return screen.seen


class _Screen:
    """What is known of a job and its pods, and so what stands on the screen."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.seen: JobView | None = job.object
        self._pods: list[Pod] = []
        self._event = anyio.Event()

    @property
    def ended(self) -> bool:
        return judge(Goal(FINISHED), self.seen) is not Progress.WAITING

    def text(self) -> Text:
        if self.seen is None:
            return Text(f"{self._job.name} was deleted")
        return Text("\n".join(summarize(self.seen, self._pods, datetime.now(UTC)).lines()))

    async def changed(self) -> None:
        """Waits until something has changed since the last call."""
        await self._event.wait()
        self._event = anyio.Event()

    async def watch_job(self) -> None:
        async with self._job.watch() as seen:
            async for self.seen in seen:
                self._event.set()

    async def watch_pods(self) -> None:
        job = self._job
        with suppress(NotAllowed):  # who may see jobs and no pods sees the job
            async with states(job.cluster, POD, namespace=job.namespace, labels=pods_label(job.name)) as found:
                async for pods in found:
                    self._pods = [*pods.values()]
                    self._event.set()
