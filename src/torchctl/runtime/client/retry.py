"""Decides if a failed request is retried, and after which delay. Pure."""

from dataclasses import dataclass

from torchctl.runtime.client.errors import ApiError, Timeout, TooManyRequests, Unavailable

__all__ = ["RetryPolicy"]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits and delays of retries. Delays double each time, and each is shortened at random by up to a half."""

    first_s: float = 0.1
    """The longest first delay, in seconds."""

    cap_s: float = 5.0
    """The longest delay, unless the server asks for more."""

    retry_after_cap_s: float = 60.0
    """The longest wait that a server may ask for."""

    deadline_s: float = 30.0
    """Seconds from the first attempt after which no other begins. A caller with less time cancels."""

    def delay(self, error: ApiError, *, write: bool, attempt: int, elapsed_s: float, jitter: float) -> float | None:
        """Returns the seconds to wait before the request is retried; None if it must not be.

        A write is only retried after a 429, because then the server has not processed it.

        Args:
            error: The error of the last attempt.
            write: The request may change an object.
            attempt: The number of failed attempts, at least 1.
            elapsed_s: Seconds since the first attempt began.
            jitter: A random number in [0, 1).
        """
        if not isinstance(error, TooManyRequests if write else TooManyRequests | Unavailable | Timeout):
            return None
        wait_s = min(self.cap_s, self.first_s * 2.0 ** min(attempt - 1, 32)) * (1 - jitter / 2)
        if error.retry_after_s is not None:
            # Wait longer than asked, never less, and not all clients equally long.
            asked_s = min(error.retry_after_s, self.retry_after_cap_s)
            wait_s = max(wait_s, asked_s * (1 + jitter / 10))
        return wait_s if elapsed_s + wait_s < self.deadline_s else None
