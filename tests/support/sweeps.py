"""The crash sweep: a story told once for each point at which its operator can be cut down."""

import os
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
from gates import sample
from story import Story
from tellings import Scene, Telling, tell
from writes import Point, Write

from torchctl.testing.audit import AuditedRequest
from torchctl.testing.faults import Moment

__all__ = ["MAY_BE_MISSED", "WHOLE", "Sweep", "chosen", "sweep", "undisturbed", "workers_made"]

OF_EACH = os.environ.get("TORCHCTL_SWEEP", "1")
"""So many points of each story are swept, or `all` (`make sweep`)."""
WHOLE = OF_EACH == "all"
MAY_BE_MISSED = 0.2
"""Share of the points that no telling may come by: some writes happen only where events come in a certain order."""
TRIES = 2
"""How often a point is tried that a telling did not come by: another order of events has other writes."""
RESTS = 4
"""After each so many-th telling another operator must find nothing to write. All of them end alike, so it says little
new after one more; and it costs a third of a telling."""
JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"


@dataclass(slots=True)
class Sweep:
    """What came of a sweep.

    Args:
        normal: Undisturbed tellings; the end of any of them will do.
        points: Where its operator can be cut down.
        tellings: One for each point.
        missed: Points that no telling came by.
    """

    story: Story
    normal: list[Telling] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    tellings: list[Telling] = field(default_factory=list)
    missed: list[Point] = field(default_factory=list)

    def problems(self) -> list[str]:
        """Every difference from the undisturbed telling, with its point; and what undisturbed tellings differ in."""
        return [
            f"{telling.point or 'undisturbed'} in {telling.namespace}: {problem}"
            for telling, expected in (*self._undisturbed(), *((telling, self.normal) for telling in self.tellings))
            for problem in telling.problems(expected)
        ]

    def _undisturbed(self) -> list[tuple[Telling, list[Telling]]]:
        own = bool(self.story.edit)  # each of them has another end
        return [(telling, [telling] if own else self.normal[:1]) for telling in self.normal]

    def find_points(self) -> None:
        """All points that there are in any undisturbed telling."""
        writes: Counter[Write] = Counter()
        for telling in self.normal:
            writes |= telling.writes
        self.points = [
            Point(write, number, moment)
            for write in sorted(writes)
            for number in range(1, writes[write] + 1)
            for moment in Moment
        ]

    def __str__(self) -> str:
        differ = sum(bool(telling.problems(self.normal)) for telling in self.tellings)
        missed = f" (not reached: {', '.join(map(str, self.missed))})" if self.missed else ""
        told_s = sum(telling.seconds for telling in self.tellings)
        return (
            f"crash sweep of {self.story.name}: {len(self.tellings)} of {len(self.points)} points, "
            f"{differ} differences, {told_s:.0f} s of telling{missed}"
        )


async def undisturbed(scene: Scene, stories: Iterable[Story], *, times: int, at_once: int) -> list[Sweep]:
    """Tells each story without a cut, `times` times (one that has an edit twice in any case)."""
    sweeps = [Sweep(story) for story in stories]
    todo = deque((found, early) for found in sweeps for early in range(2 if found.story.edit else times))

    async def work() -> None:
        while todo:
            found, early = todo.popleft()
            found.normal.append(await tell(scene, found.story, early=bool(early)))

    await _at_once(work, at_once)
    for found in sweeps:
        found.find_points()
    return sweeps


def chosen(sweeps: Sequence[Sweep]) -> list[list[Point]]:
    """The points of each story that are swept."""
    return [found.points if WHOLE else sample(found.points, int(OF_EACH), place) for place, found in enumerate(sweeps)]


async def sweep(scene: Scene, sweeps: Iterable[Sweep], points: Sequence[Sequence[Point]], *, at_once: int) -> None:
    """Tells each story once for each of its points, several at a time."""
    chosen = [(found, point) for found, some in zip(sweeps, points, strict=True) for point in some]
    todo = deque((found, point, number % RESTS == 0, TRIES) for number, (found, point) in enumerate(chosen))

    async def work() -> None:
        while todo:
            found, point, rests, tries = todo.popleft()
            there = replace(scene, checks_rest=scene.checks_rest and rests)
            telling = await tell(there, found.story, point, found.normal)
            if telling.reached or telling.problems(found.normal):
                found.tellings.append(telling)
            elif tries > 1:
                todo.append((found, point, rests, tries - 1))
            else:
                found.missed.append(point)

    await _at_once(work, at_once)


def workers_made(requests: Iterable[AuditedRequest], sweeps: Iterable[Sweep]) -> list[str]:
    """Tellings in which there were not as many workers created as the story has."""
    made = Counter(
        request.object_ref.namespace
        for request in requests
        if request.user.username == JOB_CONTROLLER
        and request.verb == "create"
        and request.object_ref is not None
        and (request.object_ref.resource, request.object_ref.subresource) == ("pods", "")
        and request.response_status.code == 201
    )
    return [
        f"{telling.point} in {telling.namespace}: {made[telling.namespace]} workers were created, not {wanted}"
        for found in sweeps
        for telling in (*found.normal, *found.tellings)
        if (wanted := found.story.workers) is not None and made[telling.namespace] != wanted
    ]


async def _at_once(work: Callable[[], Coroutine[Any, Any, None]], count: int) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(work)
