"""What Events say of late workers: how old that is, and what becomes of a pass that cannot read them."""

from datetime import timedelta
from typing import Any

import pytest
from answers import Answers, answer
from world import World

from torchctl.controllers.job.live_reads import PERIOD_S, LiveReads
from torchctl.controllers.job.plan import Question
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import ApiError
from torchctl.runtime.client.retry import RetryPolicy

TOLD = "FailedMount: no such secret"


def replies(*answers: tuple[int, Any]) -> Answers:
    """Returns a transport that gives these answers, each a status and a body, the last one for ever."""
    return Answers(*(answer(status, body) for status, body in answers))


@pytest.fixture
def stuck(world: type[World]) -> World:
    """A job whose only pod has a node since an hour ago, and no containers."""
    w = world("{jobQueue: research, numNodes: 1, command: python train.py}")
    w.settle()
    w.play("demo-0-x", phase="Pending", conditions=[{"type": "PodScheduled", "status": "True"}])
    w.later(3600)
    return w


def events(w: World, made: int, **minutes: int | None) -> tuple[int, Any]:
    """A list of one Event, with its times in minutes before now; those of a scheduler have microseconds."""
    times = {
        name: None if ago is None else (w.now - timedelta(minutes=ago)).strftime("%Y-%m-%dT%H:%M:%S.000001Z")
        for name, ago in minutes.items()
    }
    meta = {"name": "e", "namespace": "team", "resourceVersion": "5"}
    body: dict[str, Any] = {"metadata": meta | {"creationTimestamp": w.now - timedelta(minutes=made)}}
    body |= {"type": "Warning", "reason": "FailedMount", "message": "no such secret", "firstTimestamp": None}
    body |= {"lastTimestamp": times.get("last"), "eventTime": times.get("event")}
    if "series" in times:
        body["series"] = {"count": 3, "lastObservedTime": times["series"]}
    return 200, {"metadata": {"resourceVersion": "9"}, "items": [body]}


@pytest.mark.parametrize(
    ("made", "times", "says"),
    [
        (49, {"event": 49, "series": 45}, ""),
        (49, {"event": 49, "series": 2}, TOLD),
        (49, {"event": 49}, ""),
        (2, {"event": 2}, TOLD),
        (49, {"last": 2}, TOLD),
        (49, {"last": 45}, ""),
        (49, {}, ""),
        (2, {}, TOLD),
    ],
)
async def test_an_event_is_as_old_as_its_newest_time(stuck: World, made: int, times: dict[str, int], says: str) -> None:
    reads = LiveReads(Client(replies(events(stuck, made, **times))))
    assert (await reads.answered(stuck.seen, Question.WHY_NOT_UP, 0.0, stuck.now)).warning == says


async def test_a_schedulers_event_about_a_placed_pod_is_not_read(stuck: World) -> None:
    server = replies(events(stuck, 1))
    await LiveReads(Client(server)).answered(stuck.seen, Question.WHY_NOT_UP, 0.0, stuck.now)
    (request,) = server.requests
    assert "reason!=FailedScheduling" in dict(request.query)["fieldSelector"].split(",")


UNREADABLE = [(403, {"reason": "Forbidden", "message": "no list of events"}), (500, {"message": "etcd is away"})]
AT_ONCE = RetryPolicy(deadline_s=0)


@pytest.mark.parametrize("failure", UNREADABLE)
@pytest.mark.parametrize("asks", [Question.WHY_NOT_UP, Question.WHY_NO_PODS])
async def test_a_pass_goes_on_if_nobody_says_why(stuck: World, failure: tuple[int, Any], asks: Question) -> None:
    server = replies(failure, events(stuck, 1))
    reads = LiveReads(Client(server))

    async def said(now: float) -> str:
        known = await reads.answered(stuck.seen, asks, now, stuck.now)
        return known.warning or known.create_failure

    assert [await said(now) for now in (0.0, PERIOD_S - 0.1)] == ["", ""]
    assert len(server.requests) == 1
    assert (await said(PERIOD_S)).endswith("no such secret")


@pytest.mark.parametrize("failure", UNREADABLE)
@pytest.mark.parametrize("asks", [Question.WORKER_JOB, Question.REVISION, Question.WORKERS])
async def test_nothing_is_decided_without_an_answer(stuck: World, failure: tuple[int, Any], asks: Question) -> None:
    with pytest.raises(ApiError):
        await LiveReads(Client(replies(failure), retry=AT_ONCE)).answered(stuck.seen, asks, 0.0, stuck.now)
