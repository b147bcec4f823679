"""Essential tasks: none of them ends in silence."""

import anyio
import pytest

from torchctl.runtime.supervise import EssentialTaskError, essential
from torchctl.testing import virtualtime


def test_a_task_that_returns_ends_the_body_with_its_name() -> None:
    async def returns() -> None:
        await anyio.sleep(1)

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as caught:
            async with essential("watcher", returns):
                await anyio.sleep_forever()
        assert "watcher" in str(caught.value.exceptions[0])
        assert caught.group_contains(EssentialTaskError)

    virtualtime.run(main)


def test_a_task_that_raises_keeps_its_cause() -> None:
    async def raises() -> None:
        raise RuntimeError("broken")

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as caught:
            async with essential("watcher", raises):
                await anyio.sleep_forever()
        error = caught.value.exceptions[0]
        assert isinstance(error, EssentialTaskError)
        assert isinstance(error.__cause__, RuntimeError)

    virtualtime.run(main)


def test_the_task_is_over_when_the_body_is_left() -> None:
    steps: list[str] = []

    async def runs() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            steps.append("stopped")

    async def main() -> None:
        async with essential("watcher", runs):
            await anyio.sleep(1)
        steps.append("left")

    virtualtime.run(main)
    assert steps == ["stopped", "left"]


def test_the_body_begins_when_the_task_is_ready() -> None:
    steps: list[str] = []

    async def runs(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        await anyio.sleep(3)
        steps.append("ready")
        task_status.started()
        await anyio.sleep_forever()

    async def main() -> None:
        async with essential("server", runs, ready=True):
            steps.append("body")

    virtualtime.run(main)
    assert steps == ["ready", "body"]
