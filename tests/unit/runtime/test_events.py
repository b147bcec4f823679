"""Events are written in the background, once each, and never at the cost of whoever records them."""

import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import pytest

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import NotLeader, Unavailable
from torchctl.runtime.client.exchange import Gate, HttpResponse, LineStream
from torchctl.runtime.client.requests import HttpRequest
from torchctl.runtime.events import QUEUE, EventRecorder
from torchctl.runtime.eventseries import BURST
from torchctl.runtime.kinds import ObjectReference
from torchctl.runtime.metrics import Metrics
from torchctl.testing import virtualtime

JOB = ObjectReference(kind="TorchrunJob", namespace="team", name="train", uid="u1", api_version="torchctl.io/v1")
NODE = ObjectReference(kind="Node", name="gpu-1", uid="n1", api_version="v1")


class Server:
    """Keeps Events by path. `down`: how many requests more are refused; `lost`: how many answers more are."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.down = self.lost = 0
        self.refusal = 0
        self.fail: type[Exception] | None = None

    async def send(self, request: HttpRequest, gate: Gate | None = None) -> HttpResponse:
        if self.fail:
            raise self.fail("no")
        if self.down:
            self.down -= 1
            raise Unavailable("connection refused")
        if self.refusal:
            return self.answer(self.refusal, {"code": self.refusal, "reason": "Forbidden", "message": "no"})
        body = json.loads(request.body or b"null")
        path = f"{request.path}/{body['metadata']['name']}" if request.method == "POST" else request.path
        if request.method == "POST" and path in self.events:
            return self.answer(409, {"code": 409, "reason": "AlreadyExists", "message": "exists"})
        if request.method != "POST" and path not in self.events:
            return self.answer(404, {"code": 404, "reason": "NotFound", "message": "gone"})
        self.events[path] = {**self.events.get(path, {}), **(body or {})}
        if self.lost:
            self.lost -= 1
            raise Unavailable("connection reset", outcome_unknown=True)
        return self.answer(200, self.events[path])

    def answer(self, status: int, body: dict[str, Any]) -> HttpResponse:
        return HttpResponse(status, {}, json.dumps(body).encode())

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[LineStream]:
        raise NotImplementedError


class Rig:
    def __init__(self, server: Server | None = None) -> None:
        self.server = server or Server()
        self.metrics = Metrics(process=False)
        self.clock = virtualtime.VirtualClock()
        client = Client(self.server, clock=self.clock)
        self.recorder = EventRecorder(client, clock=self.clock, metrics=self.metrics)

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)

    def dropped(self, reason: str) -> float | None:
        return self.value("torchctl_events_dropped_total", reason=reason)

    @property
    def events(self) -> list[dict[str, Any]]:
        return list(self.server.events.values())

    async def settled(self, seconds: float = 1) -> None:
        await anyio.sleep(seconds)


def play(story: Callable[[Rig], Awaitable[None]], server: Server | None = None) -> Rig:
    """Runs a story beside a recorder."""

    async def main() -> Rig:
        rig = Rig(server)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.recorder.run)
            await story(rig)
            tasks.cancel_scope.cancel()
        return rig

    return virtualtime.run(main)


async def submit(rig: Rig) -> None:
    rig.recorder.event(JOB, "Normal", "Created", "created the Job")
    await rig.settled()


def test_an_event_says_what_happened_to_what() -> None:
    rig = play(submit)
    ((path, event),) = rig.server.events.items()
    assert path.startswith("/api/v1/namespaces/team/events/train.")
    assert event["involvedObject"] == {
        "apiVersion": "torchctl.io/v1",
        "kind": "TorchrunJob",
        "namespace": "team",
        "name": "train",
        "uid": "u1",
    }
    assert (event["type"], event["reason"], event["message"]) == ("Normal", "Created", "created the Job")
    assert (event["count"], event["source"]) == (1, {"component": "torchctl"})
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2030-01-01T00:00:00Z"
    assert rig.value("torchctl_events_written_total") == 1


def test_a_repeat_raises_the_count() -> None:
    async def story(rig: Rig) -> None:
        await submit(rig)
        await submit(rig)

    (event,) = play(story).events
    assert (event["count"], event["firstTimestamp"]) == (2, "2030-01-01T00:00:00Z")
    assert event["lastTimestamp"] == "2030-01-01T00:00:01Z"


def test_the_next_process_continues_the_count() -> None:
    server = play(submit).server
    (event,) = play(submit, server).events
    assert event["count"] == 2


def test_a_repeat_after_the_event_expired_begins_anew() -> None:
    async def story(rig: Rig) -> None:
        await submit(rig)
        rig.server.events.clear()
        await submit(rig)
        await submit(rig)

    (event,) = play(story).events
    assert event["count"] == 2


def test_events_of_cluster_scoped_objects_are_in_the_default_namespace() -> None:
    async def story(rig: Rig) -> None:
        rig.recorder.event(NODE, "Warning", "Lost", "the node is gone")
        await rig.settled()

    (path,) = play(story).server.events
    assert path.startswith("/api/v1/namespaces/default/events/gpu-1.")


def test_an_outage_delays_events_and_loses_none() -> None:
    async def story(rig: Rig) -> None:
        rig.server.down = 3
        rig.recorder.event(JOB, "Normal", "One", "one")
        rig.recorder.event(JOB, "Normal", "Two", "two")
        await rig.settled(60)

    assert [event["reason"] for event in play(story).events] == ["One", "Two"]


def test_an_event_whose_answer_was_lost_is_counted_once() -> None:
    async def story(rig: Rig) -> None:
        rig.server.lost = 1
        await submit(rig)
        await rig.settled(10)

    (event,) = play(story).events
    assert event["count"] == 1


def test_a_long_outage_drops_and_goes_on() -> None:
    async def story(rig: Rig) -> None:
        rig.server.down = 10**6
        await submit(rig)
        await rig.settled(600)
        rig.server.down = 0
        rig.recorder.event(NODE, "Normal", "Back", "back")
        await rig.settled()

    rig = play(story)
    assert [event["reason"] for event in rig.events] == ["Back"]
    assert rig.dropped("failed") == 1


def test_a_refused_event_is_dropped_and_counted() -> None:
    async def story(rig: Rig) -> None:
        rig.server.refusal = 403
        await submit(rig)
        rig.server.refusal = 0
        await submit(rig)

    rig = play(story)
    assert rig.dropped("refused") == 1
    assert len(rig.events) == 1


def test_one_that_does_not_lead_writes_no_events() -> None:
    async def story(rig: Rig) -> None:
        rig.server.fail = NotLeader
        await submit(rig)

    assert play(story).dropped("refused") == 1


def test_an_unforeseen_failure_does_not_end_the_recorder() -> None:
    async def story(rig: Rig) -> None:
        rig.server.fail = ZeroDivisionError
        await submit(rig)
        rig.server.fail = None
        await submit(rig)

    rig = play(story)
    assert rig.dropped("failed") == 1
    assert len(rig.events) == 1


def test_a_chatterbox_is_cut_off_and_its_neighbour_is_not() -> None:
    async def story(rig: Rig) -> None:
        for _ in range(BURST + 7):
            rig.recorder.event(JOB, "Normal", "Again", "again")
        rig.recorder.event(NODE, "Normal", "Once", "once")
        await rig.settled()

    rig = play(story)
    assert rig.dropped("spam") == 7
    assert [event["count"] for event in rig.events] == [BURST, 1]


def test_a_full_queue_drops_and_never_blocks() -> None:
    async def main() -> Rig:
        rig = Rig()
        for n in range(QUEUE + 3):
            rig.recorder.event(ObjectReference(name=f"pod-{n}", namespace="team"), "Normal", "Again", "again")
        return rig

    assert virtualtime.run(main).dropped("queue_full") == 3


def test_what_is_queued_at_the_end_is_written() -> None:
    async def story(rig: Rig) -> None:
        await rig.settled()
        rig.recorder.event(JOB, "Normal", "Late", "at the last moment")

    assert [event["reason"] for event in play(story).events] == ["Late"]


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_the_end_is_not_held_up_by_an_outage(seconds: float) -> None:
    async def main() -> float:
        rig = Rig()
        rig.server.down = 10**6
        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.recorder.run)
            await anyio.sleep(seconds)
            rig.recorder.event(JOB, "Normal", "Late", "at the last moment")
            tasks.cancel_scope.cancel()
        return anyio.current_time() - began

    assert virtualtime.run(main) <= seconds + 2.1


def test_text_that_is_no_unicode_is_recorded_all_the_same() -> None:
    """Such as a file name, or a line of a program's output, that Python decoded with surrogates."""

    async def story(rig: Rig) -> None:
        rig.recorder.event(JOB, "Warning", "Fai\udce9led", "cannot read caf\udce9.py")
        await rig.settled()

    (event,) = play(story).events
    assert event["message"] == "cannot read caf?.py"
