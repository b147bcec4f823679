"""Runs essential tasks: each starts before the code that needs it, stops after it, and never ends silently."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio

from torchctl.runtime.cancellation import cancelled_only_if_asked

__all__ = ["EssentialTaskError", "essential"]


class EssentialTaskError(Exception):
    """An essential task ended although the process still runs. The process ends with this error."""

    def __init__(self, name: str, cause: BaseException | None = None) -> None:
        super().__init__(f"{name} ended: {cause!r}" if cause else f"{name} ended although nothing asked it to")
        self.name = name


@asynccontextmanager
async def essential(name: str, run: Callable[..., Awaitable[None]], *, ready: bool = False) -> AsyncIterator[None]:
    """Runs a task beside the body, cancels it when the body ends, and waits until it has ended.

    Args:
        name: Names the task in the error.
        run: The task, which must not return.
        ready: `run` takes `task_status` and reports when it is ready; the body begins then.

    Raises:
        EssentialTaskError: `run` returned or raised (inside an exception group); the body is cancelled.
    """

    async def watched(*, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        try:
            with cancelled_only_if_asked():
                await (run(task_status=task_status) if ready else run())
        except Exception as error:
            raise EssentialTaskError(name, error) from error
        raise EssentialTaskError(name)

    async with anyio.create_task_group() as tasks:
        if ready:
            await tasks.start(watched)
        else:
            tasks.start_soon(watched)
        yield
        tasks.cancel_scope.cancel()
