"""What is acceptable as a URL or a ref, and what a log may show of it."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchctl.workspace.errors import Refused
from torchctl.workspace.urls import Redactor, check_ref, check_url


@pytest.mark.parametrize("url", ["https://example.com/a.git", "https://example.com:8443/a", "ssh://git@example.com/a"])
def test_ordinary_urls_are_accepted(url: str) -> None:
    assert check_url(url, ("https", "ssh")).geturl() == url


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://example.com/a", "scheme"),
        ("https:///a", "valid host"),
        ("https://exa mple.com/", "not one"),
        ("https://example.com:0/", "valid host"),
        ("https://example.com:99999/", "not one"),
        ("https://token@example.com/", "credentials"),
        ("ssh://git:pw@example.com/", "credentials"),
        ("ssh://-x@example.com/", "user"),
        ("https://-example.com/", "valid host"),
        ("https://169.254.169.254/latest", "not allowed as a source"),
        ("https://[::ffff:169.254.169.254]/", "not allowed as a source"),
        ("https://[fd00:ec2::254]/", "not allowed as a source"),
        ("https://0.0.0.0/", "not allowed as a source"),
        ("https://exämple.com/", "not one"),
        ("https://example.com/" + "a" * 2048, "not one"),
    ],
)
def test_every_other_url_is_refused_with_its_reason(url: str, why: str) -> None:
    with pytest.raises(Refused, match=why):
        check_url(url, ("https", "ssh"))


@pytest.mark.parametrize("ref", ["main", "v1.0", "feature/x-1", "0" * 40, "a@b", "refs/heads/main"])
def test_ordinary_refs_are_accepted(ref: str) -> None:
    assert check_ref(ref) == ref


@pytest.mark.parametrize(
    "ref", ["", "-x", "--all", "a b", "a..b", "a~1", "a^", "a:b", "a?", "a*", "a[", "a\\b", "/a", "a/", "a.lock", "@",
            "a@{1}", "a//b", ".a", "a/.b", "a\n", "a\x7f", "x" * 256],
)  # fmt: skip
def test_refs_that_git_would_read_otherwise_are_refused(ref: str) -> None:
    with pytest.raises(Refused):
        check_ref(ref)


def test_a_redactor_hides_secrets_userinfo_and_queries() -> None:
    redact = Redactor(["hunter2"])
    shown = redact("GET https://me:pw@example.com/x.zip?X-Sig=abc&b=c failed: hunter2 at https://example.com/y")
    assert shown == "GET https://***@example.com/x.zip?*** failed: *** at https://example.com/y"


@given(st.text(alphabet="abc/:@?=& ", max_size=40), st.text(alphabet="xyz", min_size=4, max_size=8))
def test_a_known_secret_is_never_shown(text: str, secret: str) -> None:
    assert secret not in Redactor([secret])(text + secret + text)


def test_text_of_a_server_is_redacted_in_one_pass() -> None:
    """No deadline and no signal gets a turn meanwhile."""
    text = "remote: " + "a?" * 100_000
    began = time.process_time()
    assert Redactor()(text) == text
    assert Redactor()(text + "=b") == "remote: a?***"
    assert time.process_time() - began < 2
