"""When a request is worth sending again, and how long to wait before. Pure."""

from dataclasses import dataclass

from torchctl.runtime.client.errors import ApiError, Timeout, TooManyRequests, Unavailable

__all__ = ["RetryPolicy"]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How patient the client is. Delays grow by doubling, each one shortened at random by up to a half."""

    first_s: float = 0.1
    """The longest first delay."""

    cap_s: float = 5.0
    """The longest delay, unless the server asks for more."""

    retry_after_cap_s: float = 60.0
    """The longest wait that a server may ask for."""

    deadline_s: float = 30.0
    """From the first attempt on; no attempt begins later. A caller with less time cancels."""

    def delay(self, error: ApiError, *, write: bool, attempt: int, elapsed_s: float, jitter: float) -> float | None:
        """How long to wait before the request is sent again; None if it is not.

        A write is only repeated after a 429, which says that the server did not look at it.

        Args:
            error: How the last attempt failed.
            write: Whether the request changes anything.
            attempt: How many attempts failed, at least 1.
            elapsed_s: Since the first attempt began.
            jitter: A random number in [0, 1).
        """
        if not isinstance(error, TooManyRequests if write else TooManyRequests | Unavailable | Timeout):
            return None
        wait_s = min(self.cap_s, self.first_s * 2.0 ** min(attempt - 1, 32)) * (1 - jitter / 2)
        if error.retry_after_s is not None:
            # Later than asked rather than earlier, and not all clients at once.
            asked_s = min(error.retry_after_s, self.retry_after_cap_s)
            wait_s = max(wait_s, asked_s * (1 + jitter / 10))
        return wait_s if elapsed_s + wait_s < self.deadline_s else None
