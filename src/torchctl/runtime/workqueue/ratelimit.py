"""Delays for keys that failed.

The default is controller-runtime's: exponential by key, with client-go's constants. client-go's bucket for all keys
together is left out on purpose: behind a thousand keys that fail, a healthy one would wait for minutes. How many
reconciles run at once is bounded by the workers.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

__all__ = ["ExponentialLimiter", "RateLimiter"]

K = TypeVar("K", bound=Hashable)
K_contra = TypeVar("K_contra", bound=Hashable, contravariant=True)

BASE_DELAY_S = 0.005
MAX_DELAY_S = 1000.0


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
