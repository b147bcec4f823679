"""Every answer that is no success becomes the right member of the tree, whoever speaks."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchctl.runtime.client import errors
from torchctl.runtime.client.errors import ApiError, error_for, retry_after_s

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def status(reason: str, message: str = "said the server", **details: object) -> bytes:
    return msgspec.json.encode({"kind": "Status", "reason": reason, "message": message, "details": details})


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (400, "BadRequest", errors.BadRequest),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (405, "MethodNotAllowed", ApiError),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Gone),
        (415, "UnsupportedMediaType", ApiError),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.Unavailable),
        (503, "ServiceUnavailable", errors.Unavailable),
        (504, "Timeout", errors.Unavailable),
    ],
)
def test_code_and_reason_decide_the_type(code: int, reason: str, expected: type[ApiError]) -> None:
    error = error_for(code, status(reason), {})
    assert type(error) is expected
    assert (error.code, error.reason, str(error)) == (code, reason, "said the server")


def test_already_exists_is_not_a_conflict() -> None:
    """A conflict is worth a retry, AlreadyExists is not."""
    assert not issubclass(errors.AlreadyExists, errors.Conflict)


def test_html_of_a_load_balancer_is_quoted_in_one_line() -> None:
    error = error_for(502, b"<html>\n  <h1>Bad   Gateway</h1>\n" + b"x" * 10_000, {})
    assert isinstance(error, errors.Unavailable)
    assert str(error).startswith("502: <html> <h1>Bad Gateway</h1>")
    assert len(str(error)) < 400


def test_details_name_the_object() -> None:
    error = error_for(409, status("AlreadyExists", name="train", kind="jobs"), {})
    assert error.details is not None
    assert error.details.name == "train"


@pytest.mark.parametrize(("write", "code", "unknown"), [(True, 503, True), (True, 409, False), (False, 503, False)])
def test_only_a_write_answered_5xx_has_an_unknown_outcome(write: bool, code: int, unknown: bool) -> None:
    assert error_for(code, b"", {}, write=write).outcome_unknown is unknown


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("Thu, 01 Jan 2026 00:00:30 GMT", 30.0),
        ("Wed, 31 Dec 2025 00:00:00 GMT", 0.0),
        ("soon", None),
        ("-1", None),
        ("", None),
        ("9" * 400, 999_999_999.0),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str, expected: float | None) -> None:
    assert retry_after_s(value, NOW) == expected


def test_without_the_header_the_status_says_how_long_to_wait() -> None:
    assert error_for(429, status("TooManyRequests", retryAfterSeconds=3), {}).retry_after_s == 3.0


def test_the_header_goes_before_the_status() -> None:
    body = status("TooManyRequests", retryAfterSeconds=3)
    assert error_for(429, body, {"Retry-After": "9"}).retry_after_s == 9.0


@given(st.integers(300, 599), st.binary(), st.text())
def test_no_answer_is_too_strange_for_an_error(code: int, body: bytes, header: str) -> None:
    error = error_for(code, body, {"Retry-After": header}, now=NOW)
    assert error.code == code
    assert str(error)
