"""The lag is how late a timer wakes; a loop that is late for too long is not alive."""

import asyncio
from datetime import UTC, datetime

from torchctl.runtime.looplag import LoopLag
from torchctl.runtime.metrics import Metrics


class LateClock:
    """Sleeps no time at all, but each sleep ends as late as the next entry of `lags` says."""

    def __init__(self, *lags: float) -> None:
        self.time = 100.0
        self.lags = list(lags)
        self.exhausted = asyncio.Event()

    def monotonic(self) -> float:
        return self.time

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.time, UTC)

    async def sleep(self, seconds: float) -> None:
        if not self.lags:
            self.exhausted.set()
            await asyncio.Event().wait()
        self.time += seconds + self.lags.pop(0)


async def lag_after(*lags: float, period_s: float = 0.5) -> tuple[LoopLag, LateClock, Metrics]:
    clock, metrics = LateClock(*lags), Metrics(process=False)
    lag = LoopLag(clock, metrics.event_loop_lag_seconds, period_s=period_s)
    task = asyncio.create_task(lag.run())
    await clock.exhausted.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return lag, clock, metrics


async def test_each_wake_up_is_measured() -> None:
    _, _, metrics = await lag_after(0.0, 0.25, 3.0)
    value = metrics.registry.get_sample_value
    assert value("torchctl_event_loop_lag_seconds_count") == 3
    assert value("torchctl_event_loop_lag_seconds_sum") == 3.25


async def test_it_wakes_once_in_each_period() -> None:
    _, clock, _ = await lag_after(0.0, 0.0, period_s=60.0)
    assert clock.time == 100.0 + 2 * 60.0


async def test_a_lag_of_ten_seconds_is_not_alive() -> None:
    lag, _, _ = await lag_after(10.0)
    assert lag.check() == "the event loop is 10.0 s late"


async def test_a_loop_that_is_on_time_again_is_alive() -> None:
    lag, _, _ = await lag_after(30.0, 0.0)
    assert lag.check() == ""


async def test_a_timer_that_is_overdue_counts_before_it_wakes() -> None:
    clock = LateClock()
    lag = LoopLag(clock, Metrics(process=False).event_loop_lag_seconds)
    task = asyncio.create_task(lag.run())
    await clock.exhausted.wait()
    clock.time += 0.5 + 11
    assert lag.check() == "the event loop is 11.0 s late"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_a_monitor_that_does_not_run_has_no_lag() -> None:
    assert LoopLag(LateClock(), Metrics(process=False).event_loop_lag_seconds).seconds == 0
