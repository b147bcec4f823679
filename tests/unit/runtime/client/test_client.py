"""The client against a transport that answers from a list: what it repeats, what it fences, what it notes."""

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from answers import Answers, answer

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Gone,
    Malformed,
    NotFound,
    NotLeader,
    TooManyRequests,
    Unavailable,
)
from torchctl.runtime.client.exchange import HttpResponse
from torchctl.runtime.client.writes import Deleted, Written, record_writes
from torchctl.runtime.kinds import LEASE, Key
from torchctl.testing.clock import ManualClock

BODY = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
    "spec": {},
}
WRITTEN = Written(LEASE, Key("ns", "a"), "u", "7")


class StillClock(ManualClock):
    """Remembers the sleeps."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self.sleeps: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        await super().sleep(seconds)


def refusal(code: int, reason: str = "", **headers: str) -> HttpResponse:
    return answer(code, {"reason": reason, "message": reason or str(code)}, **headers)


OK = answer(200, BODY)


class Fence:
    def __init__(self, *, open_for: int) -> None:
        self.left = open_for

    def check(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise NotLeader


def client_of(transport: Answers, clock: StillClock | None = None, fence: Fence | None = None) -> Client:
    return Client(transport, clock=clock or StillClock(), rng=random.Random(1), fence=fence)


Write = Callable[[Client], Any]
WRITES: list[Any] = [
    pytest.param(lambda client: client.create(LEASE, BODY), id="create"),
    pytest.param(lambda client: client.apply(LEASE, BODY), id="apply"),
    pytest.param(lambda client: client.merge_patch(LEASE, "a", {}, namespace="ns"), id="merge_patch"),
    pytest.param(lambda client: client.replace(LEASE, BODY), id="replace"),
]
DELETE = pytest.param(lambda client: client.delete(LEASE, "a", namespace="ns", uid="u"), id="delete")


@pytest.mark.parametrize("trouble", [refusal(503), refusal(429), Unavailable("reset")])
async def test_a_read_goes_through_once_the_trouble_is_over(trouble: HttpResponse | ApiError) -> None:
    transport, clock = Answers(trouble, trouble, OK), StillClock()
    lease = await client_of(transport, clock).get(LEASE, "a", "ns")
    assert lease.metadata.uid == "u"
    assert len(clock.sleeps) == 2


async def test_read_gives_up_with_the_message_of_the_server() -> None:
    clock = StillClock()
    with pytest.raises(Unavailable, match="etcd is away"):
        await client_of(Answers(refusal(503, "etcd is away")), clock).get(LEASE, "a", "ns")
    assert 20 < clock.seconds < 30


async def test_retry_after_is_kept() -> None:
    clock = StillClock()
    await client_of(Answers(refusal(429, Retry_After="7"), OK), clock).get(LEASE, "a", "ns")
    assert 7 <= clock.seconds < 8


async def test_what_is_not_there_is_said_at_once() -> None:
    transport = Answers(refusal(404, "NotFound"))
    with pytest.raises(NotFound):
        await client_of(transport).get(LEASE, "a", "ns")
    assert len(transport.requests) == 1


@pytest.mark.parametrize("write", [*WRITES, DELETE])
@pytest.mark.parametrize("trouble", [refusal(503), refusal(500), Unavailable("reset", outcome_unknown=True)])
async def test_a_write_that_may_have_happened_is_sent_once(write: Write, trouble: HttpResponse | ApiError) -> None:
    transport = Answers(trouble, OK)
    with pytest.raises(Unavailable) as raised:
        await write(client_of(transport))
    assert raised.value.outcome_unknown
    assert len(transport.requests) == 1


@pytest.mark.parametrize("write", [*WRITES, DELETE])
async def test_a_write_that_was_turned_away_is_sent_again(write: Write) -> None:
    transport = Answers(refusal(429, Retry_After="1"), OK)
    await write(client_of(transport))
    assert transport.requests[0] == transport.requests[1]


@pytest.mark.parametrize("write", [*WRITES, DELETE])
async def test_nothing_is_written_behind_the_fence(write: Write) -> None:
    transport = Answers(OK)
    with pytest.raises(NotLeader):
        await write(client_of(transport, fence=Fence(open_for=0)))
    assert transport.requests == []


@pytest.mark.parametrize("write", [*WRITES, DELETE])
async def test_each_attempt_passes_the_fence_anew(write: Write) -> None:
    transport = Answers(refusal(429), OK)
    with pytest.raises(NotLeader):
        await write(client_of(transport, fence=Fence(open_for=1)))
    assert len(transport.requests) == 1


async def test_reads_need_no_leadership_and_an_unfenced_client_writes_without() -> None:
    client = client_of(Answers(OK), fence=Fence(open_for=0))
    await client.get(LEASE, "a", "ns")
    await client.unfenced().create(LEASE, BODY)


@pytest.mark.parametrize("write", WRITES)
async def test_a_successful_write_is_noted_with_the_new_version(write: Write) -> None:
    with record_writes() as writes:
        await write(client_of(Answers(OK)))
    assert writes == [WRITTEN]


async def test_a_failed_write_and_a_dry_run_are_not_noted() -> None:
    with record_writes() as writes:
        with pytest.raises(AlreadyExists):
            await client_of(Answers(refusal(409, "AlreadyExists"))).create(LEASE, BODY)
        await client_of(Answers(OK)).apply(LEASE, BODY, dry_run=True)
    assert writes == []


@pytest.mark.parametrize(
    "body", [{"kind": "Status", "details": {"uid": "u"}}, {"kind": "Lease", "metadata": {"uid": "u"}}]
)
async def test_delete_is_noted_under_the_uid_from_the_server(body: dict[str, Any]) -> None:
    with record_writes() as writes:
        await client_of(Answers(answer(200, body))).delete(LEASE, "a", namespace="ns")
    assert writes == [Deleted(LEASE, Key("ns", "a"), "u")]


async def test_apply_takes_its_name_from_the_body() -> None:
    """The namespace is from the body too, and the field manager is torchctl."""
    transport = Answers(OK)
    await client_of(transport).apply(LEASE, BODY, force=True)
    (request,) = transport.requests
    assert request.target == ("/apis/coordination.k8s.io/v1/namespaces/ns/leases/a?fieldManager=torchctl&force=true")
    assert msgspec.json.decode(request.body or b"") == BODY


def page(name: str, continue_: str = "") -> HttpResponse:
    items = [{"metadata": {"name": name, "namespace": "ns"}}]
    return answer(200, {"metadata": {"resourceVersion": "9", "continue": continue_}, "items": items})


async def test_a_list_follows_its_pages() -> None:
    transport = Answers(page("a", "t1"), refusal(503), page("b", "t2"), page("c"))
    leases = await client_of(transport).list(LEASE, namespace="ns")
    assert [lease.metadata.name for lease in leases] == ["a", "b", "c"]
    assert dict(transport.requests[-1].query)["continue"] == "t2"


async def test_a_list_whose_token_expired_is_begun_again() -> None:
    transport = Answers(page("old", "t1"), refusal(410, "Expired"), page("new"))
    assert [lease.metadata.name for lease in await client_of(transport).list(LEASE)] == ["new"]


async def test_a_list_that_expires_again_and_again_fails() -> None:
    transport = Answers(*[page("old", "t1"), refusal(410, "Expired")] * 3)
    with pytest.raises(Gone):
        await client_of(transport).list(LEASE)


@pytest.mark.parametrize("trouble", [refusal(503), refusal(429), Unavailable("reset")])
async def test_a_page_and_a_watch_are_asked_for_once(trouble: HttpResponse | ApiError) -> None:
    transport = Answers(trouble, OK)
    with pytest.raises((Unavailable, TooManyRequests)):
        await client_of(transport).list_page(LEASE)
    transport.answers = [trouble, OK]
    with pytest.raises((Unavailable, TooManyRequests)):
        async with client_of(transport).watch(LEASE):
            pass
    assert len(transport.requests) == 2


async def test_a_watch_that_is_refused_says_why() -> None:
    with pytest.raises(Gone, match="Expired"):
        async with client_of(Answers(refusal(410, "Expired"))).watch(LEASE, resource_version="1"):
            pass


async def test_a_watch_yields_its_stream() -> None:
    transport = Answers(OK)
    async with client_of(transport).watch(LEASE, resource_version="1", timeout_s=60) as stream:
        assert await stream.readline(1) == b""
    assert dict(transport.requests[0].query)["timeoutSeconds"] == "60"


async def test_a_conflict_is_for_the_caller() -> None:
    with pytest.raises(Conflict):
        await client_of(Answers(refusal(409, "Conflict"))).apply(LEASE, BODY)


async def test_success_with_nonsense_is_an_error() -> None:
    with pytest.raises(Malformed):
        await client_of(Answers(answer(200, "nonsense"))).get(LEASE, "a", "ns")


async def test_a_raw_read_keeps_everything() -> None:
    assert await client_of(Answers(OK)).get_raw(LEASE, "a", "ns") == BODY


async def test_a_log_is_text() -> None:
    transport = Answers(HttpResponse(200, {}, b"line\n\xff"))
    assert await client_of(transport).pod_log("p", "ns", "c") == "line\n\ufffd"


async def test_a_raw_list_has_every_field_of_every_page() -> None:
    """The items of a list do not carry their apiVersion and kind; what is printed must."""
    first = answer(200, {"metadata": {"continue": "more"}, "items": [{"metadata": {"name": "a"}, "unknown": [1]}]})
    last = answer(200, {"metadata": {}, "items": None})
    transport = Answers(first, last)
    assert await Client(transport).list_raw(LEASE, namespace="team", labels="a=b") == [
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, "unknown": [1]}
    ]
    assert [dict(request.query).get("continue") for request in transport.requests] == [None, "more"]


async def test_write_whose_answer_does_not_fit_is_noted() -> None:
    """It is committed, so the next reconcile must not begin before the cache has seen it."""
    meta = {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}}
    body = {"metadata": meta, "spec": {"leaseTransitions": "many"}}
    client = client_of(Answers(answer(200, body)))
    with record_writes() as writes, pytest.raises(Malformed):
        await client.apply(LEASE, BODY)
    assert writes == [Written(LEASE, Key("ns", "a"), "u", "7", {"a": "b"})]
