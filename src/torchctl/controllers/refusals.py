"""What a refused write means to a person: a reason, and a message with the next step. Pure."""

from dataclasses import dataclass

from torchctl.controllers.unreadable import UNREADABLE_MARK
from torchctl.runtime.apply import ForeignObject
from torchctl.runtime.client.errors import ApiError, BadRequest, Forbidden, Invalid

__all__ = ["Refusal", "is_refusal", "refusal_reason"]

QUOTA_EXCEEDED = "QuotaExceeded"
REFUSED = "Refused"
FOREIGN_OBJECT = "ForeignObject"
QUOTA_MARK = "exceeded quota"
"""How the ResourceQuota admission plugin begins its message; it has no reason of its own."""
QUOTA_UNKNOWN = "status unknown for quota"
"""What the same plugin says while a quota that was just made is not counted yet, which takes a second or two."""
TOO_LARGE = 413
DENIALS = ("denied the request", "denied request:")
"""What the API server puts before the words of an admission webhook, and of a policy. The status is theirs to choose: a
webhook that names none is 400."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A write that was turned down: of which object, and reason and message as in a condition.

    An object that `stays` should have been deleted or ended. That is no step of a job, and holds nothing up.
    """

    kind: str
    name: str
    reason: str
    message: str
    stays: bool = False


def is_refusal(error: Exception) -> bool:
    """Whether the write was turned down for what it is. A conflict or an outage is only a matter of trying again."""
    return isinstance(error, ForeignObject) or _is_unreadable(error) or _is_turned_down(error)


def refusal_reason(error: Exception, child: str) -> tuple[str, str]:
    """Reason and message for a condition.

    Raises:
        Exception: `error` itself where it is no refusal.
    """
    match error:
        case ForeignObject():
            return FOREIGN_OBJECT, f"{error}; it was left as it is: delete or rename it, or rename this object"
        case Forbidden() if QUOTA_MARK in str(error):
            return QUOTA_EXCEEDED, f"{child}: {error}; raise the quota or free some of it"
        case _ if _is_turned_down(error):
            step = "correct that, it is tried again every minute; what is immutable of a job is submitted again"
            return REFUSED, f"{child}: the API server refused it: {error}; {step}"
        case ApiError() if _is_unreadable(error):
            return REFUSED, f"{child}: the API server cannot read it: {error}; correct this field and submit again"
        case _:
            raise error


def _is_turned_down(error: Exception) -> bool:
    if not isinstance(error, ApiError) or QUOTA_UNKNOWN in error.message:
        return False
    by_policy = any(mark in error.message for mark in DENIALS)
    return isinstance(error, BadRequest | Forbidden | Invalid) or error.code == TOO_LARGE or by_policy


def _is_unreadable(error: Exception) -> bool:
    return isinstance(error, ApiError) and error.code == 500 and error.message.startswith(UNREADABLE_MARK)
