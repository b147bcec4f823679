"""The shell around the queue: waiting, waking, closing."""

import asyncio

import anyio
import anyio.lowlevel
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


async def asleep() -> None:
    """Lets all tasks come to where they wait."""
    for _ in range(3):
        await anyio.lowlevel.checkpoint()


class Counting(SystemClock):
    """Counts how often the time is asked: a worker that wakes up asks."""

    def __init__(self) -> None:
        self.asked = 0

    def monotonic(self) -> float:
        self.asked += 1
        return super().monotonic()


async def test_an_added_key_wakes_one_sleeper_of_many() -> None:
    clock = Counting()
    queue: Queue[str] = Queue(ExponentialLimiter(), clock)
    sleepers = [asyncio.create_task(queue.get()) for _ in range(100)]
    await asleep()
    clock.asked = 0
    queue.add("a")
    done, _ = await asyncio.wait(sleepers, return_when=asyncio.FIRST_COMPLETED)
    assert clock.asked <= 5
    assert [task.result().key for task in done] == ["a"]
    queue.close()
    assert all(
        isinstance(end, Exception) for end in await asyncio.gather(*set(sleepers) - done, return_exceptions=True)
    )


@pytest.mark.parametrize("delay_s", [0.0, 0.01])
async def test_keys_of_one_moment_are_taken_at_once(delay_s: float) -> None:
    """Each wakes a sleeper of its own, although none of them is done."""
    queue = new_queue()
    sleepers = [asyncio.create_task(queue.get()) for _ in range(4)]
    await asleep()
    for key in "abc":
        queue.add(key, delay_s=delay_s)
    with anyio.fail_after(5):
        taken = {(await task).key for task in sleepers[:3]}
    assert taken == {"a", "b", "c"}
    sleepers[3].cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleepers[3]


async def test_key_of_a_cancelled_sleeper_goes_to_the_next() -> None:
    """It is cancelled after it was woken and before it runs."""
    queue = new_queue()
    first, second = (asyncio.create_task(queue.get()) for _ in range(2))
    await asleep()
    queue.add("a")
    first.cancel()
    with anyio.fail_after(5):
        assert (await second).key == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_key_added_again_before_the_work_begins_is_absorbed() -> None:
    queue = new_queue()
    queue.add("a")
    item = await queue.get()
    queue.add(item.key)
    queue.absorb(item.key)
    queue.done(item.key)
    assert queue.statistics().due == 0
    queue.add("b")
    assert (await queue.get()).key == "b"
