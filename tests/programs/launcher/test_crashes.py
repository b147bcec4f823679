"""Companion and launchers are killed at any step of a job that takes up new code: all end with it, in one world."""

import asyncio
import os
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import stepping
from forks import Forked, Forks
from gates import Gate, Step, each, gate, sample, steps_of
from launchers import KEY, Crew, Pod, alive, crew
from receivers import contents
from relays import relay
from waiting import until

from torchctl.client.errors import Unreachable
from torchctl.client.tree import scan
from torchctl.client.upload import upload
from torchctl.testing.ports import reserve

OF_EACH = os.environ.get("TORCHCTL_SWEEP", "2")
"""So many steps are swept, or `all` (`make sweep`)."""
WHOLE = OF_EACH == "all"
AT_ONCE = 4
POLLS = 2
KILLED = -9
TOKEN = "pod-uid"
MISSED = 0.3
"""Share of the steps that need not come again: two processes that work at once do so in any order."""
TRIES = 1 if WHOLE else 3
"""So many points are told in place of one: a sample is too small for a share, so the next step follows one that did not
come."""
CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
"""Makes a program the first process of its own PID namespace, as it is in a container: the kernel ends all with it."""
FILES = {"train.py": "one", "net.py": "same"}


@dataclass(frozen=True)
class Point:
    """Where something is killed; `alone` if only the process that makes the step is, which may be a child."""

    at: Step
    alone: bool = False

    def __str__(self) -> str:
        return f"{self.at}{' (that process alone)' if self.alone else ''}"


@dataclass
class Telling:
    point: Point | None
    seen: Counter[str] = field(default_factory=Counter)
    was_killed: bool = False
    problems: list[str] = field(default_factory=list)


class Site:
    """A companion as a process behind a relay, started again whenever it was killed."""

    def __init__(self, starts: Forks, job: Crew, gate: Gate, ports: tuple[int, int]) -> None:
        options = [f"--root={job.claim}", "--host=127.0.0.1", f"--port={ports[0]}", f"--key={KEY}", f"--token={TOKEN}"]
        self._argv = ["torchctl", "workspace", "companion", *options, f"--upload-port={ports[1]}"]
        self._starts, self._job, self._gate = starts, job, gate
        self.running: Forked | None = None

    async def keep(self) -> None:
        """Keeps one running, until cancelled."""
        log, claim = self._job.directory / "companion", self._job.claim
        while True:
            self.running = await self._starts.start(*self._argv, out=log, gate=self._gate.address, root=claim)
            self._gate.kill = self.running.kill
            code = await self.running.wait(timeout_s=600)
            assert code == KILLED, self.running.said


async def tell_companion(directory: Path, starts: Forks, point: Point | None) -> Telling:
    """Two launchers run a program, and a tree is sent to their companion."""
    found, source = Telling(point), directory / "source"
    source.mkdir(parents=True)
    for name, text in (FILES | {"train.py": "two", "more.py": "new"}).items():
        (source / name).write_text(text)
    with reserve(2) as (port, upload_port):
        pass
    async with (
        crew(directory, FILES) as job,
        gate(point.at if point else None) as guard,
        relay(guard, port) as job.port,
        relay(guard, upload_port) as way,
    ):
        await job.end_companion()
        site = Site(starts, job, guard, (port, upload_port))
        async with beside(site.keep()):
            try:
                pods = await job.two()
                await together(pods, "one")
                await send(f"http://127.0.0.1:{way}", source)
                await together(pods, "two")
                found.problems += [
                    f"worker {pod.index} was started {len(pod.starts())} times"
                    for pod in pods
                    if len(pod.starts()) != 2
                ]
                found.problems += differences(source, (job.claim, *(pod.workdir for pod in pods)))
                lines = [line for pod in pods for line in pod.log.read_text().splitlines()]
                found.problems += [line for line in lines if "cannot take the revision" not in line]
            except AssertionError as error:
                found.problems.append(f"{error}\n{(directory / 'companion').read_text()}")
        if site.running:
            site.running.kill()
        found.seen, found.was_killed = guard.seen, guard.reached.is_set()
    return found


async def tell_launcher(directory: Path, index: int, point: Point | None) -> Telling:
    """Two launchers run a program and take up a tree. One of them is killed, and its pod replaced."""
    found = Telling(point)
    os.mkdir(directory)
    async with crew(directory, FILES) as job, gate(point.at if point else None) as guard:
        async with relay(guard, job.port) as job.port:
            pods = Replaced(job, guard, index, alone=bool(point and point.alone))
            async with beside(pods.keep()):
                try:
                    await pods.together("one")
                    await job.commit(FILES | {"train.py": "two", "more.py": "new"})
                    await pods.together("two")
                    found.problems += differences(job.claim, [pod.workdir for pod in pods.now])
                    await until(pods.none_left)
                except AssertionError as error:
                    logs = [f"{pod.directory.name}: {pod.log.read_text()}" for pod in job.pods]
                    found.problems.append("\n".join([str(error), *logs]))
            found.problems += [f"worker {pod.index} ended with {code}" for pod, code in pods.odd()]
            for pod in job.pods:
                end(pod)
        await job.end_companion()
        found.seen, found.was_killed = guard.seen, guard.reached.is_set()
    return found


class Replaced:
    """Two pods of which the one of `index` passes a gate. One that has ended is replaced, as the operator does it."""

    def __init__(self, job: Crew, gate: Gate, index: int, *, alone: bool) -> None:
        self._job, self._gate, self._index = job, gate, index
        self.now: list[Pod] = []
        self.ended: list[Pod] = []
        gate.kill = (lambda pid: os.kill(pid, 9)) if alone else lambda _: end(self.now[index])

    async def keep(self) -> None:
        for index in range(2):
            by = self._gated if index == self._index else lambda directory: ()
            self.now.append(await self._job.pod(index, before=CONTAINER, by=by))
        while True:
            for index, pod in enumerate(self.now):
                assert pod.process
                if pod.process.poll() is not None:
                    self.ended.append(pod)
                    self.now[index] = await self._job.pod(index, before=CONTAINER)
            await asyncio.sleep(0.02)

    async def together(self, text: str) -> None:
        """Returns once both run a program with this text in one world."""

        async def look() -> bool:
            starts = [pod.starts() for pod in self.now]
            return len(starts) == 2 and all(starts) and in_one_world([all_[-1] for all_ in starts], text)

        await until(look, timeout_s=30)

    async def none_left(self) -> bool:
        """Whether no process of a pod that ended is left."""
        return not any(processes_of(pod) for pod in self.ended)

    def odd(self) -> list[tuple[Pod, int]]:
        """Pods that ended neither as killed nor because a move was left half done, with their exit codes."""
        codes = [(pod, pod.process.poll()) for pod in self.ended if pod.process]
        return [(pod, code) for pod, code in codes if code is not None and code not in (KILLED, 1)]

    def _gated(self, directory: Path) -> tuple[str, ...]:
        return stepping.__file__, self._gate.address, str(directory)


def end(pod: Pod) -> None:
    """Kills the first process of a container; the kernel does the rest."""
    assert pod.process
    pod.process.kill()
    pod.process.wait()


def in_one_world(starts: Iterable[dict[str, Any]], text: str) -> bool:
    """Whether programs run with this text in a world that all of them share."""
    starts = list(starts)
    worlds = {start["env"]["PET_RDZV_ID"] for start in starts}
    return {start["text"] for start in starts} == {text} and len(worlds) == 1


async def together(pods: Iterable[Pod], text: str) -> None:
    pods = list(pods)

    async def look() -> bool:
        return all(pod.starts() for pod in pods) and in_one_world([pod.starts()[-1] for pod in pods], text)

    await until(look, timeout_s=30)
    assert all(alive(pod.starts()[-1]["pid"]) for pod in pods)


async def send(url: str, source: Path) -> None:
    """Sends a tree as often as it takes."""
    while True:
        with suppress(Unreachable):
            await upload(url, TOKEN, scan(source))
            return


def differences(tree: Path, places: Iterable[Path]) -> list[str]:
    wanted = contents(tree)
    return [f"{place}: {contents(place)}" for place in places if contents(place) != wanted]


def processes_of(pod: Pod) -> list[int]:
    """The processes whose environment is a pod's."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and f"NOTES={pod.notes_file}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return [pid for pid in found if alive(pid)]


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs something until the block ends. Its failure is the block's."""
    task = asyncio.create_task(work)
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def first_killed(tell: Callable[[int], Awaitable[Telling]], points: int, place: int) -> Telling:
    """Tells what happens if it is killed at that point, or at one of the next if it does not come there."""
    told = await tell(place)
    for further in range(1, min(TRIES, points)):
        if told.was_killed or told.problems:
            break
        told = await tell((place + further) % points)
    return told


def judge(what: str, points: int, tellings: list[Telling], report: Callable[[str], None]) -> None:
    wrong = [f"{telling.point}: {problem}" for telling in tellings for problem in telling.problems]
    missed = [str(telling.point) for telling in tellings if not telling.was_killed]
    rest = f"{len(wrong)} differences, {len(missed)} missed: {missed}"
    report(f"{what} killed at {len(tellings)} of {points} steps: {rest}")
    assert wrong == []
    assert len(missed) <= MISSED * len(tellings)


@pytest.mark.timeout(1800)
async def test_killed_companions_end_with_one_revision(
    tmp_path: Path, starts: Forks, report: Callable[[str], None]
) -> None:
    """There is no world more than without the loss: a program that runs is never touched by it."""
    normal = await tell_companion(tmp_path / "normal", starts, None)
    assert normal.problems == []
    points = [Point(step) for step in steps_of([normal.seen], POLLS)]
    places = range(len(points)) if WHOLE else sample(range(len(points)), int(OF_EACH), 0)

    async def tell(place: int) -> Telling:
        return await tell_companion(tmp_path / str(place), starts, points[place])

    tellings = await each(places, partial(first_killed, tell, len(points)), at_once=AT_ONCE)
    judge("companion", len(points), tellings, report)


@pytest.mark.timeout(1800)
@pytest.mark.skipif(
    subprocess.run([*CONTAINER, "true"], check=False, capture_output=True).returncode != 0,
    reason="PID namespaces cannot be made here",
)
@pytest.mark.parametrize("index", [0, 1])
async def test_killed_launchers_leave_nothing_and_are_replaced(
    tmp_path: Path, index: int, report: Callable[[str], None]
) -> None:
    """Killed as a whole, or only the child that downloads, moves or talks. No rank outlives its launcher."""
    normal = await tell_launcher(tmp_path / "normal", index, None)
    assert normal.problems == []
    points = [Point(step) for step in steps_of([normal.seen], POLLS)]
    points += [replace(point, alone=True) for point in points if point.at.name.startswith("forked: ")]
    places = range(len(points)) if WHOLE else sample(range(len(points)), int(OF_EACH), index)

    async def tell(place: int) -> Telling:
        return await tell_launcher(tmp_path / str(place), index, points[place])

    tellings = await each(places, partial(first_killed, tell, len(points)), at_once=AT_ONCE)
    judge(f"launcher {index}", len(points), tellings, report)
