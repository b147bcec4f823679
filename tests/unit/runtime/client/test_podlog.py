"""A container's log over a real connection that is cut at any byte: each line comes once, in order."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from random import Random

import pytest
from aiohttp import web

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.errors import NotFound, Unavailable
from torchctl.runtime.client.loglines import Cursor
from torchctl.runtime.client.podlog import PodLog
from torchctl.runtime.client.transport import AiohttpTransport
from torchctl.runtime.kinds import Key
from torchctl.testing.clock import ManualClock
from torchctl.testing.logfiles import LogFile, LogFiles

KEY = Key("team", "train-0")
NS = 10**9


@asynccontextmanager
async def reading(logs: LogFiles, *, cursor: Cursor | None = None, pod: str = KEY.name) -> AsyncGenerator[PodLog]:
    app = web.Application()
    app.router.add_get("/api/v1/namespaces/{namespace}/pods/{pod}/log", logs.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with AiohttpTransport(Connection(f"http://127.0.0.1:{runner.addresses[0][1]}")) as transport:
            yield PodLog(Client(transport), pod, KEY.namespace, container="trainer", cursor=cursor, clock=ManualClock())
    finally:
        await runner.cleanup()


async def texts(log: PodLog, file: LogFile) -> list[str]:
    return [line.text async for lines in log.follow(lambda: file.has_ended) for line in lines]


@pytest.mark.parametrize("seed", range(5))
async def test_a_log_that_is_cut_at_random_comes_whole(seed: int) -> None:
    random, logs = Random(seed), LogFiles()
    file = logs[KEY]
    for number in range(200):
        # Many lines of one time, and some that are late.
        file.write(f"line {number}\n", max(0, number // 20 * NS - random.choice([0, 0, NS // 2])))
    file.cut_after += [random.randrange(1, 4000) for _ in range(5)]
    file.end()
    async with reading(logs) as log:
        assert await texts(log, file) == [f"line {number}" for number in range(200)]
    assert file.requests > 1


async def test_end_of_an_answer_is_not_the_containers() -> None:
    logs = LogFiles()
    file = logs[KEY]
    file.write("before\n", 1)
    # The node's log server restarts: its answer ends, and nothing was cut.
    file.has_ended = True
    ended = iter([False, False, True, True])
    async with reading(logs) as log:
        found: list[str] = []
        async for lines in log.follow(lambda: next(ended)):
            found += [line.text for line in lines]
            if file.requests == 1 and found == ["before"]:
                file.write("after\n", 2)
    assert found == ["before", "after"]
    assert file.requests == 3  # the third one has nothing new


async def test_an_end_that_was_a_cut_is_no_end() -> None:
    """The API server ends its answer as if all was well when the node cuts the connection."""
    logs = LogFiles()
    file = logs[KEY]
    for number in range(100):
        file.write(f"line {number}\n", number)
    file.quiet_cut_after += [20, 50, 1000, 1500, 60, 10]
    file.end()
    async with reading(logs) as log:
        assert await texts(log, file) == [f"line {number}" for number in range(100)]


async def test_a_last_line_without_line_end_comes_once() -> None:
    logs = LogFiles()
    file = logs[KEY]
    file.write("whole\n", 1)
    file.write("half", 2)
    file.end()
    async with reading(logs) as log:
        assert await texts(log, file) == ["whole", "half"]


async def test_a_tail_is_asked_for_once() -> None:
    logs = LogFiles()
    file = logs[KEY]
    for number in range(10):
        file.write(f"{number}\n", number * NS)
    file.cut_after.append(40)
    file.end()
    async with reading(logs, cursor=Cursor(tail=3)) as log:
        assert await texts(log, file) == ["7", "8", "9"]


async def test_snapshot_of_a_growing_log_comes_to_an_end() -> None:
    logs = LogFiles()
    file = logs[KEY]
    for number in range(10):
        file.write(f"{number}\n", number)
    file.cut_after.append(100)
    async with reading(logs) as log:
        found: list[str] = []
        async for lines in log.snapshot():
            found += [line.text for line in lines]
            file.write("more\n", 11)
    assert found[:10] == [str(number) for number in range(10)]
    assert file.requests == 2


async def test_a_pod_may_go_after_its_log_has_ended() -> None:
    logs = LogFiles()
    logs[KEY].write("one\n", 1)
    async with reading(logs) as log:
        found: list[str] = []
        async for lines in log.follow(lambda: True):
            found += [line.text for line in lines]
            logs.remove(KEY)
    assert found == ["one"]


async def test_a_pod_that_is_gone_before_is_not_found() -> None:
    async with reading(LogFiles()) as log:
        with pytest.raises(NotFound):
            await texts(log, LogFile())


async def test_log_out_of_reach_is_given_up_in_the_end() -> None:
    clock = ManualClock(0.0)
    async with AiohttpTransport(Connection("http://127.0.0.1:1")) as transport:
        log = PodLog(Client(transport), KEY.name, KEY.namespace, clock=clock)
        with pytest.raises(Unavailable, match="cannot connect"):
            await texts(log, LogFile())
    assert clock.monotonic() > 200
