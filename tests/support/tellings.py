"""Tells a story from beginning to end, undisturbed or with its operator cut down at a point."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, repeat

import anyio
from lives import Life, Lives, lives
from snapshots import Snapshot, count, differences, read_namespace, snapshot_of
from story import Story
from users import Act, User
from waiting import PERIOD_S, until
from writes import Point, Write

from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.kube import KAI_QUEUE
from torchctl.api.queue import TORCHRUN_QUEUE, JobCounts
from torchctl.controllers.settings import CoordinatorSettings
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.errors import ApiError, Timeout
from torchctl.runtime.client.transport import AiohttpTransport
from torchctl.testing.kubelet import ScriptedKubelet
from torchctl.testing.namespaces import NAMESPACE, create_namespace, fresh_name

__all__ = ["Scene", "Telling", "tell"]

SETTLE_S = 300.0
"""How long all may take to be as in the undisturbed telling, on a machine that is ten times slower than a quiet one.
The garbage collector hears of new kinds every 30 s."""
STILL_S = 1.0
"""What does not change for as long has come to rest."""
LOOKS_S = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
"""Between two looks at all there is: from one to the next of these, and to the last one again and again."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Where stories are told: as whom the user acts, what he sees, the API server, and how operators are run."""

    admin: Client
    transport: AiohttpTransport
    upstream: Connection
    cache: Cache
    kubelet: ScriptedKubelet
    life: Life
    coordinated: Callable[[CoordinatorSettings], Life]
    """The same with a coordinator."""
    checks_rest: bool = True
    """Whether a second operator has to find nothing to write."""


@dataclass(slots=True)
class Telling:
    """What came of one telling.

    Args:
        point: Where the operator was to be cut down.
        races: Whether it is a matter of time what was created.
        reached: Whether it was: another order of events may have had other writes.
        done: The namespace once the job had ended and all was quiet.
        left: The namespace once job and queue were deleted.
        writes: How often each write was sent.
        created: How often each write created its object.
        again: Writes of a second operator though everything was done.
        error: What the story did not come to.
        seconds: How long it took.
    """

    namespace: str
    point: Point | None = None
    races: bool = False
    reached: bool = False
    done: Snapshot = field(default_factory=dict)
    left: Snapshot = field(default_factory=dict)
    writes: Counter[Write] = field(default_factory=Counter)
    created: Counter[Write] = field(default_factory=Counter)
    again: Counter[Write] = field(default_factory=Counter)
    error: str = ""
    seconds: float = 0.0

    def problems(self, undisturbed: Sequence["Telling"]) -> list[str]:
        """What is not as in the undisturbed telling that is nearest, a line each."""
        if self.error:
            return [self.error]
        return min((self._problems(telling) for telling in undisturbed), key=len)

    def _problems(self, undisturbed: "Telling") -> list[str]:
        return [
            *(f"at the end: {line}" for line in differences(undisturbed.done, self.done)),
            *(f"after deletion: {line}" for line in differences(undisturbed.left, self.left)),
            *self._created(undisturbed),
            *(f"written though everything was done: {write}" for write in self.again),
        ]

    def _created(self, undisturbed: "Telling") -> Iterator[str]:
        for write in sorted({*undisturbed.created, *self.created}):
            made, expected = self.created[write], undisturbed.created[write]
            if made != expected and (made > 1 or not self.races):
                yield f"{write} created {made} objects, not {expected}"


async def tell(
    scene: Scene, story: Story, point: Point | None = None, expected: Sequence[Telling] = (), *, early: bool = False
) -> Telling:
    """Tells a story in a namespace of its own.

    Args:
        point: Where to cut the operator down; None tells it undisturbed.
        expected: Undisturbed tellings, to one of whose ends it should come.
        early: Whether the story's edit is made before there is a job.
    """
    telling, started = Telling(fresh_name(story.name), point, story.races), time.monotonic()
    await create_namespace(scene.admin, telling.namespace)
    teller = _Teller(scene, story, telling, expected)
    life = scene.life if story.coordinator is None else scene.coordinated(story.coordinator)
    async with lives(life, scene.upstream, telling.namespace, point, teller.edit) as operators:
        try:
            await teller.tell(operators, early=early)
        except (AssertionError, ApiError) as error:
            telling.error = str(error)
        telling.reached = operators.was_cut
        telling.writes, telling.created = operators.writes(), operators.created()
    if telling.error:  # an empty namespace costs more to delete than to keep
        await scene.admin.delete(NAMESPACE, telling.namespace)
    telling.seconds = time.monotonic() - started
    return telling


class _Teller:
    """Plays the user."""

    def __init__(self, scene: Scene, story: Story, telling: Telling, expected: Sequence[Telling]) -> None:
        self._scene, self._story, self._telling, self._expected = scene, story, telling, expected
        self._known: dict[str, str] = {}
        self._user = User(scene.admin, scene.cache, scene.kubelet, telling.namespace)
        self._names: list[str] = []

    async def edit(self) -> None:
        """Does not change anything the second time."""
        if self._story.edit:
            await self._user.edit_queue(self._story.edit)

    async def tell(self, operators: Lives, *, early: bool) -> None:
        admin, story, namespace = self._scene.admin, self._story, self._telling.namespace
        await admin.create(TORCHRUN_QUEUE, story.queue(namespace))
        if early:
            await self.edit()
        for job in story.jobs(namespace):
            created = await admin.create(TORCHRUN_JOB, job)
            self._names.append(created.metadata.name)
            self._known[created.metadata.uid] = f"<uid of {TORCHRUN_JOB.kind} {created.metadata.name}>"
        await operators.begin()
        for act in story.acts:
            await self._act(act)
        await self._come_to_the_end()
        await self.edit()
        self._telling.done = await self._settle([telling.done for telling in self._expected])
        if self._scene.checks_rest and story.end is not None:
            self._telling.again = await operators.again()
        await self._clear_away()
        self._telling.left = await self._settle([telling.left for telling in self._expected])
        for name in {key.removeprefix("Queue/") for key in self._telling.left if key.startswith("Queue/")}:
            await admin.delete(KAI_QUEUE, name.replace("<namespace>", namespace))

    async def _act(self, act: Act) -> None:
        name = act.job or self._story.name
        await self._until(
            f"act {self._story.acts.index(act)}", name, lambda job: job is not None and act.when(job.status)
        )
        await act.do(self._user, name)

    async def _come_to_the_end(self) -> None:
        end, name = self._story.end, self._story.name
        if end is None:
            await self._until("its end", name, lambda job: job is None)
        else:
            await self._until(end, name, lambda job: job is not None and job.status.phase == end)

    async def _until(self, what: str, name: str, given: Callable[[TorchrunJob | None], bool]) -> None:
        with anyio.move_on_after(SETTLE_S):
            while not given(self._user.job(name)):  # noqa: ASYNC110 - another task fills the cache
                await anyio.sleep(PERIOD_S)
            return
        job = self._user.job(name)
        raise AssertionError(f"job {name} does not come to {what}: {job and job.status}")

    async def _clear_away(self) -> None:
        for name in self._names:
            await self._user.delete_job(name)
        await until(self._queue_is_empty, timeout_s=SETTLE_S)
        await self._scene.admin.delete(TORCHRUN_QUEUE, "queue", namespace=self._telling.namespace)
        await until(self._queue_is_gone, timeout_s=SETTLE_S)

    async def _queue_is_empty(self) -> bool:
        queue = self._user.queue()
        return queue is not None and (queue.status.jobs or JobCounts()) == JobCounts()

    async def _queue_is_gone(self) -> bool:
        return self._user.queue() is None

    async def _settle(self, expected: Sequence[Snapshot]) -> Snapshot:
        """The snapshot once it is as expected; where nothing is, once nothing changes or is being deleted."""
        counts, before = [count(snapshot) for snapshot in expected], Snapshot()
        waits = chain(LOOKS_S, repeat(LOOKS_S[-1])) if expected else repeat(STILL_S)
        with anyio.move_on_after(SETTLE_S):
            while True:
                pages = []
                with suppress(Timeout):  # who is busy is asked again
                    pages = await read_namespace(self._scene.transport, self._telling.namespace, counts)
                snapshot = self._snapshot(pages) if pages else {}
                if pages and (snapshot in expected or (not expected and snapshot == before and _is_over(snapshot))):
                    return snapshot
                before = snapshot
                await anyio.sleep(next(waits))
        return self._snapshot(await read_namespace(self._scene.transport, self._telling.namespace))

    def _snapshot(self, pages: Sequence[bytes]) -> Snapshot:
        return snapshot_of(pages, self._telling.namespace, self._known, self._story.masked)


def _is_over(snapshot: Snapshot) -> bool:
    """Whether nothing is on its way out: neither being deleted, nor waiting for the garbage collector."""
    owners = {f"<uid of {key.replace('/', ' ')}>" for key in snapshot}
    return not any(
        "deletionTimestamp" in item["metadata"]
        or any(reference["uid"] not in owners for reference in item["metadata"].get("ownerReferences", ()))
        for item in snapshot.values()
    )
