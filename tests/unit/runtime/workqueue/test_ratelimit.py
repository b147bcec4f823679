"""The limiters' arithmetic, beside client-go's documented constants."""

import pytest

from torchctl.controllers.settings import RETRY_CAP_S
from torchctl.runtime.workqueue import ExponentialLimiter


def test_delays_double_from_five_milliseconds_to_a_thousand_seconds() -> None:
    limiter: ExponentialLimiter[str] = ExponentialLimiter()
    delays = [limiter.delay("a", 0.0) for _ in range(20)]
    assert delays[:4] == [0.005, 0.01, 0.02, 0.04]
    assert delays[-1] == 1000.0


def test_forgetting_a_key_starts_it_over_and_leaves_others_alone() -> None:
    limiter: ExponentialLimiter[str] = ExponentialLimiter()
    for key in ("a", "a", "b"):
        limiter.delay(key, 0.0)
    limiter.forget("a")
    assert (limiter.delay("a", 0.0), limiter.delay("b", 0.0)) == (0.005, 0.01)


def test_failing_keys_do_not_slow_each_other_down() -> None:
    limiter: ExponentialLimiter[int] = ExponentialLimiter()
    for key in range(2000):
        limiter.delay(key, 0.0)
    assert limiter.delay(2000, 0.0) == 0.005


@pytest.mark.parametrize(
    ("outage_s", "limiter"), [(30, ExponentialLimiter[int]()), (3600, ExponentialLimiter[int](cap_s=RETRY_CAP_S))]
)
def test_a_thousand_keys_are_tried_soon_after_an_outage(outage_s: float, limiter: ExponentialLimiter[int]) -> None:
    """Within 30 s: after a short one by the default, after a long one with the cap of our own reconcilers."""
    tried_s = []
    for key in range(1000):
        now_s = 0.0
        while now_s < outage_s:
            now_s += limiter.delay(key, now_s)
        tried_s.append(now_s)
    assert max(tried_s) <= outage_s + 30
