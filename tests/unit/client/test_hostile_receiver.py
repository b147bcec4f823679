"""A receiver that is none, or means harm: it gets no file that it should not have, and no say on the terminal."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from receivers import TOKEN, plant

from torchctl.client.errors import ClientError, RequestRefused, TimedOut, Unreachable
from torchctl.client.tree import scan
from torchctl.client.upload import upload

STATE: dict[str, Any] = {"version": 1, "limits": {"max_bytes": 10**9, "max_entries": 1000, "max_path": 1000}}
PLAN: dict[str, Any] = {"state": "receiving", "offset": 0, "size": 0, "missing": []}


class Hostile:
    """Answers every request in the same way; keeps what was sent to it."""

    def __init__(self, state: Any, plan: Any) -> None:
        self.sent = b""
        self.encodings = list[str | None]()
        self._state = state
        self._plan = plan

    async def handle(self, request: web.Request) -> web.Response:
        if request.method == "PATCH":
            self.encodings.append(request.headers.get("Content-Encoding"))
            self.sent += await request.read()
        answer = self._state if request.path == "/v1/state" else self._plan
        if callable(answer):
            made: web.Response = answer()
            return made
        return web.Response(body=answer) if isinstance(answer, bytes) else web.json_response(answer)


@asynccontextmanager
async def hostile(state: Any = STATE, plan: Any = PLAN) -> AsyncIterator[tuple[str, Hostile]]:
    peer = Hostile(state, plan)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", peer.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", peer
    finally:
        await runner.cleanup()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return plant(tmp_path / "source", {"a.py": b"aaaa", "b.py": b"bb", "d/l": "../a.py", ".env": b"KEY=1"})


@pytest.mark.parametrize(
    "plan",
    [
        {"missing": [99], "size": 4},
        {"missing": [-1], "size": 4},
        {"missing": [0, 0], "size": 8},
        {"missing": [1, 0], "size": 6},
        {"missing": [0], "size": 5},
        {"missing": [0, 1], "size": 10**12},
        {"missing": list(range(10_000)), "size": 6},
        {"missing": ["../../.env"], "size": 5},
        {"missing": [0.5], "size": 4},
        {"size": -1, "offset": -2},
        b"[]",
        b"<html>login</html>",
        b"\xff\xfe",
        b'{"missing": ' + b"[" * 100_000,
    ],
)
async def test_nonsense_is_refused_and_nothing_is_sent(plan: Any, source: Path) -> None:
    answer = PLAN | plan if isinstance(plan, dict) else plan
    async with hostile(plan=answer) as (url, peer):
        with pytest.raises(RequestRefused):
            await upload(url, TOKEN, scan(source))
    assert peer.sent == b""


@pytest.mark.parametrize("state", [b"", b"{}", b"OK", {"version": 2, "limits": STATE["limits"]}, {"version": "1"}])
async def test_something_else_on_the_port_is_named(state: Any, source: Path) -> None:
    async with hostile(state=state) as (url, _):
        with pytest.raises(RequestRefused, match=r"no receiver of torchctl|version 2 of the protocol"):
            await upload(url, TOKEN, scan(source))


async def test_endless_answer_is_not_kept(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchctl.client.receiver._MAX_ANSWER", 1000)
    monkeypatch.setattr("torchctl.client.upload._SILENCE_S", 0.0)
    async with hostile(state=b"{" * 5000) as (url, _):
        with pytest.raises(ClientError, match="the receiver's answer is too long"):
            await upload(url, TOKEN, scan(source))


async def test_message_cannot_write_to_the_terminal(source: Path) -> None:
    evil = {"code": "busy", "message": "\x1b[2J\x07\nrm -rf\r" + "x" * 9000, "next_step": "\x1b]0;owned\x07"}
    async with hostile(plan=lambda: web.json_response(evil, status=409)) as (url, _):
        with pytest.raises(RequestRefused) as caught:
            await upload(url, TOKEN, scan(source))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) <= 1000


async def test_redirect_is_not_followed(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchctl.client.upload._SILENCE_S", 0.0)
    async with hostile() as (elsewhere, peer):

        def away() -> web.Response:
            return web.Response(status=307, headers={"Location": f"{elsewhere}/v1/state"})

        async with hostile(state=away) as (url, _):
            with pytest.raises(ClientError):
                await upload(url, TOKEN, scan(source))
    assert peer.sent == b""


async def test_steps_of_a_receiver_are_what_it_has_taken(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes the plan and no byte comes no further, however often it answers, and whatever it says it has."""
    monkeypatch.setattr("torchctl.client.upload._SILENCE_S", 0.0)
    monkeypatch.setattr("torchctl.client.upload._PUBLISH_S", 0.2)
    steps: list[int] = []
    async with hostile(plan=PLAN | {"missing": [0], "size": 4}) as (url, _):
        with pytest.raises(Unreachable):
            await upload(url, TOKEN, scan(source), took=steps.append)
    assert set(steps) == {1}
    async with hostile(plan=PLAN | {"missing": [0], "size": 4, "offset": 10**12}) as (url, _):
        with pytest.raises(TimedOut, match="has not put the tree in place"):
            await upload(url, TOKEN, scan(source), took=steps.append)
    assert max(steps) <= 5


async def test_receiver_of_an_earlier_version_gets_plain_content(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchctl.client.upload._SILENCE_S", 0.0)
    async with hostile(plan=PLAN | {"missing": [0, 1], "size": 6}) as (url, peer):
        with pytest.raises(Unreachable):
            await upload(url, TOKEN, scan(source))
    assert peer.sent == b"aaaabb"


async def test_plain_content_is_tried_before_an_upload_is_given_up(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over a slow line two requests that bring nothing take all the time there is, and only plain content passes."""
    monkeypatch.setattr("torchctl.client.upload._SILENCE_S", 0.0)
    async with hostile(STATE | {"encodings": ["zstd"]}, PLAN | {"missing": [0, 1], "size": 6}) as (url, peer):
        with pytest.raises(Unreachable):
            await upload(url, TOKEN, scan(source))
    assert peer.encodings == ["zstd", "zstd", "zstd", None]
