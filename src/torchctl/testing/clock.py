"""A clock that stands still until a test moves it."""

from datetime import UTC, datetime, timedelta

from anyio.lowlevel import checkpoint

__all__ = ["ManualClock"]

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """A `torchctl.runtime.clock.Clock` moved by hand; a sleep moves it too, and takes no time."""

    def __init__(self, seconds: float = 1000.0) -> None:
        self.seconds = seconds

    def __repr__(self) -> str:
        return f"<ManualClock at {self.seconds:g} s>"

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.seconds)

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        await checkpoint()
