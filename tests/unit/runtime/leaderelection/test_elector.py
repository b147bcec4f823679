"""The shell keeps the core's promises: work runs only while it leads, ends before others may begin, and in time.

Real client, real elector, default periods; the API server is a few lines and time is virtual.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import NotLeader, Timeout, Unavailable
from torchctl.runtime.client.exchange import Gate, HttpResponse, LineStream
from torchctl.runtime.client.requests import HttpRequest
from torchctl.runtime.leaderelection.elector import LeaderElector, new_identity
from torchctl.runtime.leaderelection.fence import Fence
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.settings import ElectionSettings
from torchctl.testing import virtualtime

LEASE_S, DEADLINE_S, RETRY_S = 15, 10, 2
LATENCY_S = 0.01


class Server:
    """One Lease."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 100
        self.watchers: list[asyncio.Queue[bytes]] = []
        self.writes: list[tuple[float, str]] = []

    @property
    def holder(self) -> str:
        return str(self.lease["spec"]["holderIdentity"]) if self.lease else ""

    def change(self, type_: str, spec: dict[str, Any], meta: dict[str, Any] | None = None) -> dict[str, Any]:
        self.version += 1
        known = self.lease["metadata"] if self.lease else {}
        metadata = {"uid": "u", **known, **(meta or {}), "resourceVersion": str(self.version)}
        self.lease = {"metadata": metadata, "spec": spec}
        self.tell(type_)
        return self.lease

    def delete(self) -> None:
        assert self.lease is not None
        self.change("DELETED", self.lease["spec"])
        self.lease = None

    def tell(self, type_: str) -> None:
        line = json.dumps({"type": type_, "object": self.lease}).encode() + b"\n"
        for queue in self.watchers:
            queue.put_nowait(line)


class Stream:
    status = 200
    headers: dict[str, str] = {}  # noqa: RUF012  # never changed

    def __init__(self, queue: asyncio.Queue[bytes]) -> None:
        self.queue = queue

    async def readline(self, timeout_s: float) -> bytes:
        try:
            with anyio.fail_after(timeout_s):
                await anyio.sleep(LATENCY_S)
                return await self.queue.get()
        except TimeoutError:
            raise Timeout("silence") from None

    async def readlines(self, timeout_s: float) -> bytes:
        return await self.readline(timeout_s)

    async def read_body(self) -> bytes:
        return b""


class Network:
    """One replica's way to the server. `cut`: refused; `hang`: no answer; `deaf`: no watch."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.cut = self.hang = self.deaf = self.swallow = False

    async def send(self, request: HttpRequest, gate: Gate | None = None) -> HttpResponse:
        if self.cut:
            raise Unavailable("connection refused")
        if self.hang:
            await anyio.sleep(request.timeout_s)
            raise Timeout("no answer", outcome_unknown=True)
        await anyio.sleep(LATENCY_S)
        response = self.answer(request)
        if self.swallow:
            await anyio.sleep(request.timeout_s)
            raise Timeout("no answer", outcome_unknown=True)
        await anyio.sleep(LATENCY_S)
        return response

    def answer(self, request: HttpRequest) -> HttpResponse:
        lease, body = self.server.lease, json.loads(request.body or b"null")
        if request.method == "POST":
            if lease is not None:
                return self.refuse(409, "AlreadyExists")
            return self.accept(self.server.change("ADDED", body["spec"], body["metadata"]))
        if lease is None:
            return self.refuse(404, "NotFound")
        if request.method == "PATCH":
            if body["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"]:
                return self.refuse(409, "Conflict")
            lease = self.server.change("MODIFIED", {**lease["spec"], **body["spec"]})
        return self.accept(lease)

    def accept(self, lease: dict[str, Any]) -> HttpResponse:
        return HttpResponse(200, {}, json.dumps(lease).encode())

    def refuse(self, code: int, reason: str) -> HttpResponse:
        return HttpResponse(code, {}, json.dumps({"code": code, "reason": reason, "message": reason}).encode())

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[LineStream]:
        if self.cut or self.deaf:
            raise Unavailable("connection refused")
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        if self.server.lease:
            queue.put_nowait(json.dumps({"type": "ADDED", "object": self.server.lease}).encode())
        self.server.watchers.append(queue)
        try:
            yield Stream(queue)
        finally:
            self.server.watchers.remove(queue)


class Replica:
    """An elector whose work is to write down what happens to it."""

    def __init__(self, server: Server, name: str, *, stubborn_s: float = 0) -> None:
        self.name, self.server, self.stubborn_s = name, server, stubborn_s
        self.network = Network(server)
        self.clock = virtualtime.VirtualClock()
        self.fence = Fence(self.clock)
        self.metrics = Metrics(process=False)
        client = Client(self.network, clock=self.clock, fence=self.fence, rng=random.Random(1))
        self.elector = LeaderElector(
            client,
            "system",
            "torchctl",
            name,
            ElectionSettings(),
            self.clock,
            self.fence,
            metrics=self.metrics,
            rng=random.Random(name),
        )
        self.working = False
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()

    async def work(self) -> None:
        self.working = True
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(self.stubborn_s)
            self.working = False

    async def run(self) -> None:
        with self.scope:
            await self.elector.run(self.work)
        self.ended.set()

    @property
    def status(self) -> float | None:
        return self.metrics.registry.get_sample_value("leader_election_master_status", {"name": "torchctl"})


async def until(condition: Callable[[], bool], *, within_s: float) -> float:
    """Waits for a condition and returns how long it took."""
    began = anyio.current_time()
    with anyio.fail_after(within_s):
        while not condition():  # noqa: ASYNC110  # virtual time: looking costs nothing
            await anyio.sleep(0.005)
    return anyio.current_time() - began


Story = Callable[[Server, Replica, Replica, TaskGroup], Awaitable[None]]


def play(story: Story, **options: float) -> None:
    """Runs a story in which `a` leads from the start and `b` stands by."""

    async def main() -> None:
        server = Server()
        a, b = Replica(server, "a", **options), Replica(server, "b")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(a.run)
            await until(lambda: a.working, within_s=1)
            tasks.start_soon(b.run)
            await anyio.sleep(5.3)
            await story(server, a, b, tasks)
            tasks.cancel_scope.cancel()

    virtualtime.run(main)


def test_one_works_and_the_other_stands_by() -> None:
    async def story(server: Server, a: Replica, b: Replica, tasks: TaskGroup) -> None:
        await anyio.sleep(600)
        assert (a.working, b.working) == (True, False)
        assert (a.elector.is_leader, b.elector.is_leader) == (True, False)
        assert (a.status, b.status) == (1, 0)
        assert b.elector.holder == "a"
        assert server.lease is not None
        assert server.lease["spec"]["leaseTransitions"] == 0

    play(story)


def test_a_graceful_stop_hands_over_within_a_watch_latency() -> None:
    async def story(server: Server, a: Replica, b: Replica, tasks: TaskGroup) -> None:
        a.scope.cancel()
        assert await until(lambda: b.working, within_s=30) < 0.1

    play(story)


def test_the_lease_is_released_after_the_work_has_ended() -> None:
    async def story(server: Server, a: Replica, b: Replica, tasks: TaskGroup) -> None:
        a.scope.cancel()
        await until(lambda: not a.working, within_s=30)
        assert server.holder == "a"
        await until(lambda: b.working, within_s=0.1)

    play(story, stubborn_s=3)


def test_a_stop_in_the_middle_of_a_renewal_still_releases() -> None:
    async def story(server: Server, a: Replica, b: Replica, tasks: TaskGroup) -> None:
        version = server.version
        await until(lambda: server.version > version, within_s=3)  # committed, not answered yet
        a.scope.cancel()
        assert await until(lambda: b.working, within_s=30) < 0.2

    play(story)


def test_leader_without_network_stops_before_the_other_begins() -> None:
    async def story(server: Server, a: Replica, b: Replica, tasks: TaskGroup) -> None:
        a.network.cut = True
        stopped = await until(lambda: not a.working, within_s=DEADLINE_S)
        assert not b.working
        with pytest.raises(NotLeader):
            a.fence.check()
        assert a.status == 0
        assert stopped + await until(lambda: b.working, within_s=LEASE_S) <= LEASE_S
        a.network.cut = False
        await anyio.sleep(60)
        assert (a.working, b.working) == (False, True)

    play(story)


def test_requests_that_hang_do_not_prolong_leadership() -> None:
    async def story(server: Server, a: Replica, b: Replica, tasks: TaskGroup) -> None:
        a.network.hang = True
        await until(lambda: not a.working, within_s=DEADLINE_S)
        assert not b.working
        await until(lambda: b.working, within_s=LEASE_S)

    play(story)


def test_a_short_outage_changes_nothing() -> None:
    async def story(server: Server, a: Replica, b: Replica, tasks: TaskGroup) -> None:
        for replica in (a, b):
            replica.network.cut = True
        await anyio.sleep(DEADLINE_S - RETRY_S - 1)
        for replica in (a, b):
            replica.network.cut = False
        await anyio.sleep(60)
        assert (a.working, b.working) == (True, False)

    play(story)


def test_lost_answers_to_renewals_end_leadership() -> None:
    """There are never two leaders meanwhile."""

    async def story(server: Server, a: Replica, b: Replica, tasks: TaskGroup) -> None:
        a.network.swallow = a.network.deaf = True
        await until(lambda: not a.working, within_s=DEADLINE_S)
        assert not b.working

    play(story)


def test_release_is_found_without_a_watch_within_a_retry_period() -> None:
    async def story(server: Server, a: Replica, b: Replica, tasks: TaskGroup) -> None:
        b.network.deaf = True
        server.watchers[1].put_nowait(b"")
        await anyio.sleep(0.1)
        a.scope.cancel()
        assert await until(lambda: b.working, within_s=30) < RETRY_S * 2.2 + 0.1

    play(story)


def test_a_holder_written_by_hand_stops_the_leader_at_once() -> None:
    async def story(server: Server, a: Replica, b: Replica, tasks: TaskGroup) -> None:
        assert server.lease is not None
        server.change("MODIFIED", {**server.lease["spec"], "holderIdentity": "somebody"})
        await until(lambda: not a.working, within_s=0.1)
        assert not b.working

    play(story)


def test_leader_recreates_a_lease_deleted_by_hand() -> None:
    async def story(server: Server, a: Replica, b: Replica, tasks: TaskGroup) -> None:
        server.delete()
        await until(lambda: server.holder == "a", within_s=RETRY_S + 0.1)
        await anyio.sleep(60)
        assert (a.working, b.working) == (True, False)

    play(story)


def test_labels_of_others_survive_renewals() -> None:
    async def story(server: Server, a: Replica, b: Replica, tasks: TaskGroup) -> None:
        assert server.lease is not None
        server.change("MODIFIED", server.lease["spec"], {"labels": {"team": "x"}})
        await anyio.sleep(10)
        assert server.lease["metadata"]["labels"] == {"team": "x"}
        assert a.working

    play(story)


def test_work_that_does_not_end_is_reported_as_not_alive() -> None:
    async def story(server: Server, a: Replica, b: Replica, tasks: TaskGroup) -> None:
        a.network.cut = True
        await until(lambda: b.working, within_s=2 * LEASE_S)
        assert a.elector.check() == ""
        await anyio.sleep(LEASE_S)
        assert "the work still runs" in a.elector.check()
        await until(lambda: a.elector.check() == "", within_s=60)

    play(story, stubborn_s=40)


def test_work_that_ends_gives_the_lease_up() -> None:
    async def main() -> None:
        replica = Replica(Server(), "a")

        async def nothing() -> None: ...

        await replica.elector.run(nothing)
        assert replica.server.holder == ""

    virtualtime.run(main)


def test_failed_work_releases_the_lease_and_raises() -> None:
    async def main() -> None:
        replica = Replica(Server(), "a")

        async def fail() -> None:
            raise ZeroDivisionError

        with pytest.raises(ExceptionGroup) as caught:
            await replica.elector.run(fail)
        assert caught.group_contains(ZeroDivisionError)
        assert replica.server.holder == ""

    virtualtime.run(main)


def test_identities_are_unique() -> None:
    assert new_identity() != new_identity()
