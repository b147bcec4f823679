"""Ending tasks."""

import asyncio

from torchctl.runtime.cancellation import cancel


async def test_task_that_loses_a_cancellation_is_cancelled_again() -> None:
    begun, lost = asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            lost.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(stubborn())
    await begun.wait()
    await cancel([task], again_s=0.01)
    assert lost.is_set()
    assert task.cancelled()


async def test_nothing_to_cancel_is_no_error() -> None:
    await cancel([])
