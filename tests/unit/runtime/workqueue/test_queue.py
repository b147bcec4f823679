"""The shell around the queue: waiting, waking, closing."""

import anyio
import pytest

from torchctl.runtime.clock import SystemClock
from torchctl.runtime.workqueue import ExponentialLimiter, Queue, QueueClosed


def new_queue() -> Queue[str]:
    return Queue(ExponentialLimiter(), SystemClock())


async def test_get_waits_for_a_key_that_is_added_later() -> None:
    queue = new_queue()
    seen: list[str] = []

    async def worker() -> None:
        item = await queue.get()
        seen.append(item.key)
        queue.done(item.key)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker)
            await anyio.lowlevel.checkpoint()
            queue.add("a")
    assert seen == ["a"]


async def test_a_delayed_key_wakes_the_waiter_without_a_further_add() -> None:
    queue = new_queue()
    queue.add_after("a", 0.01)
    with anyio.fail_after(5):
        assert (await queue.get()).key == "a"


async def test_every_waiter_goes_home_when_the_queue_closes() -> None:
    queue = new_queue()

    async def worker() -> None:
        with pytest.raises(QueueClosed):
            await queue.get()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(worker)
            await anyio.lowlevel.checkpoint()
            queue.close()
