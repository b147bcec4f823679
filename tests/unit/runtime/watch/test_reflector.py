"""The reflector against a scripted transport: what it asks for, and that nothing ends it."""

import json
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import Timeout, Unavailable
from torchctl.runtime.client.exchange import Gate, HttpResponse, LineStream
from torchctl.runtime.client.requests import HttpRequest
from torchctl.runtime.kinds import LEASE, Lease
from torchctl.runtime.watch.events import Applied, Available, Init, InitDone, Removed, Skipped, StoreEvent
from torchctl.runtime.watch.events import Unavailable as Absent
from torchctl.runtime.watch.reflector import GATHER_S, TRICKLE, Reflector
from torchctl.runtime.watch.selector import Selector
from torchctl.runtime.watch.settings import WatchSettings
from torchctl.testing.clock import ManualClock

Answer = HttpResponse | Sequence[bytes | Exception] | Exception


def lease(name: str, version: int, **spec: object) -> dict[str, Any]:
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": meta, "spec": spec}


def page(version: int, *items: dict[str, Any], continue_: str = "") -> HttpResponse:
    meta = {"resourceVersion": str(version), "continue": continue_}
    return HttpResponse(200, {}, json.dumps({"metadata": meta, "items": items}).encode())


def refused(code: int, reason: str = "", **headers: str) -> HttpResponse:
    return HttpResponse(code, headers, json.dumps({"code": code, "reason": reason, "message": reason}).encode())


def line(type_: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": type_, "object": obj}).encode() + b"\n"


def bookmark(version: int, *, end: bool = False) -> bytes:
    annotations = {"k8s.io/initial-events-end": "true"} if end else {}
    return line("BOOKMARK", {"metadata": {"resourceVersion": str(version), "annotations": annotations}})


class Lines:
    """A stream that says its lines and raises its exceptions in order, then ends."""

    def __init__(self, said: Sequence[bytes | Exception]) -> None:
        self._said = list(said)
        self.status = 200
        self.headers: Mapping[str, str] = {}
        self.patience: list[float] = []

    async def readlines(self, timeout_s: float) -> bytes:
        self.patience.append(timeout_s)
        said = self._said.pop(0) if self._said else b""
        if isinstance(said, Exception):
            raise said
        return said

    async def readline(self, timeout_s: float) -> bytes:
        return await self.readlines(timeout_s)

    async def read_body(self) -> bytes:
        return b"".join(said for said in self._said if isinstance(said, bytes))


class Refusal(Lines):
    def __init__(self, response: HttpResponse) -> None:
        super().__init__([response.body])
        self.status, self.headers = response.status, response.headers


class ScriptedTransport:
    """Answers requests from a script, in order; at its end says so and answers no more."""

    def __init__(self, *script: Answer) -> None:
        self.script = list(script)
        self.requests: list[dict[str, str]] = []
        self.streams: list[Lines] = []
        self.done = anyio.Event()

    async def _next(self, request: HttpRequest) -> Answer:
        if not self.script:
            self.done.set()
            await anyio.sleep_forever()
        self.requests.append(dict(request.query))
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def send(self, request: HttpRequest, gate: Gate | None = None) -> HttpResponse:
        answer = await self._next(request)
        assert isinstance(answer, HttpResponse)
        return answer

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[LineStream]:
        answer = await self._next(request)
        assert not isinstance(answer, Exception)
        lines = Refusal(answer) if isinstance(answer, HttpResponse) else Lines(answer)
        self.streams.append(lines)
        yield lines


class Recorder:
    """A sink that keeps the events; raises on the object called `trap`, or the event that is so told, once."""

    kind = LEASE
    selector = Selector(namespace="ns", labels="app=x")

    def __init__(self) -> None:
        self.events: list[StoreEvent[Lease]] = []
        self.trap = ""
        self.signs: list[str] = []

    async def feed(self, event: StoreEvent[Lease]) -> None:
        name = event.object.metadata.name if isinstance(event, Applied) else _brief(event)
        if name == self.trap:
            self.trap = ""
            raise RuntimeError("the store broke")
        self.events.append(event)

    def heard(self) -> None:
        self.signs.append("heard")

    def tried(self) -> None:
        self.signs.append("tried")

    @property
    def story(self) -> list[str]:
        return [_brief(event) for event in self.events]


def _brief(event: StoreEvent[Lease]) -> str:
    match event:
        case Applied(obj):
            return f"+{obj.metadata.name}@{obj.metadata.resource_version}"
        case Removed(obj):
            return f"-{obj.metadata.name}"
        case Skipped(what):
            return f"?{what.key.name}"
        case InitDone(version):
            return f"done@{version}"
        case Init():
            return "init"
        case Absent():
            return "absent"
        case Available():
            return "available"
    return "bookmark"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def play(
    clock: ManualClock, *script: Answer, recorder: Recorder | None = None, streaming_list: bool = False
) -> tuple[ScriptedTransport, Recorder]:
    """Runs a reflector until the script is at its end."""
    transport, sink = ScriptedTransport(*script), recorder or Recorder()
    client = Client(transport, clock=clock, rng=random.Random(1))
    limits = WatchSettings(streaming_list=streaming_list)
    reflector = Reflector(client, sink, limits, clock=clock, rng=random.Random(1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reflector.run)
        with anyio.fail_after(10):
            await transport.done.wait()
        tasks.cancel_scope.cancel()
    return transport, sink


async def test_pages_and_lines_reach_the_sink(clock: ManualClock) -> None:
    transport, sink = await play(
        clock,
        page(10, lease("a", 3), continue_="next"),
        page(10, lease("b", 4)),
        [line("MODIFIED", lease("a", 11)), line("DELETED", lease("b", 12)), bookmark(20)],
    )
    assert sink.story == ["init", "+a@3", "+b@4", "done@10", "+a@11", "-b", "bookmark"]
    first, second, watch = transport.requests
    assert first == {"limit": "500", "labelSelector": "app=x"}
    assert second["continue"] == "next"
    assert watch["resourceVersion"] == "10"
    assert watch["allowWatchBookmarks"] == "true"
    assert 240 <= int(watch["timeoutSeconds"]) <= 290


async def test_a_streaming_list_is_tried_first(clock: ManualClock) -> None:
    transport, sink = await play(
        clock, [line("ADDED", lease("a", 3)), bookmark(10, end=True)], [bookmark(11)], streaming_list=True
    )
    assert sink.story == ["init", "+a@3", "done@10", "bookmark"]
    assert transport.requests[0]["sendInitialEvents"] == "true"
    assert transport.requests[1]["resourceVersion"] == "10"


async def test_lines_that_come_together_are_taken_one_by_one(clock: ManualClock) -> None:
    together = line("ADDED", lease("a", 3)) + bookmark(10, end=True) + line("MODIFIED", lease("a", 11))
    _, sink = await play(clock, [together], [bookmark(12)], streaming_list=True)
    assert sink.story == ["init", "+a@3", "done@10", "+a@11", "bookmark"]


class Diary(ManualClock):
    """A clock that remembers how long it was slept by."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await super().sleep(seconds)


@pytest.mark.parametrize(("size", "waits"), [(1, 2), (TRICKLE, 0)])
async def test_slow_list_is_batched_and_a_watch_is_not(size: int, waits: int) -> None:
    clock = Diary()
    listed = [line("ADDED", lease(name, 3, holderIdentity="x" * size)) for name in ("a", "b")]
    watched = [line("MODIFIED", lease("a", version)) for version in range(11, 20)]
    _, sink = await play(clock, [*listed, bookmark(10, end=True), *watched], streaming_list=True)
    assert sink.story[3:] == ["done@10", *[f"+a@{version}" for version in range(11, 20)]]
    assert clock.slept.count(GATHER_S) == waits


async def test_lines_after_an_error_line_are_dropped(clock: ManualClock) -> None:
    gone = line("ERROR", {"code": 410, "reason": "Expired"})
    _, sink = await play(clock, page(10), [gone + line("ADDED", lease("a", 11))], page(20))
    assert sink.story == ["init", "done@10", "init", "done@20"]


@pytest.mark.parametrize("code", [400, 422])
async def test_a_server_without_streaming_lists_gets_a_paged_one(clock: ManualClock, code: int) -> None:
    _, sink = await play(clock, refused(code, "Invalid"), page(10, lease("a", 3)), streaming_list=True)
    assert sink.story == ["init", "+a@3", "done@10"]


async def test_an_expired_version_lists_anew_in_either_form(clock: ManualClock) -> None:
    gone = line("ERROR", {"code": 410, "reason": "Expired"})
    _, sink = await play(clock, page(10, lease("a", 3)), [gone], page(20), refused(410, "Expired"), page(30))
    assert sink.story == ["init", "+a@3", "done@10", "init", "done@20", "init", "done@30"]


async def test_an_outage_resumes_where_it_was(clock: ManualClock) -> None:
    outage = [Unavailable("connection refused") for _ in range(20)]
    transport, sink = await play(
        clock, page(10), [line("ADDED", lease("a", 11)), Unavailable("connection reset")], *outage, [bookmark(30)]
    )
    assert sink.story == ["init", "done@10", "+a@11", "bookmark"]
    assert {request["resourceVersion"] for request in transport.requests[2:]} == {"11"}


async def test_a_silent_stream_is_replaced(clock: ManualClock) -> None:
    transport, sink = await play(clock, page(10), [bookmark(12), Timeout("nothing came")], [bookmark(13)])
    assert transport.streams[0].patience == [pytest.approx(295, abs=55), 70.0]
    assert transport.requests[2]["resourceVersion"] == "12"
    assert sink.story == ["init", "done@10", "bookmark", "bookmark"]
    assert sink.signs == ["heard", "heard", "heard", "tried", "heard", "heard"]


async def test_being_throttled_waits_as_told_and_does_not_list(clock: ManualClock) -> None:
    began = clock.monotonic()
    transport, _ = await play(clock, page(10), refused(429, "TooManyRequests", **{"Retry-After": "7"}), [bookmark(11)])
    assert clock.monotonic() - began >= 7
    assert transport.requests[2]["resourceVersion"] == "10"


async def test_an_object_that_does_not_fit_is_skipped(clock: ManualClock) -> None:
    _, sink = await play(
        clock,
        page(10, lease("bad", 2, leaseDurationSeconds="soon"), lease("a", 3)),
        [line("ADDED", lease("bad2", 11, leaseDurationSeconds="soon")), line("ADDED", lease("b", 12))],
    )
    assert sink.story == ["init", "+a@3", "?bad", "done@10", "?bad2", "+b@12"]


async def test_what_is_no_kubernetes_answer_is_an_outage(clock: ManualClock) -> None:
    html = b"<html>502 Bad Gateway</html>\n"
    _, sink = await play(
        clock,
        HttpResponse(502, {}, html),
        HttpResponse(200, {}, html),
        page(10),
        [html],
        [line("ADDED", lease("a", 11))],
    )
    assert sink.story[-3:] == ["init", "done@10", "+a@11"]


async def test_a_kind_that_is_not_served_heals(clock: ManualClock) -> None:
    _, sink = await play(clock, refused(404, "NotFound"), refused(403, "Forbidden"), page(10))
    assert sink.story == ["absent", "absent", "init", "done@10"]


async def test_a_sink_that_breaks_gets_everything_again(clock: ManualClock) -> None:
    recorder = Recorder()
    recorder.trap = "a"
    _, sink = await play(clock, page(10), [line("ADDED", lease("a", 11))], page(12, lease("a", 11)), recorder=recorder)
    assert sink.story == ["init", "done@10", "init", "+a@11", "done@12"]


@pytest.mark.parametrize("trap", ["done@11", "available"])
async def test_end_of_a_refusal_reaches_a_sink_that_broke(clock: ManualClock, trap: str) -> None:
    recorder = Recorder()
    recorder.trap = trap
    await play(clock, refused(403), page(11), [bookmark(12)], page(13), [bookmark(14)], recorder=recorder)
    assert recorder.story.count("available") == 1


async def test_streams_that_end_at_once_are_opened_ever_slower(clock: ManualClock) -> None:
    began = clock.monotonic()
    await play(clock, page(10), *[[] if n % 4 != 3 else page(10) for n in range(24)])
    assert clock.monotonic() - began >= 100


async def test_an_outage_is_told_from_silence(clock: ManualClock) -> None:
    """So that liveness can go by attempts, and staleness by answers."""
    _, sink = await play(clock, page(10), [bookmark(11), Unavailable("reset")], Unavailable("refused"), [])
    assert sink.signs == ["heard", "heard", "heard", "tried", "tried", "heard"]


@pytest.mark.parametrize("code", [400, 401, 403, 404, 410, 429, 500])
async def test_refusal_is_an_attempt_and_no_answer(clock: ManualClock, code: int) -> None:
    """A refused watch ages like one that nobody answers, so that the same alert tells of both."""
    _, sink = await play(clock, page(10), refused(code), page(11))
    assert sink.signs[:3] == ["heard", "tried", "heard"]


async def test_what_keeps_failing_the_same_way_is_said_once(clock: ManualClock) -> None:
    absent = [refused(404, "NotFound")] * 5
    with capture_logs() as logs:
        await play(clock, *absent, page(10), Unavailable("refused"), Unavailable("refused"), Unavailable("reset"))
    told = [entry["error"] for entry in logs if entry["log_level"] == "info"]
    assert told == ["NotFound", "refused", "reset"]
