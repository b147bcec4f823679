"""The delays of a watch after failures."""

from torchctl.runtime.watch.inputs import Cause, ErrorStatus, Failure
from torchctl.runtime.watch.settings import WatchSettings

__all__ = ["Backoff"]


class Backoff:
    """Delays that double with each failure of the same cause until a healthy stream resets them all."""

    def __init__(self, settings: WatchSettings) -> None:
        self._base_s = settings.backoff_base_s
        self._retry_after_cap_s = settings.retry_after_cap_s
        self._caps_s = {
            Cause.OUTAGE: settings.lost_cap_s,
            Cause.REFUSED: settings.backoff_cap_s,
            Cause.FORBIDDEN: settings.forbidden_cap_s,
        }
        self._attempts = dict.fromkeys(Cause, 0)

    def delay(self, failure: Failure, jitter: float) -> float:
        """Counts `failure` and returns the seconds to rest. `jitter` in [0, 1) shortens the delay by up to half.

        A Retry-After is a lower bound, so the jitter lengthens it instead.
        """
        if isinstance(failure, ErrorStatus) and failure.retry_after_s is not None:
            return min(failure.retry_after_s, self._retry_after_cap_s) + self._base_s * jitter
        attempt = self._attempts[failure.cause]
        self._attempts[failure.cause] = attempt + 1
        doubled_s = self._base_s * 2.0 ** min(attempt, 30)
        return min(doubled_s, self._caps_s[failure.cause]) * (1 - jitter / 2)

    def reset(self) -> None:
        self._attempts = dict.fromkeys(Cause, 0)
