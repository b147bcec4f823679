"""How long a pod that takes code is waited for: its container tells, and not the number of tries. In virtual time."""

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import anyio
import pytest

from torchctl.api.conditions import JobCondition, JobReason
from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import POD
from torchctl.client.cluster import Cluster
from torchctl.client.delivery import Interrupted, Silent, bring
from torchctl.client.errors import TimedOut
from torchctl.client.jobs import Job, get_job
from torchctl.client.receiving import Receiver
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.kinds import Key
from torchctl.testing import virtualtime
from torchctl.testing.fake import FakeApiServer, Served

REFUSED = "connect: connection refused"


class Told(Silent):
    """Keeps what a person is told, with the time."""

    def __init__(self) -> None:
        self.lines: list[tuple[float, str]] = []

    def waiting(self, why: str) -> None:
        self.lines.append((anyio.current_time(), why))


class Code:
    """Code that arrives at a pod, or does not: `send` says what becomes of each try."""

    digest = "sha256:1"

    def __init__(self, sending: Callable[[Receiver], Coroutine[Any, Any, None]]) -> None:
        self._sending = sending

    async def send(self, receiver: Receiver) -> None:
        await self._sending(receiver)


class Pods:
    """A job that waits for its upload, and its sync pods."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def job(self) -> Job:
        body = {"metadata": {"name": "vit"}, "spec": {"jobQueue": "q", "numNodes": 1, "command": "a"}}
        kind = {"apiVersion": TORCHRUN_JOB.api_version, "kind": TORCHRUN_JOB.kind}
        await self.client.create(TORCHRUN_JOB, kind | body, "ml")
        await self.says(JobReason.WAITING_FOR_UPLOAD, "pod vit-sync-0 waits for the workspace to be uploaded")
        cluster = Cluster(self.client, Connection("http://fake"), "ml", "nobody")
        return await get_job(cluster, Key("ml", "vit"))

    async def says(self, reason: str, message: str) -> None:
        """The operator writes why the workspace is not there."""
        condition = {"type": JobCondition.WORKSPACE_READY, "status": "False", "reason": reason, "message": message}
        body = {"status": {"conditions": [condition]}}
        await self.client.merge_patch(TORCHRUN_JOB, "vit", body, namespace="ml", subresource="status")

    async def runs(self, name: str, started: str = "2030-01-01T00:00:00Z") -> None:
        """The container of a sync pod has started."""
        found = await self.client.get(TORCHRUN_JOB, "vit", "ml")
        labels = {"torchrun.ai/job-uid": found.metadata.uid, "torchrun.ai/role": "sync"}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}}
        await self.client.create(POD, body, "ml")
        await self._is(name, {"running": {"startedAt": started}})

    async def ends(self, name: str, code: int) -> None:
        await self._is(name, {"terminated": {"exitCode": code, "reason": "Error"}})

    async def starts_again(self, name: str, started: str) -> None:
        await self._is(name, {"running": {"startedAt": started}})

    async def _is(self, name: str, state: dict[str, Any]) -> None:
        status = {"containerStatuses": [{"name": "fetch", "ready": False, "restartCount": 0, "state": state}]}
        await self.client.merge_patch(POD, name, {"status": status}, namespace="ml", subresource="status")


def play(story: Callable[[Pods, Job], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = virtualtime.VirtualClock()
        server = FakeApiServer([Served(POD, status=True), Served(TORCHRUN_JOB, status=True)], clock=clock)
        pods = Pods(server.client())
        await story(pods, await pods.job())

    virtualtime.run(main)


async def fails(error: str, *, answered: bool = False, reached: int | None = None) -> None:
    raise Interrupted(error, answered=answered, reached=reached)


@pytest.mark.parametrize("each_s", [0.0, 5.0])
def test_a_receiver_that_starts_slowly_is_waited_for(each_s: float) -> None:
    """Its node is busy: nothing listens for most of a minute, whether a try takes long or not."""

    async def story(pods: Pods, job: Job) -> None:
        async def send(receiver: Receiver) -> None:
            await anyio.sleep(each_s)
            if anyio.current_time() < 45:
                await fails(REFUSED)

        await pods.runs("vit-sync-0")
        await bring(job, Code(send), Silent(), patience_s=600)
        assert anyio.current_time() < 55

    play(story)


def test_a_receiver_that_stays_silent_is_given_up() -> None:
    async def story(pods: Pods, job: Job) -> None:
        await pods.runs("vit-sync-0")
        with pytest.raises(TimedOut, match=r"pod vit-sync-0 runs and has not answered for 60 s; last: .*refused"):
            await bring(job, Code(lambda receiver: fails(REFUSED)), Silent(), patience_s=600)
        assert 60 <= anyio.current_time() < 65

    play(story)


def test_patience_ends_before_a_silent_receiver_is_given_up() -> None:
    async def story(pods: Pods, job: Job) -> None:
        await pods.runs("vit-sync-0")
        with pytest.raises(TimedOut, match="that took longer than 20 s"):
            await bring(job, Code(lambda receiver: fails(REFUSED)), Silent(), patience_s=20)

    play(story)


def test_each_container_has_a_minute_to_start() -> None:
    """One that was started again, and one of another pod, begin anew."""

    async def story(pods: Pods, job: Job) -> None:
        async def send(receiver: Receiver) -> None:
            now = anyio.current_time()
            if now > 50 and receiver.started == virtualtime.EPOCH:
                await pods.starts_again("vit-sync-0", "2030-01-01T00:00:50Z")
            if now > 100 and receiver.pod == "vit-sync-0":
                await pods.ends("vit-sync-0", 137)
                await pods.runs("vit-sync-1")
            if now < 150:
                await fails(REFUSED)

        await pods.runs("vit-sync-0")
        await bring(job, Code(send), Silent(), patience_s=600)
        assert 150 <= anyio.current_time() < 155

    play(story)


def test_a_container_that_ended_says_why_at_once() -> None:
    why = "pod vit-sync-0 failed (try 1 of 3): the claim is full"

    async def story(pods: Pods, job: Job) -> None:
        told = Told()

        async def send(receiver: Receiver) -> None:
            if receiver.pod == "vit-sync-0":
                await pods.ends("vit-sync-0", 1)
                await pods.says(JobReason.SYNC_FAILED, why)
                await fails(REFUSED)

        async def follows() -> None:
            await anyio.sleep(90)
            await pods.runs("vit-sync-1")

        await pods.runs("vit-sync-0")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follows)
            await bring(job, Code(send), told, patience_s=600)
        assert [line for at, line in told.lines if at < 1][-1] == why

    play(story)


def test_an_answer_begins_the_minute_anew() -> None:
    """A large tree over a line that breaks every forty seconds."""

    async def story(pods: Pods, job: Job) -> None:
        tries: Iterator[int] = iter(range(30))

        async def send(receiver: Receiver) -> None:
            await anyio.sleep(40)
            if next(tries) < 29:
                await fails("connection reset", answered=True)

        await pods.runs("vit-sync-0")
        await bring(job, Code(send), Silent(), patience_s=600)
        assert next(tries, None) is None

    play(story)


def test_a_receiver_that_takes_nothing_is_given_up() -> None:
    """It answers each time, after seven seconds, so that the pauses between are a small part of the time."""

    async def story(pods: Pods, job: Job) -> None:
        async def send(receiver: Receiver) -> None:
            await anyio.sleep(7)
            await fails("it has another offset", answered=True, reached=100)

        await pods.runs("vit-sync-0")
        with pytest.raises(TimedOut, match=r"pod vit-sync-0 answers and has taken nothing for 600 s; last: .*offset"):
            await bring(job, Code(send), Silent(), patience_s=600)
        assert 600 <= anyio.current_time() < 620

    play(story)


def test_a_receiver_that_takes_little_is_not_given_up() -> None:
    """One more byte each five minutes, and the first byte once more in the container that is started again."""

    async def story(pods: Pods, job: Job) -> None:
        taken: Iterator[int] = iter([1, 2, 3, 1, 2, 3])

        async def send(receiver: Receiver) -> None:
            await anyio.sleep(300)
            if (reached := next(taken, None)) is None:
                return
            if reached == 3:
                await pods.starts_again("vit-sync-0", "2030-01-01T00:50:00Z")
            await fails("connection reset", answered=True, reached=reached)

        await pods.runs("vit-sync-0")
        await bring(job, Code(send), Silent(), patience_s=600)
        assert next(taken, None) is None

    play(story)


def test_a_receiver_that_answers_and_breaks_is_given_up() -> None:
    async def story(pods: Pods, job: Job) -> None:
        await pods.runs("vit-sync-0")
        code = Code(lambda receiver: fails("the receiver answered 500", answered=True))
        with pytest.raises(TimedOut, match=r"that took longer than 120 s; last: .* broke: the receiver answered 500"):
            await bring(job, code, Silent(), patience_s=120)

    play(story)
