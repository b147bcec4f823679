"""The finalizer of a queue goes only when its scheduler's Queue is known to be gone."""

from types import SimpleNamespace
from typing import Any

import pytest

from torchctl.api.kube import KaiQueue
from torchctl.api.queue import (
    KaiQueueStatus,
    QueuePolicy,
    QueueSpec,
    QueueStatus,
    Scheduling,
    TorchrunQueue,
    VolcanoQueueStatus,
)
from torchctl.api.volcano import VolcanoQueue
from torchctl.controllers.queue.claims import KAI, VOLCANO, Scheduler, SchedulerQueue, scheduler_of
from torchctl.controllers.queue.plan import LOOK_S
from torchctl.controllers.queue.reconciler import QueueReconciler
from torchctl.controllers.settings import OperatorSettings
from torchctl.runtime.client.errors import Forbidden, NotFound
from torchctl.runtime.clock import SystemClock
from torchctl.runtime.kinds import Key, ObjectMeta

CLAIM = {"torchrun.ai/queue-uid": "uid"}
CLAIMED = KaiQueue(ObjectMeta(name="train", uid="kai", annotations=CLAIM))
FOREIGN = KaiQueue(ObjectMeta(name="train", uid="kai"))
OLD = KaiQueue(ObjectMeta(name="old", uid="old", annotations=CLAIM))
OF_VOLCANO = VolcanoQueue(ObjectMeta(name="train", uid="volcano", annotations=CLAIM))


def asking(scheduler: Scheduler, name: str | None) -> QueueSpec:
    """The spec of a queue that has the operator make such a Queue, or none."""
    if name is None:
        return QueueSpec()
    managed = Scheduling(volcano_queue=name, volcano_queue_policy=QueuePolicy.MANAGE)
    return QueueSpec(kai_queue=name) if scheduler is KAI else QueueSpec(scheduling=managed)


class BlindCluster:
    """The cache has no scheduler's Queues, which it may not watch or has not heard of; a live read answers `answer`.

    With `old`, it still has OLD from before, of which a live read answers that.
    """

    def __init__(
        self,
        answer: SchedulerQueue | Exception,
        *,
        scheduler: Scheduler = KAI,
        available: bool = False,
        old: KaiQueue | Exception | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.answers = {"train": answer} if old is None else {"train": answer, "old": old}
        self.available = available
        self.patches: list[Any] = []
        clock = SystemClock()
        meta = ObjectMeta(
            name="gpu", namespace="team", uid="uid", finalizers=(scheduler.finalizer,), deletion_timestamp=clock.now()
        )
        recorded = (KaiQueueStatus("train", "kai"), None) if scheduler is KAI else (None, VolcanoQueueStatus("train"))
        status = QueueStatus(kai_queue=recorded[0], volcano_queue=recorded[1])
        self.queue = TorchrunQueue(meta, asking(scheduler, "train"), status)
        manager: Any = SimpleNamespace(cache=self, client=self, events=None, clock=clock, applier=None)
        self.reconciler = QueueReconciler(manager, OperatorSettings(image="torchctl:test"))

    def informer(self, kind: Any) -> Any:
        return SimpleNamespace(available=self.available)

    def by_index(self, *query: Any) -> tuple[()]:
        return ()

    def list(self, kind: Any) -> tuple[KaiQueue, ...]:
        return (OLD,) if "old" in self.answers and kind is KAI.kind else ()

    async def merge_patch(self, kind: Any, name: str, patch: Any, **where: str) -> None:
        self.patches.append(patch["metadata"]["finalizers"])

    def get(self, kind: Any, key: Any) -> Any:
        if isinstance(key, Key):
            return self.queue
        assert kind is self.scheduler.kind
        return self._read(key)

    async def _read(self, name: str) -> SchedulerQueue:
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize("available", [False, True], ids=["watch forbidden", "cache behind"])
@pytest.mark.parametrize("found", [CLAIMED, OF_VOLCANO], ids=["KAI", "Volcano"])
async def test_a_queue_out_of_sight_keeps_the_finalizer(found: SchedulerQueue, available: bool) -> None:
    cluster = BlindCluster(found, scheduler=scheduler_of(found), available=available)
    result = await cluster.reconciler.reconcile(Key("team", "gpu"))
    assert result is not None
    assert (result.requeue_after_s, cluster.patches) == (LOOK_S, [])


async def test_a_read_that_is_forbidden_keeps_the_finalizer() -> None:
    cluster = BlindCluster(Forbidden("no"))
    with pytest.raises(Forbidden):
        await cluster.reconciler.reconcile(Key("team", "gpu"))
    assert cluster.patches == []


@pytest.mark.parametrize(("old", "left"), [(OLD, []), (NotFound("no such kind"), [[]])], ids=["there", "gone"])
async def test_kai_queues_of_earlier_names_are_asked_for_too(old: KaiQueue | Exception, left: list[Any]) -> None:
    """The cache still has them from before the watch was forbidden."""
    cluster = BlindCluster(FOREIGN, old=old)
    await cluster.reconciler.reconcile(Key("team", "gpu"))
    assert cluster.patches == left


@pytest.mark.parametrize("answer", [NotFound("no such kind"), FOREIGN])
@pytest.mark.parametrize("scheduler", [KAI, VOLCANO], ids=["KAI", "Volcano"])
async def test_nothing_keeps_a_queue_without_a_scheduler_queue(scheduler: Scheduler, answer: Any) -> None:
    """The scheduler is not there, or its Queue of that name is somebody else's."""
    cluster = BlindCluster(answer, scheduler=scheduler)
    await cluster.reconciler.reconcile(Key("team", "gpu"))
    assert cluster.patches == [[]]


class Renamed:
    """A queue that asks for another Queue of a scheduler's, or none, and still has `old`, whose deletion is refused."""

    def __init__(self, scheduler: Scheduler, asks_for: str | None) -> None:
        self.scheduler = scheduler
        self.told: dict[str, Any] = {}
        clock = SystemClock()
        self.queue = TorchrunQueue(
            ObjectMeta(name="gpu", namespace="team", uid="uid", finalizers=(scheduler.finalizer,)),
            asking(scheduler, asks_for),
        )
        manager: Any = SimpleNamespace(cache=self, client=self, events=self, clock=clock, applier=self)
        self.reconciler = QueueReconciler(manager, OperatorSettings(image="torchctl:test"))

    def informer(self, kind: Any) -> Any:
        return SimpleNamespace(available=True)

    def by_index(self, *query: Any) -> tuple[()]:
        return ()

    def list(self, kind: Any) -> tuple[SchedulerQueue, ...]:
        old = ObjectMeta(name="old", uid="old", annotations=CLAIM)
        there = OLD if self.scheduler is KAI else VolcanoQueue(old)
        return (there,) if kind is self.scheduler.kind else ()

    def get(self, kind: Any, key: Any) -> TorchrunQueue:
        return self.queue

    async def apply(self, kind: Any, body: dict[str, Any], *ours: Any, **how: Any) -> Any:
        if "status" in body:
            self.told = {condition["type"]: condition["message"] for condition in body["status"]["conditions"]}
        return SimpleNamespace(status=body.get("status", {}))

    async def delete(self, kind: Any, name: str, **guards: Any) -> None:
        raise Forbidden(f"{name} has children")

    def event(self, *said: Any) -> None:
        """Nobody listens."""


@pytest.mark.parametrize("asks_for", ["train", None])
@pytest.mark.parametrize(("scheduler", "type_"), [(KAI, "KaiQueueReady"), (VOLCANO, "VolcanoQueueReady")])
async def test_a_refused_deletion_names_the_queue_that_stays(
    scheduler: Scheduler, type_: str, asks_for: str | None
) -> None:
    cluster = Renamed(scheduler, asks_for)
    await cluster.reconciler.reconcile(Key("team", "gpu"))
    said = f"{scheduler.noun} old: the API server refused it: old has children"
    assert cluster.told[type_].startswith(said)
