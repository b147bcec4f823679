"""What an etcd server's answers mean. Those here are of etcd 3.4.23 and 3.6.16, as they gave them."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchctl.preflight.core import Answer, NotUsable, Silence, V2Off, judge

WHERE = "etcd.team:2379"
V34 = Answer(200, '{"etcdserver":"3.4.23","etcdcluster":"3.4.0"}')
NO_KEY = Answer(404, '{"errorCode":100,"message":"Key not found","cause":"/torch","index":3}\n')
KEY = Answer(200, '{"action":"get","node":{"key":"/torch/elastic","dir":true,"modifiedIndex":4,"createdIndex":4}}\n')
NO_PATH = Answer(404, "404 page not found\n")


@pytest.mark.parametrize("keys", [NO_KEY, KEY])
@pytest.mark.parametrize("version", [V34, Silence("no answer")])
def test_v2_api_that_answers_is_on_with_or_without_keys(version: Answer, keys: Answer) -> None:
    assert judge(WHERE, version, keys) is None


def test_v2_api_that_is_off_is_reported_with_its_flag() -> None:
    with pytest.raises(V2Off) as raised:
        judge(WHERE, V34, NO_PATH)
    assert str(raised.value) == (
        "etcd 3.4.23 at etcd.team:2379 answers, but its v2 API is off. "
        "Start it with --enable-v2 (etcd 3.4 or 3.5), or use rdzvBackend c10d"
    )


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("3.3.10", "its v2 API is off"),
        ("3.5.21", "its v2 API is off"),
        ("3.6.0-rc.1", "no v2 API any more"),
        ("3.6.16", "no v2 API any more"),
        ("3.10.0", "no v2 API any more"),
        ("4.0", "no v2 API any more"),
    ],
)
def test_a_server_that_no_flag_helps_is_told_otherwise(version: str, words: str) -> None:
    with pytest.raises(V2Off, match=words):
        judge(WHERE, Answer(200, f'{{"etcdserver":"{version}"}}'), NO_PATH)


@pytest.mark.parametrize(
    ("version", "keys"),
    [
        (NO_PATH, NO_PATH),
        (Answer(200, "<html>"), Answer(200, "<html>")),
        (Answer(200, "<html>"), Answer(301, "")),
        (Answer(400, "Client sent an HTTP request to an HTTPS server.\n"),) * 2,
        (Answer(200, '{"etcdserver": 3}'), NO_PATH),
        (Answer(200, '{"etcdserver": "3.4\\u001b[31m"}'), NO_PATH),
        (Answer(200, "[]"), Answer(200, "[]")),
        (Answer(200, "[" * 100_000), Answer(404, "{")),
    ],
)
def test_answer_of_another_server_is_not_quoted(version: Answer, keys: Answer) -> None:
    with pytest.raises(NotUsable) as raised:
        judge(WHERE, version, keys)
    assert str(raised.value).startswith("what answers at etcd.team:2379 is not etcd. Correct rdzvEndpoint")
    assert not isinstance(raised.value, V2Off)


def test_etcd_that_demands_a_password_is_not_usable() -> None:
    """torchrun has no way to give one."""
    refused = '{"errorCode":110,"message":"The request requires user authentication","cause":"Insufficient","index":0}'
    with pytest.raises(NotUsable, match="wants a user and a password"):
        judge(WHERE, V34, Answer(401, refused))


@pytest.mark.parametrize(
    "keys",
    [
        Silence("no answer"),
        Answer(503, "upstream connect error"),
        Answer(500, '{"errorCode":300,"message":"Raft Internal Error","cause":"etcdserver: request timed out"}'),
        Answer(429, ""),
        Answer(400, '{"errorCode":401,"message":"The event in requested index is outdated and cleared"}'),
    ],
)
def test_a_server_in_trouble_is_asked_again(keys: Answer | Silence) -> None:
    assert isinstance(judge(WHERE, V34, keys), Silence)


def test_missing_path_means_nothing_without_a_version() -> None:
    assert judge(WHERE, Silence("lost"), NO_PATH) == Silence("lost")


ANY = st.builds(Answer, st.integers(100, 599), st.text()) | st.builds(Silence, st.text())


@given(ANY, ANY)
def test_any_answers_are_judged(version: Answer | Silence, keys: Answer | Silence) -> None:
    with contextlib.suppress(NotUsable):
        found = judge(WHERE, version, keys)
        assert found is None or isinstance(found, Silence)
