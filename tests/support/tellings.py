"""Tells a story from beginning to end, undisturbed or with its operator cut down at a point."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
from jobs import Place
from lives import Life, Lives, lives
from snapshots import Snapshot, differences, take_snapshot
from stories import Story
from waiting import PERIOD_S, until
from writes import Point, Write

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.transport import AiohttpTransport
from torchctl.testing.namespaces import NAMESPACE, create_namespace, fresh_name

__all__ = ["Stage", "Telling", "tell"]

SETTLE_S = 90.0
"""How long all may take to be as in the undisturbed telling. The garbage collector hears of new kinds every 30 s."""
STILL_S = 1.0
"""What does not change for as long has come to rest."""
LOOK_S = 4 * PERIOD_S


@dataclass(frozen=True, slots=True)
class Stage:
    """Where stories are told: as whom the user acts, the API server, and how operators are run."""

    admin: Client
    transport: AiohttpTransport
    upstream: Connection
    life: Life
    checks_rest: bool = True
    """Whether a second operator has to find nothing to write."""


@dataclass(slots=True)
class Telling:
    """What came of one telling.

    Args:
        point: Where the operator was to be cut down.
        reached: Whether it was: another order of events may have had other writes.
        done: The namespace once the job had ended and all was quiet.
        left: The namespace once job and queue were deleted.
        writes: How often each write was sent.
        created: How often each write created its object.
        again: Writes of a second operator though everything was done.
        error: What the story did not come to.
    """

    namespace: str
    point: Point | None = None
    reached: bool = False
    done: Snapshot = field(default_factory=dict)
    left: Snapshot = field(default_factory=dict)
    writes: Counter[Write] = field(default_factory=Counter)
    created: Counter[Write] = field(default_factory=Counter)
    again: Counter[Write] = field(default_factory=Counter)
    error: str = ""

    def problems(self, undisturbed: Sequence["Telling"]) -> list[str]:
        """What is not as in the undisturbed telling that is nearest, a line each."""
        if self.error:
            return [self.error]
        return min((self._problems(telling) for telling in undisturbed), key=len)

    def _problems(self, undisturbed: "Telling") -> list[str]:
        return [
            *(f"at the end: {line}" for line in differences(undisturbed.done, self.done)),
            *(f"after deletion: {line}" for line in differences(undisturbed.left, self.left)),
            *(
                f"{write} created {self.created[write]} objects, not {undisturbed.created[write]}"
                for write in sorted({*undisturbed.created, *self.created})
                if self.created[write] != undisturbed.created[write]
            ),
            *(f"written though everything was done: {write}" for write in self.again),
        ]


async def tell(
    stage: Stage, story: Story, point: Point | None = None, expected: Sequence[Telling] = (), *, early: bool = False
) -> Telling:
    """Tells a story in a namespace of its own.

    Args:
        point: Where to cut the operator down; None tells it undisturbed.
        expected: Undisturbed tellings, to one of whose ends it should come.
        early: Whether the story's edit is made before there is a job.
    """
    telling = Telling(fresh_name(f"sweep-{story.name}"), point)
    await create_namespace(stage.admin, telling.namespace)
    try:
        teller = _Teller(stage, story, telling, expected)
        async with lives(stage.life, stage.upstream, telling.namespace, point, teller.edit) as operators:
            try:
                await teller.tell(operators, early=early)
            except AssertionError as error:
                telling.error = str(error)
            telling.reached = operators.was_cut
            telling.writes, telling.created = operators.writes(), operators.created()
    finally:
        await stage.admin.delete(NAMESPACE, telling.namespace)
    return telling


class _Teller:
    """Plays the user."""

    def __init__(self, stage: Stage, story: Story, telling: Telling, expected: Sequence[Telling]) -> None:
        self._stage, self._story, self._telling, self._expected = stage, story, telling, expected
        self._known: dict[str, str] = {}
        self._place = Place(stage.admin, telling.namespace)

    async def edit(self) -> None:
        """Does not change anything the second time."""
        if self._story.edit:
            patch = {"spec": self._story.edit}
            await self._stage.admin.merge_patch(TORCHRUN_QUEUE, "queue", patch, namespace=self._telling.namespace)

    async def tell(self, operators: Lives, *, early: bool) -> None:
        admin, story, namespace = self._stage.admin, self._story, self._telling.namespace
        await admin.create(TORCHRUN_QUEUE, story.queue(namespace))
        if early:
            await self.edit()
        await admin.create(TORCHRUN_JOB, story.job(namespace))
        await operators.begin()
        await self._place.reaches(story.end, story.name, timeout_s=SETTLE_S)
        await self.edit()
        self._telling.done = await self._settle([telling.done for telling in self._expected])
        if self._stage.checks_rest:
            self._telling.again = await operators.again()
        await admin.delete(TORCHRUN_JOB, story.name, namespace=namespace)
        await until(self._queue_is_empty, timeout_s=SETTLE_S)
        await admin.delete(TORCHRUN_QUEUE, "queue", namespace=namespace)
        await self._place.gone(TORCHRUN_QUEUE, "queue", timeout_s=SETTLE_S)
        self._telling.left = await self._settle([telling.left for telling in self._expected])

    async def _queue_is_empty(self) -> bool:
        jobs = (await self._stage.admin.get(TORCHRUN_QUEUE, "queue", self._telling.namespace)).status.jobs
        return jobs is None or not (jobs.succeeded or jobs.failed)

    async def _settle(self, expected: Sequence[Snapshot]) -> Snapshot:
        """The snapshot once it is as expected; where nothing is, once nothing changes or is being deleted."""
        before: Snapshot | None = None
        with anyio.move_on_after(SETTLE_S):
            while True:
                snapshot = await take_snapshot(
                    self._stage.transport, self._telling.namespace, self._known, self._story.masked
                )
                if snapshot in expected or (not expected and snapshot == before and _is_over(snapshot)):
                    return snapshot
                before = snapshot
                await anyio.sleep(LOOK_S if expected else STILL_S)
        return before or {}


def _is_over(snapshot: Snapshot) -> bool:
    """Whether nothing is on its way out: neither being deleted, nor waiting for the garbage collector."""
    owners = {f"<uid of {key.replace('/', ' ')}>" for key in snapshot}
    return not any(
        "deletionTimestamp" in item["metadata"]
        or any(reference["uid"] not in owners for reference in item["metadata"].get("ownerReferences", ()))
        for item in snapshot.values()
    )
