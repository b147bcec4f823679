"""Ctrl-C ends a command whatever it does at that moment."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from signal import SIGINT, default_int_handler, getsignal

import anyio
import anyio.lowlevel
import pytest
import yaml

from torchctl.cli.torchrun import common
from torchctl.client.cluster import Cluster, Target


@pytest.fixture
def somewhere(tmp_path: Path) -> Target:
    """A cluster that nobody asks anything."""
    config = {
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "here", "user": {"token": "secret"}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here"}}],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    return Target(kubeconfig=str(path))


@pytest.mark.timeout(20)
def test_interrupt_that_a_task_loses_comes_again(somewhere: Target) -> None:
    """A cancellation can meet the end of what a task awaits, and is lost."""

    async def loses_it(_: Cluster) -> None:
        os.kill(os.getpid(), SIGINT)
        with suppress(asyncio.CancelledError):
            await anyio.sleep_forever()
        await anyio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        anyio.run(common._connected, somewhere, loses_it)


@pytest.mark.timeout(20)
def test_second_interrupt_does_not_wait(somewhere: Target) -> None:
    async def takes_its_time(_: Cluster) -> None:
        os.kill(os.getpid(), SIGINT)
        with anyio.CancelScope(shield=True):
            while getsignal(SIGINT) is not default_int_handler:
                await anyio.lowlevel.checkpoint()
            os.kill(os.getpid(), SIGINT)
            await anyio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        anyio.run(common._connected, somewhere, takes_its_time)


@pytest.mark.timeout(20)
def test_two_interrupts_at_once_end_it(somewhere: Target) -> None:
    async def is_interrupted(_: Cluster) -> None:
        for _number in range(2):
            os.kill(os.getpid(), SIGINT)
        with anyio.CancelScope(shield=True):
            await anyio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        anyio.run(common._connected, somewhere, is_interrupted)


def test_result_comes_where_nobody_interrupts(somewhere: Target) -> None:
    """In a thread too, which gets no signals."""

    async def answers(_: Cluster) -> int:
        return 7

    assert anyio.run(common._connected, somewhere, answers) == 7
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(anyio.run, common._connected, somewhere, answers).result() == 7
