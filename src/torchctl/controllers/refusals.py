"""Turns a refused write into a reason and a message with the next step for a person. Pure."""

import re
from collections.abc import Iterable

from torchctl.controllers.complaints import is_unreadable
from torchctl.runtime.apply import ForeignObject, StillDeleting
from torchctl.runtime.client.errors import ApiError, BadRequest, Forbidden, Invalid, Timeout

__all__ = ["is_refusal", "may_pass", "refusal_reason"]

QUOTA_EXCEEDED = "QuotaExceeded"
REFUSED = "Refused"
FOREIGN_OBJECT = "ForeignObject"
STILL_DELETING = "StillDeleting"
WEBHOOK_FAILED = "WebhookFailed"
TIMED_OUT = "WriteTimedOut"
QUOTA_MARK = "exceeded quota"
"""The start of the ResourceQuota admission plugin's message; the plugin has no reason of its own."""
QUOTA_UNKNOWN = "status unknown for quota"
"""The plugin's words while a new quota is not counted yet, which takes a second or two."""
TOO_LARGE = 413
AGAIN = "it is tried again by itself, at least every minute"
DENIALS = ("denied the request", "denied request:")
"""The API server's words before those of an admission webhook, and of a policy. Webhook and policy choose the status
themselves: a webhook that names none gets 400."""
REASONS = frozenset({QUOTA_EXCEEDED, REFUSED, FOREIGN_OBJECT, STILL_DELETING, WEBHOOK_FAILED, TIMED_OUT})
"""All reasons that are given here, each of which the tables of the API explain."""
GATEWAY_TIMEOUT = 504
WEBHOOK = re.compile(r'failed calling webhook "(?P<name>[^"]*)": (?P<cause>.*)', re.DOTALL)
"""The API server's words, with status 500, if it cannot ask an admission webhook that must be asked."""
CONVERSION = re.compile(r"conversion webhook for (?P<name>.*?) failed: (?P<cause>.*)", re.DOTALL)
"""The same of the webhook that converts a kind between its versions."""
CHANGING = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+(\.\d+){3}:\d+"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"
)
"""Parts of an answer that differ at each try: uids of requests, addresses, times."""
CERTIFICATE = "x509: "
"""The start of the API server's words about a bad certificate, which come in more than one part."""


def is_refusal(error: Exception) -> bool:
    """Whether a person should hear of it: the write was refused, or a webhook that must be asked is not there.

    A conflict or an outage is only a matter of trying again.
    """
    turned_down = isinstance(error, ForeignObject | StillDeleting) or is_unreadable(error) or _is_turned_down(error)
    return turned_down or _failed_webhook(error) is not None or _is_timed_out(error)


def may_pass(reasons: Iterable[str]) -> bool:
    """Whether a refusal may be over at any moment, so that it is tried again soon, then ever later."""
    return any(reason in (WEBHOOK_FAILED, TIMED_OUT) for reason in reasons)


def refusal_reason(error: Exception, child: str) -> tuple[str, str]:
    """Returns reason and message for a condition.

    Raises:
        Exception: `error` itself, if it is no refusal.
    """
    match error:
        case ForeignObject():
            return FOREIGN_OBJECT, f"{error}; it was left as it is: delete or rename it, or rename this object"
        case StillDeleting():
            return STILL_DELETING, f"{error}; all goes on by itself when it is gone"
        case Forbidden() if QUOTA_MARK in str(error):
            return QUOTA_EXCEEDED, f"{child}: {error}; raise the quota or free some of it"
        case _ if _is_turned_down(error):
            step = "correct that, it is tried again every minute; what is immutable of a job is submitted again"
            return REFUSED, f"{child}: the API server refused it: {error}; {step}"
        case ApiError() if webhook := _failed_webhook(error):
            step = "see whether it runs, or remove its configuration"
            return WEBHOOK_FAILED, f"{child}: the API server cannot ask {webhook}; {step}: {AGAIN}"
        case ApiError() if _is_timed_out(error):
            step = "see whether an admission webhook (`kubectl get mutatingwebhookconfigurations`) is slow"
            return TIMED_OUT, f"{child}: the API server did not finish the request in time; {step}: {AGAIN}"
        case ApiError() if is_unreadable(error):
            return REFUSED, f"{child}: the API server cannot read it: {error}; correct this field and submit again"
        case _:
            raise error


def _is_turned_down(error: Exception) -> bool:
    if not isinstance(error, ApiError) or QUOTA_UNKNOWN in error.message:
        return False
    by_policy = any(mark in error.message for mark in DENIALS)
    return isinstance(error, BadRequest | Forbidden | Invalid) or error.code == TOO_LARGE or by_policy


def _failed_webhook(error: Exception) -> str | None:
    """The webhook that could not be asked, and why, in words that stay the same from one try to the next."""
    if not isinstance(error, ApiError) or error.code < 500:
        return None
    for form, what in ((WEBHOOK, "webhook"), (CONVERSION, "the conversion webhook for")):
        if found := form.search(error.message):
            return f"{what} {found['name']} ({_last(found['cause'])})"
    return None


def _last(cause: str) -> str:
    """The end of a chain of causes, which is the one that tells most; what comes before are calls and addresses."""
    stable = CHANGING.sub("...", cause)
    if CERTIFICATE in stable:
        return stable[stable.index(CERTIFICATE) :]
    *_, call, last = ("", *stable.split(": "))
    return last if any(map(str.isalpha, last)) else f"{call}: {last}"


def _is_timed_out(error: Exception) -> bool:
    """Whether a write was given up, by the API server or by us; nobody knows whether it was made."""
    given_up = isinstance(error, Timeout) or (isinstance(error, ApiError) and error.code == GATEWAY_TIMEOUT)
    return given_up and isinstance(error, ApiError) and error.outcome_unknown
