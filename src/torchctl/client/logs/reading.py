"""Reads the logs of a job's workers at once, and follows them over restarts of the job.

    async with read_logs(job, Wanted(follow=True)) as batches:
        async for lines in batches:
            for line in lines:
                print(line.label, line.text)

One watch of the pods, one of the job, one request for each worker that writes. The reader sets the pace: what it does
not take stays on the nodes.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchctl.api.labels import JOB_NAME, JOB_UID, ROLE, ROLE_WORKER, selector
from torchctl.api.names import TRAINER
from torchctl.client.logs.core import Merge, Merged
from torchctl.client.logs.roster import Roster, Wanted
from torchctl.client.logs.workers import WORKER, Worker, WorkerPod, label, worker
from torchctl.client.refusals import explain
from torchctl.client.states import States, states
from torchctl.runtime.cancellation import cancel
from torchctl.runtime.client.errors import ApiError, Forbidden, Unauthorized
from torchctl.runtime.client.loglines import Cursor, LogLine
from torchctl.runtime.client.podlog import OUTAGE_S, PodLog
from torchctl.runtime.clock import Clock, SystemClock

if TYPE_CHECKING:
    from torchctl.client.jobs import Job

__all__ = ["JobLine", "read_logs"]

FOLLOWED_PATIENCE_S = 0.2
"""Seconds for which a line may wait for older ones of other workers, while they are followed."""

READ_PATIENCE_S = 10.0
"""The same for logs that are only read."""

READ_OUTAGE_S = 15.0
"""Seconds for which a log that is only read may be out of reach: a person waits."""

CONNECT_S = 1.0
"""Seconds more for the first line of a worker."""


@dataclass(frozen=True, slots=True)
class JobLine:
    """A line of a worker, or with an empty label a remark about one.

    Attributes:
        label: `rank 3`, or `node 1` if the rank is unknown.
        text: The line.
        worker: Who wrote it.
        at: When, in nanoseconds since 1970.
    """

    label: str
    text: str
    worker: Worker
    at: int = 0


@asynccontextmanager
async def read_logs(
    job: "Job", wanted: Wanted, *, clock: Clock | None = None
) -> AsyncGenerator[AsyncIterator[list[JobLine]]]:
    """Yields the lines of a job's workers, as many at a time as are there.

    RBAC: list and watch on pods and torchrunjobs, get on pods/log.

    Raises:
        UsageError: The rank that is wanted does not exist, or its pod is not known.
        NotAllowed: A right is missing.
    """
    reading = _Reading(job, wanted, clock or SystemClock())
    try:
        reading.start()
        async with aclosing(reading.batches()) as batches:
            yield batches
    finally:
        await reading.stop()


class _Reading:
    """The tasks that read, and what they have in common."""

    def __init__(self, job: "Job", wanted: Wanted, clock: Clock) -> None:
        self._job = job
        self._wanted = wanted
        self._clock = clock
        self._roster = Roster(wanted, job.object)
        self._merge = Merge(FOLLOWED_PATIENCE_S if wanted.follow else READ_PATIENCE_S)
        self._workers: list[Worker] = []
        self._labels: dict[int, str] = {}
        self._remarks: list[JobLine] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures: list[BaseException] = []
        self._has_all_begun = False
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()

    def start(self) -> None:
        self._run(self._watch())

    async def stop(self) -> None:
        await cancel(self._tasks)

    async def batches(self) -> AsyncGenerator[list[JobLine]]:
        """Yields what the merge gives out, until everybody has ended."""
        while not self._is_over:
            # What changes from here on, also while the caller has the lines, ends the wait below.
            self._changed.clear()
            taken = self._merge.take(self._clock.monotonic())
            remarks, self._remarks = self._remarks, []
            if lines := [*filter(None, map(self._shown, taken)), *remarks]:
                yield lines
            if self._failures:
                raise self._failures[0]
            if taken:
                self._has_room.set()
            elif not lines:
                await self._wait()

    @property
    def _is_over(self) -> bool:
        is_read = self._has_all_begun and self._merge.is_empty
        return is_read and not self._remarks and not self._failures

    async def _wait(self) -> None:
        """Waits for lines, or until those that are held may be given out."""
        try:
            async with asyncio.timeout(self._merge.wait_s(self._clock.monotonic())):
                await self._changed.wait()
        except TimeoutError:
            return

    # Who is read.

    async def _watch(self) -> None:
        job, found = self._job, self._selector
        await self._look(tail=self._wanted.tail)
        if self._roster.is_complete:
            self._all_have_begun()
            return
        async with states(job.cluster, WORKER, namespace=job.namespace, labels=found) as pods:
            self._run(self._watch_pods(pods))
            await self._watch_job()
            # The news of the last pods may come after that of the job's end.
            await self._look()
            self._all_have_begun()
            await asyncio.Event().wait()

    async def _look(self, *, tail: int | None = None) -> None:
        job = self._job
        with job.cluster.explained(f"pods in namespace {job.namespace}"):
            pods = await job.cluster.client.list(WORKER, namespace=job.namespace, labels=self._selector)
        self._see(pods, tail=tail)

    async def _watch_pods(self, pods: States[WorkerPod]) -> None:
        async for objects in pods:
            self._see(objects.values())

    async def _watch_job(self) -> None:
        async with self._job.watch() as changes:
            async for seen in changes:
                self._roster.see_job(seen)
                if self._roster.is_complete:
                    return

    @property
    def _selector(self) -> str:
        return selector({JOB_NAME: self._job.name, JOB_UID: self._job.uid, ROLE: ROLE_WORKER})

    def _all_have_begun(self) -> None:
        self._has_all_begun = True
        self._changed.set()

    def _see(self, pods: Iterable[WorkerPod], *, tail: int | None = None) -> None:
        self._roster.see_workers(map(worker, pods))
        for each in self._roster.begin():
            number = len(self._workers)
            self._workers.append(each)
            self._merge.open(number, self._clock.monotonic() + CONNECT_S)
            self._run(self._read(number, each, Cursor(self._wanted.since, tail)))

    # Reading.

    async def _read(self, number: int, worker: Worker, cursor: Cursor) -> None:
        client, namespace = self._job.cluster.client, self._job.namespace
        log = PodLog(
            client,
            worker.pod,
            namespace,
            container=TRAINER,
            cursor=cursor,
            outage_s=OUTAGE_S if self._wanted.follow else READ_OUTAGE_S,
            clock=self._clock,
        )
        try:
            async with aclosing(self._answers(log, worker)) as answers:
                async for lines in answers:
                    self._merge.feed(number, lines)
                    self._changed.set()
                    await self._wait_for_room(number)
        except (Unauthorized, Forbidden) as error:
            raise explain(error, f"the log of pod {worker.pod}") from error
        except ApiError as error:
            self._remarks.append(JobLine("", f"the log of pod {worker.pod} ends here: {error}", worker))
        finally:
            self._merge.close(number)
            self._changed.set()

    def _answers(self, log: PodLog, worker: Worker) -> AsyncGenerator[list[LogLine]]:
        if worker.has_ended or self._wanted.follow:
            return log.follow(lambda: self._roster.has_ended(worker.uid))
        return log.snapshot()

    async def _wait_for_room(self, number: int) -> None:
        while not self._merge.has_room(number):
            self._has_room.clear()
            await self._has_room.wait()

    def _shown(self, merged: Merged) -> JobLine | None:
        worker, line = self._workers[merged.source], merged.line
        if not line.continues:
            self._labels[merged.source] = label(worker, line.text)
        found = self._labels.get(merged.source, label(worker, line.text))
        wanted = self._wanted.rank
        if wanted is not None and found.startswith("rank ") and found != f"rank {wanted}":
            return None
        return JobLine(found, line.text, worker, line.at)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failures.append(error)
            self._changed.set()
