"""Faults between a client and the API server, which a `FaultProxy` applies."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import anyio

__all__ = [
    "Answer",
    "Cut",
    "DropLines",
    "Exchange",
    "Fault",
    "Interruption",
    "Match",
    "Moment",
    "Stall",
    "anything",
    "is_watch",
    "is_write",
]


@dataclass(slots=True)
class Exchange:
    """One request that reached the proxy, and its outcome."""

    number: int
    method: str
    path: str
    """The path without the query."""
    query: Mapping[str, str]
    body: bytes = field(default=b"", repr=False)
    status: int | None = None
    """The API server's answer; None if the request never reached it, or the answer is not there yet."""


Match = Callable[[Exchange], bool]


def anything(exchange: Exchange) -> bool:
    return True


def is_write(exchange: Exchange) -> bool:
    """Tells if the request can change an object."""
    return exchange.method not in ("GET", "HEAD", "OPTIONS")


def is_watch(exchange: Exchange) -> bool:
    return exchange.query.get("watch") in ("true", "1")


class Moment(Enum):
    """The moment at which a request is cut."""

    BEFORE = "before it is sent"
    AFTER = "after it is committed and before its answer is read"


@dataclass(frozen=True, slots=True)
class Interruption:
    """The answer to a request in place of forwarding it: `status` 0 aborts the connection."""

    status: int = 0
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    down: bool = False
    """The proxy refuses everything from now on, as if the client were dead."""


class Fault(Protocol):
    """Decides about every request at both moments, and about every line of a watch."""

    async def at(self, moment: Moment, exchange: Exchange) -> Interruption | None:
        """Returns how to interrupt a request; None forwards it. May wait."""
        ...

    def drops(self, exchange: Exchange, line: bytes) -> bool:
        """Tells if a line of a watch is lost."""
        ...


@dataclass
class Cut:
    """Ends everything at the n-th request that matches: `then` is awaited, all connections are aborted.

    A cut after the commit counts the answers, so the n-th is the n-th that was committed or refused.
    """

    number: int
    moment: Moment
    match: Match
    then: Callable[[], Awaitable[None]] | None = None
    count: int = 0
    exchange: Exchange | None = None
    """The request that was cut, once it was."""

    async def at(self, moment: Moment, exchange: Exchange) -> Interruption | None:
        if moment is not self.moment or not self.match(exchange):
            return None
        self.count += 1
        if self.count != self.number:
            return None
        self.exchange = exchange
        return Interruption(down=True)

    def drops(self, exchange: Exchange, line: bytes) -> bool:
        return False


@dataclass
class Stall:
    """Stalls matching requests until `release`."""

    match: Match
    moment: Moment = Moment.BEFORE
    waiting: int = 0
    """The number of requests that were stalled so far."""
    _released: anyio.Event = field(default_factory=anyio.Event)
    _reached: anyio.Event = field(default_factory=anyio.Event)

    async def at(self, moment: Moment, exchange: Exchange) -> Interruption | None:
        if moment is self.moment and self.match(exchange) and not self._released.is_set():
            self.waiting += 1
            self._reached.set()
            await self._released.wait()
        return None

    def drops(self, exchange: Exchange, line: bytes) -> bool:
        return False

    def release(self) -> None:
        """Forwards all stalled requests, and stalls no later ones."""
        self._released.set()

    async def reached(self) -> None:
        """Returns once a request hangs."""
        await self._reached.wait()


@dataclass
class Answer:
    """Answers the next `times` matching requests itself; they never reach the API server."""

    status: int
    match: Match
    times: int | None = 1
    """The number of requests to answer; None: all of them."""
    reason: str = ""
    message: str = "injected by a test"
    headers: Mapping[str, str] = field(default_factory=dict)
    count: int = 0

    async def at(self, moment: Moment, exchange: Exchange) -> Interruption | None:
        over = self.times is not None and self.count >= self.times
        if moment is Moment.AFTER or over or not self.match(exchange):
            return None
        self.count += 1
        status = {
            "apiVersion": "v1",
            "kind": "Status",
            "status": "Failure",
            "code": self.status,
            "reason": self.reason,
            "message": self.message,
        }
        headers = {"Content-Type": "application/json", **self.headers}
        return Interruption(self.status, json.dumps(status).encode(), headers)

    def drops(self, exchange: Exchange, line: bytes) -> bool:
        return False


@dataclass
class DropLines:
    """Drops the lines of a watch that `drop` selects."""

    drop: Callable[[bytes], bool]
    match: Match = is_watch
    count: int = 0

    async def at(self, moment: Moment, exchange: Exchange) -> Interruption | None:
        return None

    def drops(self, exchange: Exchange, line: bytes) -> bool:
        lost = self.match(exchange) and self.drop(line)
        self.count += lost
        return lost
