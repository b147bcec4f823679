"""Gates: all steps of a program pass one, and at one of them the program is killed instead."""

import asyncio
import secrets
import socket
import struct
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

import anyio

__all__ = ["Gate", "Step", "each", "gate", "sample", "steps_of"]

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, order=True)
class Step:
    """The n-th step of a name (the first is 1)."""

    name: str
    number: int

    def __str__(self) -> str:
        return f"{self.name} #{self.number}"


class Gate:
    """Counts steps, and kills at one.

    Attributes:
        at: Where it kills; None for nowhere.
        address: Of the abstract unix socket at which programs ask for leave (`stepping.ask_for_leave`).
        kill: Kills the program at once, given the process that asks (0 if another side has seen the step).
        seen: How often each step came.
        reached: Set once the program was killed.
    """

    def __init__(self, at: Step | None = None) -> None:
        self.address = f"torchctl-gate-{secrets.token_hex(8)}"
        self.kill: Callable[[int], object] = lambda pid: None
        self.seen: Counter[str] = Counter()
        self.reached = asyncio.Event()
        self.at = at

    def passes(self, name: str, pid: int = 0) -> bool:
        """Whether a step is made; if not, the program was killed before it."""
        if self.reached.is_set():
            return True  # of a successor, or of what is left of the program
        self.seen[name] += 1
        if self.at != Step(name, self.seen[name]):
            return True
        self.kill(pid)
        self.reached.set()
        return False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the steps of one process; the one that was killed gets no answer."""
        credentials = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        (pid,) = struct.unpack("i8x", credentials)
        try:
            with suppress(ConnectionError):
                while line := await reader.readline():
                    if self.passes(line.decode().rstrip("\n"), pid):
                        writer.write(b"\n")
        finally:
            writer.close()


@asynccontextmanager
async def gate(at: Step | None = None) -> AsyncIterator[Gate]:
    """Yields a gate at which programs can ask."""
    made = Gate(at)
    server = await asyncio.start_unix_server(made.serve, path="\0" + made.address)
    try:
        yield made
    finally:
        server.close()


def steps_of(seen: Iterable[Counter[str]], most: int) -> list[Step]:
    """The steps that came in any of these runs, of each name at most so many: polls come ever again."""
    counts: Counter[str] = Counter()
    for one in seen:
        counts |= one
    return [Step(name, number) for name in sorted(counts) for number in range(1, min(counts[name], most) + 1)]


def sample(points: Sequence[T], count: int, place: int) -> list[T]:
    """So many of the points, evenly spread; `place` (of a story among stories) says where to begin."""
    begin = place * 0.618 % 1  # the golden ratio: neighbours begin far from each other
    count = min(count, len(points))
    return [points[int((begin + index) / count * len(points))] for index in range(count)]


async def each(items: Iterable[T], work: Callable[[T], Awaitable[R]], *, at_once: int) -> list[R]:
    """What `work` returns for each item, some of them at a time."""
    todo, done = deque(enumerate(items)), dict[int, R]()

    async def some() -> None:
        while todo:
            place, item = todo.popleft()
            done[place] = await work(item)

    async with anyio.create_task_group() as tasks:
        for _ in range(at_once):
            tasks.start_soon(some)
    return [done[place] for place in sorted(done)]
