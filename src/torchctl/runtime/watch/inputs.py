"""The inputs of the watch machine, besides the pages and lines that it receives."""

from dataclasses import dataclass
from enum import Enum

__all__ = ["Cause", "Closed", "ErrorStatus", "Failure", "Lost", "Opened", "Rested", "Silent"]


class Cause(Enum):
    """The cause why a watch rests. Each cause has its own back-off."""

    OUTAGE = "outage"
    REFUSED = "refused"
    FORBIDDEN = "forbidden"


@dataclass(frozen=True, slots=True)
class Opened:
    """The server accepted the watch; lines follow."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The server ended the stream regularly."""

    cause = Cause.REFUSED


@dataclass(frozen=True, slots=True)
class Silent:
    """Nothing came within the machine's patience."""

    cause = Cause.OUTAGE


@dataclass(frozen=True, slots=True)
class Lost:
    """The server could not be reached, or the connection broke."""

    error: str = ""
    cause = Cause.OUTAGE


@dataclass(frozen=True, slots=True)
class ErrorStatus:
    """The server answered with an error, as HTTP status or as an ERROR event."""

    code: int
    reason: str = ""
    message: str = ""
    retry_after_s: float | None = None

    @property
    def cause(self) -> Cause:
        if self.is_forbidden:
            return Cause.FORBIDDEN
        return Cause.OUTAGE if self.code >= 500 else Cause.REFUSED

    @property
    def is_expired(self) -> bool:
        """The version or the continue token is too old."""
        return self.code == 410 or self.reason in ("Expired", "Gone")

    @property
    def is_unsupported(self) -> bool:
        """The server does not know a parameter of the request."""
        return self.code in (400, 422)

    @property
    def is_forbidden(self) -> bool:
        return self.code in (401, 403)

    @property
    def is_missing(self) -> bool:
        return self.code == 404

    @property
    def is_throttled(self) -> bool:
        return self.code == 429


@dataclass(frozen=True, slots=True)
class Rested:
    """The wait is over."""


Failure = Closed | Silent | Lost | ErrorStatus
