"""Watches of a fake API server: lines about the changes after a version."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import anyio
import anyio.lowlevel
import msgspec

from torchctl.runtime.client.errors import Timeout
from torchctl.runtime.kinds import Key
from torchctl.runtime.watch.selector import Selector
from torchctl.testing.fake.objects import Body, Changed, Objects
from torchctl.testing.fake.served import Served

__all__ = ["Bell", "NoStream", "Watch", "is_selected"]

BOOKMARKS_EVERY_S = 60.0


class Bell:
    """Wakes the watches of a kind after a change."""

    def __init__(self) -> None:
        self._rung: dict[Served, anyio.Event] = {}

    def rung(self, kind: Served) -> anyio.Event:
        """Returns the event of the next change of a kind."""
        return self._rung.setdefault(kind, anyio.Event())

    def ring(self, kinds: Iterable[Served]) -> None:
        for kind in kinds:
            if kind in self._rung:
                self._rung.pop(kind).set()


@dataclass
class NoStream:
    """An answer to a watch that is no stream."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    async def read_body(self) -> bytes:
        return self.body

    async def readlines(self, timeout_s: float) -> bytes:
        return b""

    async def readline(self, timeout_s: float) -> bytes:
        return b""

    async def read(self, timeout_s: float) -> bytes:
        return b""


class Watch:
    """A LineStream of one watch. It ends after its own timeout, or when the server breaks all watches."""

    status = 200
    headers: Mapping[str, str] = {}

    def __init__(
        self, objects: Objects, bell: Bell, served: Served, selector: Selector, version: int, timeout_s: float
    ) -> None:
        self.broken = False
        self._objects = objects
        self._bell = bell
        self._served = served
        self._selector = selector
        self._version = version
        self._first: list[bytes] = []
        self._ends_at = anyio.current_time() + timeout_s

    def begin_with(self, bodies: list[Body], *, bookmark: bool) -> None:
        """Sends the existing objects first and, if that was asked for, the bookmark that ends them."""
        self._first = [_line("ADDED", body) for body in bodies]
        if bookmark:
            self._first.append(self._bookmark({"k8s.io/initial-events-end": "true"}))

    async def read_body(self) -> bytes:
        return b""

    async def read(self, timeout_s: float) -> bytes:
        return await self.readlines(timeout_s)

    async def readline(self, timeout_s: float) -> bytes:
        if not self._first:
            self._first = (await self.readlines(timeout_s)).splitlines(keepends=True)
        return self._first.pop(0) if self._first else b""

    async def readlines(self, timeout_s: float) -> bytes:
        await anyio.lowlevel.checkpoint()
        gives_up_at = anyio.current_time() + timeout_s
        while not self.broken:
            if lines := self._pending():
                return lines
            now = anyio.current_time()
            if now >= self._ends_at:
                break
            if now >= gives_up_at:
                raise Timeout("nothing came on this watch")
            rung = self._bell.rung(self._served)
            with anyio.move_on_after(min(gives_up_at, self._ends_at, now + BOOKMARKS_EVERY_S) - now) as scope:
                await rung.wait()
            if scope.cancelled_caught and anyio.current_time() < min(gives_up_at, self._ends_at):
                return self._bookmark({})
        return b""

    def _pending(self) -> bytes:
        lines, self._first = self._first, []
        if self._version < self._objects.dropped.get(self._served, 0):
            return _line("ERROR", _expired())
        news = takewhile(lambda changed: changed.version > self._version, reversed(self._objects.history))
        for changed in reversed([changed for changed in news if changed.served is self._served]):
            lines += self._lines(changed)
        self._version = self._objects.version
        return b"".join(lines)

    def _lines(self, changed: Changed) -> Iterator[bytes]:
        """A change as those see it who watch only what the selector selects."""
        was = changed.old is not None and is_selected(changed.old, self._selector)
        stays = changed.type != "DELETED" and is_selected(changed.new, self._selector)
        if stays:
            yield _line("MODIFIED" if was else "ADDED", changed.new)
        elif was:
            last = changed.new if changed.type == "DELETED" else changed.old
            assert last is not None
            meta = last["metadata"] | {"resourceVersion": str(changed.version)}
            yield _line("DELETED", {**last, "metadata": meta})

    def _bookmark(self, annotations: Mapping[str, str]) -> bytes:
        kind = self._served.kind
        meta: dict[str, Any] = {"resourceVersion": str(self._version)}
        meta |= {"annotations": annotations} if annotations else {}
        return _line("BOOKMARK", {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta})


def is_selected(body: Body, selector: Selector) -> bool:
    """Whether an object is selected, by any of its fields."""
    meta = body["metadata"]
    shown = Selector(selector.namespace, selector.labels)
    if not shown.may_show(Key(meta.get("namespace", ""), meta["name"]), meta.get("labels", {})):
        return False
    return all(_holds(body, requirement) for requirement in selector.fields.split(",") if requirement)


def _holds(body: Body, requirement: str) -> bool:
    """Whether a requirement of a field selector holds: `a.b=c` or `a.b!=c`; a field that is not there is empty."""
    path, _, wanted = requirement.partition("=")
    found: Any = body
    for step in path.removesuffix("!").split("."):
        found = found.get(step, {})
    return ((found or "") == wanted.removeprefix("=")) is not path.endswith("!")


def _line(type_: str, body: Body) -> bytes:
    return msgspec.json.encode({"type": type_, "object": body}) + b"\n"


def _expired() -> Body:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": 410,
        "reason": "Expired",
        "message": "too old",
    }
