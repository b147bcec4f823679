"""The finalizer of a queue goes only when its KAI Queue is known to be gone."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from torchctl.api.kube import KaiQueue
from torchctl.api.names import QUEUE_FINALIZER
from torchctl.api.queue import KaiQueueStatus, QueueSpec, QueueStatus, TorchrunQueue
from torchctl.controllers.queue.plan import KAI_POLL_S
from torchctl.controllers.queue.reconciler import QueueReconciler
from torchctl.controllers.settings import OperatorSettings
from torchctl.runtime.client.errors import Forbidden, NotFound
from torchctl.runtime.clock import SystemClock
from torchctl.runtime.kinds import Key, ObjectMeta

CLAIMED = KaiQueue(ObjectMeta(name="train", uid="kai", annotations={"torchrun.ai/queue-uid": "uid"}))
FOREIGN = KaiQueue(ObjectMeta(name="train", uid="kai"))
OLD = KaiQueue(ObjectMeta(name="old", uid="old", annotations={"torchrun.ai/queue-uid": "uid"}))


class BlindCluster:
    """The cache has none of KAI's Queues, which it may not watch or has not heard of; a live read answers `answer`.

    With `old`, it still has OLD from before, of which a live read answers that.
    """

    def __init__(
        self, answer: KaiQueue | Exception, *, available: bool = False, old: KaiQueue | Exception | None = None
    ) -> None:
        self.answers = {"train": answer} if old is None else {"train": answer, "old": old}
        self.available = available
        self.patches: list[Any] = []
        clock = SystemClock()
        meta = ObjectMeta(
            name="gpu", namespace="team", uid="uid", finalizers=(QUEUE_FINALIZER,), deletion_timestamp=clock.now()
        )
        status = QueueStatus(kai_queue=KaiQueueStatus(name="train", uid="kai"))
        self.queue = TorchrunQueue(meta, QueueSpec(kai_queue="train"), status)
        manager: Any = SimpleNamespace(cache=self, client=self, events=None, clock=clock, applier=None)
        self.reconciler = QueueReconciler(manager, OperatorSettings(image="torchctl:test"))

    def informer(self, kind: Any) -> Any:
        return SimpleNamespace(available=self.available)

    def by_index(self, *query: Any) -> tuple[()]:
        return ()

    def list(self, kind: Any) -> tuple[KaiQueue, ...]:
        return (OLD,) if "old" in self.answers else ()

    async def merge_patch(self, kind: Any, name: str, patch: Any, **where: str) -> None:
        self.patches.append(patch["metadata"]["finalizers"])

    def get(self, kind: Any, key: Any) -> Any:
        return self.queue if isinstance(key, Key) else self._read(key)

    async def _read(self, name: str) -> KaiQueue:
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize("available", [False, True], ids=["watch forbidden", "cache behind"])
async def test_a_kai_queue_out_of_sight_keeps_the_finalizer(available: bool) -> None:
    cluster = BlindCluster(CLAIMED, available=available)
    result = await cluster.reconciler.reconcile(Key("team", "gpu"))
    assert result is not None
    assert (result.requeue_after_s, cluster.patches) == (KAI_POLL_S, [])


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
async def test_nothing_keeps_a_queue_without_its_own_kai_queue(answer: Any) -> None:
    """KAI is not there, or the KAI Queue of that name is somebody else's."""
    cluster = BlindCluster(answer)
    await cluster.reconciler.reconcile(Key("team", "gpu"))
    assert cluster.patches == [[]]


class Renamed:
    """A queue that asks for another KAI Queue, or none, and still has `old`, whose deletion is refused."""

    def __init__(self, asks_for: str | None) -> None:
        self.told: dict[str, Any] = {}
        clock = SystemClock()
        self.queue = TorchrunQueue(
            ObjectMeta(name="gpu", namespace="team", uid="uid", finalizers=(QUEUE_FINALIZER,)),
            QueueSpec(kai_queue=asks_for),
        )
        manager: Any = SimpleNamespace(cache=self, client=self, events=self, clock=clock, applier=self)
        self.reconciler = QueueReconciler(manager, OperatorSettings(image="torchctl:test"))

    def informer(self, kind: Any) -> Any:
        return SimpleNamespace(available=True)

    def by_index(self, *query: Any) -> tuple[()]:
        return ()

    def list(self, kind: Any) -> tuple[KaiQueue]:
        return (msgspec.structs.replace(CLAIMED, metadata=msgspec.structs.replace(CLAIMED.metadata, name="old")),)

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
async def test_a_refused_deletion_names_the_kai_queue_that_stays(asks_for: str | None) -> None:
    cluster = Renamed(asks_for)
    await cluster.reconciler.reconcile(Key("team", "gpu"))
    assert cluster.told["KaiQueueReady"].startswith("KAI Queue old: the API server refused it: old has children")
