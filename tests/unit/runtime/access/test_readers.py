"""How the API server is asked who may read, in virtual time. What it really answers is in tests/envtest."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from torchctl.runtime.access.core import STRANGERS_AT_ONCE, Access
from torchctl.runtime.access.readers import REVIEW_TIMEOUT_S, Readers
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import Unavailable
from torchctl.runtime.client.exchange import Gate, HttpResponse, LineStream
from torchctl.runtime.client.requests import HttpRequest
from torchctl.testing import virtualtime

USER = {"username": "system:serviceaccount:monitoring:scraper", "uid": "u", "groups": ["g"], "extra": {"pod": ["p"]}}
KNOWN: Mapping[str, Any] = {"status": {"authenticated": True, "user": USER}}
UNKNOWN: Mapping[str, Any] = {"status": {"error": "no such token"}}
HEADER = "Bearer abc"


class ApiServer:
    """A transport to an API server that thinks for `delay_s` and then says what it was given."""

    def __init__(self, token: Any = KNOWN, access: Any = None, *, delay_s: float = 0.0) -> None:
        self.answers = {
            "/apis/authentication.k8s.io/v1/tokenreviews": token,
            "/apis/authorization.k8s.io/v1/subjectaccessreviews": access or {"status": {"allowed": True}},
        }
        self.delay_s = delay_s
        self.bodies: list[dict[str, Any]] = []
        self.gates: list[Gate | None] = []

    async def send(self, request: HttpRequest, gate: Gate | None = None) -> HttpResponse:
        assert request.method == "POST"
        self.bodies.append(msgspec.json.decode(request.body or b"", type=dict[str, Any]))
        self.gates.append(gate)
        await anyio.sleep(self.delay_s)
        answer = self.answers[request.path]
        if isinstance(answer, Exception):
            raise answer
        return HttpResponse(201, {}, msgspec.json.encode({"metadata": {}, **answer}))

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[LineStream]:
        raise AssertionError("nobody watches a review")


class Shut:
    """The fence of a replica that does not lead."""

    def check(self) -> None:
        raise AssertionError("a standby has metrics too")


def readers(server: ApiServer) -> Readers:
    clock = virtualtime.VirtualClock()
    return Readers(Client(server, clock=clock, fence=Shut()), clock, "/metrics")


def in_virtual_time(server: ApiServer, story: Callable[[Readers], Awaitable[None]]) -> None:
    async def main() -> None:
        await story(readers(server))

    virtualtime.run(main)


def test_both_questions_are_asked_as_kubernetes_has_them() -> None:
    server = ApiServer()

    async def story(readers: Readers) -> None:
        assert await readers.access(HEADER) is Access.ALLOWED

    in_virtual_time(server, story)
    whose, access = server.bodies
    assert whose["kind"] == "TokenReview"
    assert whose["spec"] == {"token": "abc"}
    assert access["kind"] == "SubjectAccessReview"
    assert access["spec"] == {
        "user": USER["username"],
        "uid": "u",
        "groups": ["g"],
        "extra": {"pod": ["p"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


def test_a_standby_asks_as_the_leader_does() -> None:
    server = ApiServer()

    async def story(readers: Readers) -> None:
        await readers.access(HEADER)

    in_virtual_time(server, story)
    assert server.gates == [None, None]


def test_without_a_token_nobody_is_asked() -> None:
    server = ApiServer()

    async def story(readers: Readers) -> None:
        assert await readers.access("") is Access.UNAUTHENTICATED
        assert await readers.access("Basic abc") is Access.UNAUTHENTICATED

    in_virtual_time(server, story)
    assert not server.bodies


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (ApiServer(UNKNOWN), Access.UNAUTHENTICATED),
        (ApiServer({"status": {}}), Access.UNAUTHENTICATED),
        (ApiServer({}), Access.UNAUTHENTICATED),
        (ApiServer(access={"status": {"allowed": False}}), Access.FORBIDDEN),
        (ApiServer(access={"status": {}}), Access.FORBIDDEN),
        (ApiServer({"status": "nonsense"}), Access.UNAVAILABLE),
        (ApiServer(Unavailable("cannot connect")), Access.UNAVAILABLE),
        (ApiServer(access=Unavailable("cannot connect")), Access.UNAVAILABLE),
        (ApiServer(delay_s=3600), Access.UNAVAILABLE),
    ],
)
def test_only_two_yeses_let_somebody_in(server: ApiServer, expected: Access) -> None:
    async def story(readers: Readers) -> None:
        for _ in range(3):  # and nothing else is remembered
            assert await readers.access(HEADER) is expected

    in_virtual_time(server, story)


def test_answer_takes_ten_seconds_at_most() -> None:
    """The limit holds for the request that starts a review and for those that wait for its result."""

    async def story(readers: Readers) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(readers.access, HEADER)
        assert anyio.current_time() == REVIEW_TIMEOUT_S

    in_virtual_time(ApiServer(delay_s=3600), story)


def test_many_requests_with_one_token_are_one_review() -> None:
    server, answers = ApiServer(delay_s=0.1), []

    async def story(readers: Readers) -> None:
        async def scrape() -> None:
            answers.append(await readers.access(HEADER))

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(scrape)

    in_virtual_time(server, story)
    assert answers == [Access.ALLOWED] * 20
    assert len(server.bodies) == 2


def test_flood_of_wrong_tokens_shuts_no_reader_out() -> None:
    """A flood of unknown tokens also costs few reviews."""
    server, answers = ApiServer(delay_s=0.1), []

    async def story(readers: Readers) -> None:
        async def knock(number: int) -> None:
            answers.append(await readers.access(f"Bearer wrong-{number}"))

        assert await readers.access(HEADER) is Access.ALLOWED
        server.bodies.clear()
        server.answers["/apis/authentication.k8s.io/v1/tokenreviews"] = UNKNOWN
        async with anyio.create_task_group() as tasks:
            for number in range(1000):
                tasks.start_soon(knock, number)
            assert await readers.access(HEADER) is Access.ALLOWED

    in_virtual_time(server, story)
    assert len(server.bodies) == STRANGERS_AT_ONCE
    assert answers.count(Access.UNAUTHENTICATED) == STRANGERS_AT_ONCE
    assert answers.count(Access.BUSY) == 1000 - STRANGERS_AT_ONCE


def test_an_outage_is_logged_without_the_token() -> None:
    async def story(readers: Readers) -> None:
        await readers.access("Bearer very-secret")

    with capture_logs() as lines:
        in_virtual_time(ApiServer(Unavailable("cannot connect")), story)
    (line,) = lines
    assert line["log_level"] == "warning"
    assert "cannot connect" in line["error"]
    assert "very-secret" not in str(line)
