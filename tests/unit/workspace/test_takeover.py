"""Connections that send the same upload: a newer one replaces the one before, and never are two of them writing."""

import asyncio
import threading
from functools import partial

import pytest

from torchctl.workspace.answers import in_thread
from torchctl.workspace.receiver import Upload


class Disk:
    """Takes pieces, each for as long as somebody wants."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Semaphore(0), threading.Semaphore(0)
        self.taking, self.most = 0, 0

    def take(self) -> None:
        self.taking += 1
        self.most = max(self.most, self.taking)
        self.begun.release()
        assert self.go_on.acquire(timeout=10)
        self.taking -= 1


@pytest.mark.parametrize("connections", [2, 3, 5])
async def test_only_the_newest_connection_writes(connections: int) -> None:
    """However many come while the disk has not taken the first one's piece."""
    upload, disk, waiting = Upload("0" * 64), Disk(), list[asyncio.Event]()

    async def send(comes: asyncio.Event) -> None:
        comes.set()
        await upload.take_over()
        await in_thread(disk.take)

    sending = list[asyncio.Task[None]]()
    for _ in range(connections):
        waiting.append(asyncio.Event())
        sending.append(asyncio.create_task(send(waiting[-1])))
        await waiting[-1].wait()
        if len(sending) == 1:
            await asyncio.to_thread(partial(disk.begun.acquire, timeout=10))
    for _ in range(3):
        await asyncio.sleep(0)
    disk.go_on.release(connections)
    await asyncio.wait(sending)
    assert [task.cancelled() for task in sending] == [True] * (connections - 1) + [False]
    assert (disk.most, disk.taking) == (1, 0)
