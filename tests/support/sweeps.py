"""The crash sweep: a story told once for each point at which its operator can be cut down."""

import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import anyio
from stories import NODES, Story
from tellings import Stage, Telling, tell
from writes import Point, Write

from torchctl.testing.audit import AuditedRequest
from torchctl.testing.faults import Moment

__all__ = ["Sweep", "pods_made", "sweep", "undisturbed"]

TRIES = 3
"""How often a point is tried that a telling did not come by: another order of events has other writes."""
JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"


@dataclass(slots=True)
class Sweep:
    """What came of a sweep.

    Args:
        normal: Undisturbed tellings; the end of any of them will do.
        tellings: One for each point.
        missed: Points that no telling came by.
    """

    story: Story
    normal: Sequence[Telling]
    tellings: list[Telling] = field(default_factory=list)
    missed: list[Point] = field(default_factory=list)
    seconds: float = 0.0

    def problems(self) -> list[str]:
        """Every difference from the undisturbed telling, with its point."""
        return [
            f"{telling.point} in {telling.namespace}: {problem}"
            for telling in self.tellings
            for problem in telling.problems(self.normal)
        ]

    def __str__(self) -> str:
        differ = sum(bool(telling.problems(self.normal)) for telling in self.tellings)
        missed = f" (not reached: {', '.join(map(str, self.missed))})" if self.missed else ""
        return (
            f"crash sweep of {self.story.name}: {len(self.tellings)} points, {differ} differences, "
            f"{self.seconds:.0f} s{missed}"
        )


async def undisturbed(stage: Stage, story: Story) -> tuple[list[Telling], list[Point]]:
    """Tells a story twice without a cut; returns both tellings, and the points that there are in any of them.

    Raises:
        AssertionError: The tellings differ, so that nothing can be compared with them.
    """
    tellings = [await tell(stage, story, early=early) for early in (False, True)]
    writes: Counter[Write] = Counter()
    for telling in tellings:
        writes |= telling.writes
        assert set(telling.created.values()) == {1}, telling.created
        problems = telling.problems([telling] if story.edit else tellings[:1])
        assert not problems, problems
    points = [
        Point(write, number, moment)
        for write in sorted(writes)
        for number in range(1, writes[write] + 1)
        for moment in Moment
    ]
    return tellings, points


async def sweep(
    stage: Stage, story: Story, normal: Sequence[Telling], points: Sequence[Point], *, at_once: int
) -> Sweep:
    """Tells the story once for each point, several at a time."""
    result, started = Sweep(story, normal), time.monotonic()
    todo = deque((point, TRIES) for point in points)

    async def work() -> None:
        while todo:
            point, tries = todo.popleft()
            telling = await tell(stage, story, point, normal)
            if telling.reached or telling.problems(normal):
                result.tellings.append(telling)
            elif tries > 1:
                todo.append((point, tries - 1))
            else:
                result.missed.append(point)

    async with anyio.create_task_group() as tasks:
        for _ in range(at_once):
            tasks.start_soon(work)
    result.seconds = time.monotonic() - started
    return result


def pods_made(requests: Iterable[AuditedRequest], tellings: Iterable[Telling]) -> list[str]:
    """Tellings for whose job there were not as many workers created as it has nodes."""
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
        f"{telling.point} in {telling.namespace}: {made[telling.namespace]} workers were created, not {NODES}"
        for telling in tellings
        if made[telling.namespace] != NODES
    ]
