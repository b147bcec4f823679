"""A cancellation that nobody asked for is an error; one that was asked for stays a cancellation."""

import asyncio

import anyio
import pytest

from torchctl.runtime.cancellation import StrayCancellation, cancelled_only_if_asked
from torchctl.testing import virtualtime


def cancelled() -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    return future


def test_awaiting_a_future_that_another_cancelled_is_an_error() -> None:
    async def main() -> None:
        with pytest.raises(StrayCancellation), cancelled_only_if_asked():
            await cancelled()

    virtualtime.run(main)


def test_a_cancel_scope_around_the_guard_still_cancels() -> None:
    async def main() -> None:
        with anyio.move_on_after(1) as scope, cancelled_only_if_asked():
            await anyio.sleep_forever()
        assert scope.cancelled_caught

    virtualtime.run(main)


def test_a_deadline_inside_the_guard_stays_a_timeout() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError), cancelled_only_if_asked(), anyio.fail_after(1):
            await anyio.sleep_forever()
        with pytest.raises(StrayCancellation), cancelled_only_if_asked():
            await cancelled()

    virtualtime.run(main)


def test_a_task_group_that_ends_cancels_its_guarded_task() -> None:
    async def guarded() -> None:
        with cancelled_only_if_asked():
            await anyio.sleep_forever()

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(guarded)
            await anyio.sleep(1)
            tasks.cancel_scope.cancel()

    virtualtime.run(main)


def test_a_task_cancelled_by_asyncio_is_cancelled() -> None:
    async def guarded() -> None:
        with cancelled_only_if_asked():
            await anyio.sleep_forever()

    async def main() -> None:
        task = asyncio.get_running_loop().create_task(guarded())
        await anyio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    virtualtime.run(main)
