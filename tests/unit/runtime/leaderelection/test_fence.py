"""The fence is open only while leadership lasts, by the clock and not by anybody's word."""

from datetime import UTC, datetime

import pytest

from torchctl.runtime.client.errors import NotLeader
from torchctl.runtime.leaderelection.fence import Fence


class HandClock:
    time = 100.0

    def monotonic(self) -> float:
        return self.time

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.time, UTC)

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


def test_it_is_shut_until_it_is_armed() -> None:
    with pytest.raises(NotLeader):
        Fence(HandClock()).check()


def test_fence_opens_until_the_deadline_and_shuts_by_itself() -> None:
    clock = HandClock()
    fence = Fence(clock)
    fence.arm(110)
    clock.time = 109.9
    fence.check()
    clock.time = 110
    with pytest.raises(NotLeader):
        fence.check()


def test_a_renewal_moves_the_deadline() -> None:
    clock = HandClock()
    fence = Fence(clock)
    fence.arm(110)
    fence.arm(112)
    clock.time = 111
    assert fence.remaining_s == 1
    fence.check()


def test_disarmed_is_shut_at_once() -> None:
    fence = Fence(HandClock())
    fence.arm(110)
    fence.disarm()
    with pytest.raises(NotLeader):
        fence.check()


def test_without_election_it_never_refuses() -> None:
    Fence.open().check()
