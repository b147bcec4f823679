"""Sends a tree to a receiver (`torchctl workspace receive`) and has it published; resumes after a broken connection."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Container
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, TypeVar

import anyio

from torchctl.client import hashes
from torchctl.client.content import Content, hash_files, read
from torchctl.client.errors import RequestRefused, TimedOut, Unreachable
from torchctl.client.receiver import Answer, Gone, Receiver, Retry
from torchctl.client.tree import LeftOut, Tree
from torchctl.workspace.batches import SMALL

__all__ = ["Progress", "Sent", "hashed", "upload"]

T = TypeVar("T")
VERSION = 1
_LOOK = "Look at the sync pod's log, and try again"
_SILENCE_S = 5.0
"""Seconds for which one request is repeated. Then whoever sends looks whether the receiver's container still runs."""
_ROUNDS = 3
_COMPRESSED_TRIES = 3
"""Requests in a row that bring nothing, after which content is sent as it is."""
_PUBLISH_S = 1800.0
_PAUSE_S, _GROWTH = 0.1, 1.25
"""Pauses grow slowly: of the time until a receiver listens that has just been started, they waste a quarter at most."""
_BATCH_FILES, _BATCH_BYTES = 512, 64 * 2**20
_THREADS = 4
_MOSTLY = 4
"""How many times as long as its own work a thread takes that is mostly waiting for the disk."""


class Progress(NamedTuple):
    """How far an upload is: bytes that were hashed or sent, of how many."""

    stage: Literal["hash", "send", "publish"]
    done: int
    total: int


Report = Callable[[Progress], None]


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What became of an upload.

    Args:
        revision: the digest of the tree, `sha256:` and hexadecimal digits.
        files: number of files and links of the tree.
        bytes: sum of their sizes.
        sent: bytes of content that the receiver did not have.
        left_out: what stayed here, and why.
    """

    revision: str
    files: int
    bytes: int
    sent: int
    left_out: LeftOut


async def hashed(tree: Tree, *, report: Report | None = None) -> Content:
    """Read every file of a tree and hash it, in threads; but for those that were read before and look unchanged.

    Raises:
        UsageError: a file cannot be read or has changed since it was listed.
    """
    began, known = time.time_ns(), await anyio.to_thread.run_sync(hashes.known, tree)
    total = tree.bytes
    done = sum(tree.members[number].member.size for number in known)
    batches, found = _batches(tree, known), dict(known)
    small, large = anyio.CapacityLimiter(1), anyio.CapacityLimiter(_THREADS)
    running = [asyncio.create_task(_hash(tree, batch, small if batch.small else large)) for batch in batches]
    try:
        for batch, hashing in zip(batches, running, strict=True):
            found.update(zip(batch.members, await hashing, strict=True))
            done += sum(tree.members[number].member.size for number in batch.members)
            _tell(report, "hash", done, total)
    finally:
        for hashing in running:
            hashing.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    content = Content(tree, tuple(found[number] for number in range(len(tree.members))))
    if any(found[number] for batch in batches for number in batch.members):
        await anyio.to_thread.run_sync(hashes.keep, content, began)
    return content


async def upload(
    url: str,
    token: str,
    tree: Tree,
    *,
    report: Report | None = None,
    content: Content | None = None,
    took: Callable[[int], object] | None = None,
) -> Sent:
    """Send a tree and have it published.

    Args:
        url: of the receiver, such as that of a port-forward, whose connections may break.
        token: the uid of the receiver's pod.
        report: called on the event loop as the upload goes on.
        content: the hashes of the tree, if they are known already.
        took: called with how many steps the receiver has come so far: the plan, and each byte that it has.

    Raises:
        UsageError: the tree or a file of it cannot be sent.
        RequestRefused: the receiver refuses it, or another upload is under way.
        TimedOut: the receiver has everything and does not put it in place.
        Unreachable: the receiver was not reached.
    """
    async with Receiver(url, token) as receiver:
        sending = _Upload(receiver, report, took)
        state = await sending.insist(receiver.state)
        if state.version != VERSION:
            raise RequestRefused(f"the receiver speaks version {state.version} of the protocol, this program {VERSION}")
        tree.check(state.accepted)
        content = content or await hashed(tree, report=report)
        return await sending.run(content)


class _Upload:
    """One upload, over as many connections as it takes: the time without any progress is bounded."""

    def __init__(self, receiver: Receiver, report: Report | None, took: Callable[[int], object] | None) -> None:
        self._receiver = receiver
        self._report = report
        self._took = took or (lambda steps: None)
        self._stuck = _Silence()
        self._sent = 0

    async def run(self, content: Content) -> Sent:
        tree = content.name
        for _ in range(_ROUNDS):
            try:
                answer = await self._once(content, tree)
            except Gone as error:
                gone = error
                continue
            await self._receiver.leave(tree)
            found = content.tree
            return Sent(
                revision=answer.revision,
                files=found.files,
                bytes=found.bytes,
                sent=self._sent,
                left_out=found.left_out,
            )
        raise Unreachable(f"the receiver lost the upload {_ROUNDS} times: {gone}", _LOOK)

    async def insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a request that may be repeated.

        Raises:
            Unreachable: it failed for too long.
        """
        silence = _Silence()
        while True:
            try:
                return await call()
            except Retry as error:
                await silence.pause(error)

    async def _once(self, content: Content, tree: str) -> Answer:
        plan = await self.insist(partial(self._receiver.put, tree, content.manifest))
        self._check(content, plan)
        self._sent += plan.size
        answer = plan
        self._took(1 + min(answer.offset, plan.size))
        while answer.offset < plan.size:
            answer = await self._send(content, tree, plan, answer.offset)
            self._took(1 + min(answer.offset, plan.size))
        return await self._publish(tree)

    async def _publish(self, tree: str) -> Answer:
        with anyio.move_on_after(_PUBLISH_S):
            while True:
                _tell(self._report, "publish", 0, 1)
                answer = await self.insist(partial(self._receiver.commit, tree))
                if answer.state == "published":
                    return answer
        raise TimedOut(f"the receiver has not put the tree in place for {_PUBLISH_S:g} s", _LOOK)

    async def _send(self, content: Content, tree: str, plan: Answer, offset: int) -> Answer:
        """Send over one connection; the answer has the offset that was reached."""
        at = offset

        def sent(count: int) -> None:
            nonlocal at
            at += count
            _tell(self._report, "send", at, plan.size)

        chunks = read(content.tree, plan.missing, offset)
        # Of a block of zstd that is cut nothing can be unpacked. Plain content brings whatever has arrived.
        compress = self._receiver.compresses and self._stuck.pauses < _COMPRESSED_TRIES
        try:
            answer = await self._receiver.send(tree, offset, plan.size, chunks, sent, compress=compress)
            trouble = Retry("the receiver has another offset")
        except Retry as error:
            answer, trouble = await self.insist(partial(self._receiver.look, tree)), error
        if answer.offset > offset:
            self._stuck = _Silence()
        elif answer.offset < plan.size:
            await self._stuck.pause(trouble, is_last=not compress)
        return answer

    @staticmethod
    def _check(content: Content, plan: Answer) -> None:
        """Send nothing but what belongs to the tree, whatever the receiver asks for."""
        members = content.tree.members
        ordered = all(a < b for a, b in zip(plan.missing, plan.missing[1:], strict=False))
        inside = not plan.missing or (plan.missing[0] >= 0 and plan.missing[-1] < len(members))
        if not ordered or not inside or sum(members[n].member.size for n in plan.missing) != plan.size:
            raise RequestRefused("the receiver asks for what this tree does not have", _LOOK)


class _Silence:
    """Pauses between tries that all fail, ever longer ones; they end `_SILENCE_S` after the first.

    Attributes:
        pauses: how many there were.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self.pauses = 0

    async def pause(self, error: Retry, *, is_last: bool = True) -> None:
        """Waits until the next try. Raises Unreachable if the time is over, unless there is another way to try."""
        now = anyio.current_time()
        self._since = now if self._since is None else self._since
        if is_last and now - self._since >= _SILENCE_S:
            raise Unreachable(f"the receiver was not reached for {_SILENCE_S:g} s ({error})", _LOOK)
        self.pauses += 1
        await anyio.sleep(_PAUSE_S * _GROWTH**self.pauses * random.uniform(0.5, 1))


class _Batch(NamedTuple):
    """Members that one thread hashes. Threads that read many small files hold each other up, so one reads them all.

    Unless each has to be waited for, on a network volume or after the machine was started: then several threads do.
    """

    small: bool
    members: list[int]


async def _hash(tree: Tree, batch: _Batch, threads: anyio.CapacityLimiter) -> list[bytes]:
    timed = partial(_timed, tree, batch.members)
    digests, waited = await anyio.to_thread.run_sync(timed, limiter=threads, abandon_on_cancel=True)
    if waited:
        threads.total_tokens = _THREADS
    return digests


def _timed(tree: Tree, numbers: list[int]) -> tuple[list[bytes], bool]:
    """Hash files, and tell whether that was mostly waiting."""
    began, worked = time.monotonic(), time.thread_time()
    digests = hash_files(tree, numbers)
    return digests, time.monotonic() - began > _MOSTLY * (time.thread_time() - worked)


def _batches(tree: Tree, known: Container[int]) -> list[_Batch]:
    """Group the members whose content is not known."""
    unknown = [number for number in range(len(tree.members)) if number not in known]
    large = [number for number in unknown if tree.members[number].member.size > SMALL]
    small = [number for number in unknown if tree.members[number].member.size <= SMALL]
    return [_Batch(kind, part) for kind, numbers in ((False, large), (True, small)) for part in _parts(tree, numbers)]


def _parts(tree: Tree, numbers: list[int]) -> list[list[int]]:
    """Divide them so that threads have like parts."""
    parts, size = list[list[int]](), 0
    for number in numbers:
        if not parts or len(parts[-1]) >= _BATCH_FILES or size >= _BATCH_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(number)
        size += tree.members[number].member.size
    return parts


def _tell(report: Report | None, stage: Literal["hash", "send", "publish"], done: int, total: int) -> None:
    if report:
        report(Progress(stage, done, total))
