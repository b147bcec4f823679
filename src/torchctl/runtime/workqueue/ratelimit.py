"""Delays for keys that failed: client-go's limiters and their constants."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

__all__ = ["BucketLimiter", "ExponentialLimiter", "MaxOfLimiter", "RateLimiter", "default_limiter"]

K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)

BASE_DELAY_S = 0.005
MAX_DELAY_S = 1000.0
BUCKET_PER_S = 10.0
BUCKET_BURST = 100


class RateLimiter(Protocol[K_contra]):
    def delay(self, key: K_contra, now: float) -> float:
        """Counts one more failure of `key` and returns the seconds that it must wait."""
        ...

    def forget(self, key: K_contra) -> None:
        """Drops the failures of `key`; its next failure counts as the first."""
        ...


@dataclass(slots=True)
class ExponentialLimiter(Generic[K]):
    """Doubles the delay with each failure of a key, up to a cap (client-go's ItemExponentialFailureRateLimiter)."""

    base_s: float = BASE_DELAY_S
    cap_s: float = MAX_DELAY_S
    _failures: dict[K, int] = field(default_factory=dict)

    def delay(self, key: K, now: float) -> float:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        # 2.0**1024 would overflow. Every cap is reached before the 64th doubling.
        return min(self.base_s * 2.0 ** min(failures, 64), self.cap_s)

    def forget(self, key: K) -> None:
        self._failures.pop(key, None)


@dataclass(slots=True)
class BucketLimiter(Generic[K]):
    """Limits all keys together: `burst` at once, then `per_s` a second, each reservation queueing after the last."""

    per_s: float = BUCKET_PER_S
    burst: int = BUCKET_BURST
    _tokens: float = field(init=False)
    _at: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._tokens = float(self.burst)

    def delay(self, key: K, now: float) -> float:
        self._tokens = min(self._tokens + max(now - self._at, 0.0) * self.per_s, float(self.burst)) - 1.0
        self._at = now
        return max(-self._tokens / self.per_s, 0.0)

    def forget(self, key: K) -> None:
        """Does nothing, because a bucket does not track keys."""


@dataclass(frozen=True, slots=True)
class MaxOfLimiter(Generic[K]):
    """Uses the longest delay of several limiters. Each of them counts the failure."""

    limiters: tuple[RateLimiter[K], ...]

    def delay(self, key: K, now: float) -> float:
        return max(limiter.delay(key, now) for limiter in self.limiters)

    def forget(self, key: K) -> None:
        for limiter in self.limiters:
            limiter.forget(key)


def default_limiter(*, cap_s: float = MAX_DELAY_S) -> MaxOfLimiter[Hashable]:
    """Makes client-go's DefaultControllerRateLimiter.

    A key's delay starts at 5 ms and doubles up to `cap_s`; all keys together get 10/s after a burst of 100.
    """
    return MaxOfLimiter((ExponentialLimiter(cap_s=cap_s), BucketLimiter()))
