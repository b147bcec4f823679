"""Ending tasks."""

import asyncio
from functools import partial

import anyio
import pytest

from torchctl.runtime.cancellation import cancel, cancelled_only_if_asked, deadline
from torchctl.testing import virtualtime


async def stubborn(lost: asyncio.Event) -> None:
    """Loses its first cancellation."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        lost.set()
    await asyncio.Event().wait()


async def test_task_that_loses_a_cancellation_is_cancelled_again() -> None:
    begun, lost = asyncio.Event(), asyncio.Event()

    async def main() -> None:
        begun.set()
        await stubborn(lost)

    task = asyncio.create_task(main())
    await begun.wait()
    await cancel([task], again_s=0.01)
    assert lost.is_set()
    assert task.cancelled()


async def test_nothing_to_cancel_is_no_error() -> None:
    await cancel([])


def test_body_beyond_its_deadline_times_out() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError), cancelled_only_if_asked(), deadline(3.0):
            await asyncio.Event().wait()
        assert asyncio.get_running_loop().time() == 3.0
        await asyncio.sleep(10)  # nothing cancels this task any more

    virtualtime.run(main)


def test_deadline_cancels_again_what_lost_its_cancellation() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError), deadline(3.0):
            await stubborn(asyncio.Event())
        assert asyncio.get_running_loop().time() == 4.0
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    virtualtime.run(main)


def test_body_in_time_leaves_no_timer() -> None:
    async def main() -> None:
        with deadline(3.0):
            await asyncio.sleep(1)
        await asyncio.sleep(10)

    virtualtime.run(main)


def test_cancellation_from_outside_passes_a_deadline() -> None:
    """Also if both are due at the same moment."""

    async def main(delay_s: float) -> None:
        with anyio.move_on_after(delay_s) as outer:
            with deadline(3.0):
                await asyncio.Event().wait()
        assert outer.cancelled_caught

    for delay_s in (2.0, 3.0):
        virtualtime.run(partial(main, delay_s))


def test_anyio_scope_works_within_a_deadline() -> None:
    async def main() -> None:
        with deadline(3.0):
            with anyio.move_on_after(1.0) as scope:
                await asyncio.Event().wait()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.sleep, 1.0)
        assert scope.cancelled_caught
        with pytest.raises(TimeoutError), deadline(3.0):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.sleep_forever)

    virtualtime.run(main)
