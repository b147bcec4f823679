"""The limiters' arithmetic, beside client-go's documented constants."""

from torchctl.runtime.workqueue import BucketLimiter, ExponentialLimiter, default_limiter


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


def test_the_bucket_lets_its_burst_through_and_spaces_the_rest() -> None:
    bucket: BucketLimiter[str] = BucketLimiter(per_s=10.0, burst=3)
    assert [round(bucket.delay("a", 0.0), 3) for _ in range(5)] == [0.0, 0.0, 0.0, 0.1, 0.2]
    assert bucket.delay("a", 10.0) == 0.0


def test_the_default_limiter_is_as_slow_as_its_slowest_part() -> None:
    limiter = default_limiter()
    delays = [limiter.delay(f"key-{number}", 0.0) for number in range(101)]
    assert delays[0] == 0.005
    assert delays[-1] == 0.1
