"""The errors of requests, as a small tree. Code above the transport never sees an HTTP library's errors."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from torchctl.runtime.kinds import Status, StatusDetails

__all__ = [
    "AlreadyExists",
    "ApiError",
    "BadRequest",
    "Conflict",
    "Forbidden",
    "Gone",
    "Invalid",
    "Malformed",
    "NotFound",
    "NotLeader",
    "StreamFailed",
    "Timeout",
    "TooManyRequests",
    "Unauthorized",
    "Unavailable",
    "Unsupported",
    "error_for",
    "retry_after_s",
]

EXCERPT = 300
"""Characters of an answer that is no Status (such as a load balancer's page) that go into the message."""


class NotLeader(Exception):
    """A write was held back because this process does not lead (any more). Nothing was sent."""


class ApiError(Exception):
    """The API server refused a request, or no answer came.

    Attributes:
        code: The HTTP status; 0 if no answer came.
        reason: metav1.Status.reason, e.g. `NotFound`; empty if there is none.
        message: A text for people; the server's own if it sent one.
        retry_after_s: Seconds that the server asks to wait, None if it does not say.
        outcome_unknown: The write may have been committed although it failed: read the object before deciding.
        details: The object's name and the fields that the refusal is about.
    """

    def __init__(
        self,
        message: str = "",
        *,
        code: int = 0,
        reason: str = "",
        retry_after_s: float | None = None,
        outcome_unknown: bool = False,
        details: StatusDetails | None = None,
    ) -> None:
        super().__init__(message or reason or str(code))
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s
        self.outcome_unknown = outcome_unknown
        self.details = details


class BadRequest(ApiError):
    """400: the server does not understand the request. The call is wrong, or the server is older than it needs."""


class Unauthorized(ApiError):
    """401, also after the credentials were refreshed."""


class Forbidden(ApiError):
    """403: RBAC, a quota, an admission policy, or a namespace that is going away; the message says which."""


class NotFound(ApiError):
    """404: no such object, or the server does not serve the kind."""


class Conflict(ApiError):
    """409: the object has another version, uid or field manager than the request expects."""


class AlreadyExists(ApiError):
    """409 to a create: the name is taken."""


class Gone(ApiError):
    """410: the version or the continue token is too old; list again."""


class Invalid(ApiError):
    """422: validation or an admission policy refused the object; the message names the fields."""


class TooManyRequests(ApiError):
    """429: the server sheds load. It did not process the request."""


class Unavailable(ApiError):
    """5xx, or the server could not be reached, or the connection broke."""


class StreamFailed(ApiError):
    """The node could not do what a pod's stream asks for: nothing listens on the port, the command cannot start.

    The message is the node's.
    """


class Unsupported(ApiError):
    """The server does not speak the protocol of a stream. It will not after a while either."""


class Timeout(ApiError):
    """No answer within the request's deadline."""


class Malformed(ApiError):
    """The server answered with success, but the answer cannot be decoded."""


_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def error_for(
    code: int, body: bytes, headers: Mapping[str, str], *, now: datetime | None = None, write: bool = False
) -> ApiError:
    """Returns the error for an unsuccessful answer.

    Args:
        code: The HTTP status, not 2xx.
        body: A Status as JSON, or the text of a proxy in between.
        headers: Looked up by `Retry-After`; pass a mapping that ignores case.
        now: The wall clock, for a Retry-After that is a date.
        write: The request was a write, so that a 5xx leaves its outcome unknown.
    """
    status = _status(body)
    return _type(code, status.reason)(
        status.message or f"{code}: {_excerpt(body)}",
        code=code,
        reason=status.reason,
        retry_after_s=_delay(headers, status, now),
        outcome_unknown=write and code >= 500,
        details=status.details,
    )


def retry_after_s(value: str, now: datetime | None = None) -> float | None:
    """Returns the seconds that a Retry-After header (a number or a date) asks for; None if it is invalid."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    if now is None:
        return None
    return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now.timestamp())


def _type(code: int, reason: str) -> type[ApiError]:
    if reason == "AlreadyExists":
        return AlreadyExists
    return Unavailable if code >= 500 else _BY_CODE.get(code, ApiError)


def _delay(headers: Mapping[str, str], status: Status, now: datetime | None) -> float | None:
    header = headers.get("Retry-After")
    if header is not None:
        return retry_after_s(header, now)
    if status.details is not None and status.details.retry_after_seconds:
        return float(status.details.retry_after_seconds)
    return None


def _status(body: bytes) -> Status:
    try:
        return msgspec.json.decode(body, type=Status)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Status()


def _excerpt(body: bytes) -> str:
    return " ".join(body[:EXCERPT].decode(errors="replace").split()) or "no message"
