"""Virtual time passes in no time, and waiting for nothing is an error."""

import asyncio
import threading

import anyio
import pytest

from torchctl.testing import virtualtime


def test_an_hour_passes_at_once() -> None:
    async def main() -> float:
        clock = virtualtime.VirtualClock()
        await clock.sleep(3600)
        return clock.monotonic()

    assert virtualtime.run(main) == pytest.approx(3600)


def test_timeouts_are_virtual_too() -> None:
    async def main() -> bool:
        with anyio.move_on_after(1000) as scope:
            await anyio.sleep_forever()
        return scope.cancelled_caught

    assert virtualtime.run(main)


def test_the_wall_clock_follows() -> None:
    async def main() -> float:
        clock = virtualtime.VirtualClock()
        began = clock.now()
        await clock.sleep(90)
        return (clock.now() - began).total_seconds()

    assert virtualtime.run(main) == pytest.approx(90)


def test_waiting_for_what_cannot_happen_is_an_error() -> None:
    async def main() -> None:
        await anyio.Event().wait()

    with pytest.raises(virtualtime.Deadlock):
        virtualtime.run(main)


def test_what_is_for_a_thread_runs_at_once() -> None:
    async def main() -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, divmod, 1, 0)
        return await loop.run_in_executor(None, threading.get_ident), loop.time()

    assert virtualtime.run(main) == (threading.get_ident(), 0.0)
