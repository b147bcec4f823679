"""Which queues look again when a KAI Queue or a Volcano Queue changes."""

from types import SimpleNamespace
from typing import Any

from torchctl.api.kube import KaiQueue
from torchctl.api.queue import QueueSpec, Scheduling, TorchrunQueue
from torchctl.api.volcano import VOLCANO_QUEUE, VolcanoQueue
from torchctl.controllers.indexes import (
    QUEUES_BY_KAI,
    QUEUES_BY_PARENT,
    QUEUES_BY_VOLCANO,
    kai_of,
    parent_of,
    volcano_of,
)
from torchctl.controllers.queue.reconciler import QueueReconciler, claim_changed
from torchctl.controllers.settings import OperatorSettings
from torchctl.runtime.cache.change import Change
from torchctl.runtime.cache.index import Index
from torchctl.runtime.kinds import Key, ObjectMeta, key_of

QUEUES = (
    TorchrunQueue(ObjectMeta(name="own", namespace="team"), QueueSpec(kai_queue="vision")),
    TorchrunQueue(ObjectMeta(name="below", namespace="team"), QueueSpec(kai_queue="a", parent_kai_queue="vision")),
    TorchrunQueue(ObjectMeta(name="gangs", namespace="team"), QueueSpec(scheduling=Scheduling(volcano_queue="vision"))),
    TorchrunQueue(ObjectMeta(name="beside", namespace="team"), QueueSpec(kai_queue="b", parent_kai_queue="speech")),
)
CLAIM = {"torchrun.ai/queue-uid": "u", "torchrun.ai/queue": "moved", "torchrun.ai/queue-namespace": "other"}


def reconciler() -> QueueReconciler:
    """One that is given the queues of an index, and not all of them: there are as many as tenants make, and each of
    their KAI Queues is looked at when a term of leadership begins."""
    indexes: dict[str, Index[TorchrunQueue]] = {
        QUEUES_BY_KAI: Index(kai_of),
        QUEUES_BY_PARENT: Index(parent_of),
        QUEUES_BY_VOLCANO: Index(volcano_of),
    }
    for queue in QUEUES:
        for index in indexes.values():
            index.put(key_of(queue), queue)
    cache = SimpleNamespace(by_index=lambda kind, index, value: tuple(indexes[index].find(value)))
    manager: Any = SimpleNamespace(cache=cache, client=None, events=None)
    return QueueReconciler(manager, OperatorSettings(image="torchctl:test"))


def test_a_kai_queue_wakes_owner_namers_and_children() -> None:
    """It concerns the queue that claims it, those that name it, and those that name it as their parent."""
    vision = KaiQueue(ObjectMeta(name="vision", annotations=CLAIM))
    assert set(reconciler().queues_around(vision)) == {
        Key("team", "own"),
        Key("other", "moved"),
        Key("team", "below"),
    }


def test_counts_of_a_parent_wake_no_queue_below_it() -> None:
    """A parent's counts change with every pod below it, and a parent may have hundreds of queues."""
    vision = KaiQueue(ObjectMeta(name="vision", annotations=CLAIM))
    assert set(reconciler().queues_in(vision)) == {Key("team", "own"), Key("other", "moved")}


def test_a_volcano_queue_wakes_owner_and_namers() -> None:
    vision = VolcanoQueue(ObjectMeta(name="vision", annotations=CLAIM))
    assert set(reconciler().queues_in_volcano(vision)) == {Key("team", "gangs"), Key("other", "moved")}


def test_a_volcano_queue_that_changes_hands_wakes_them() -> None:
    """Its generation stays, since a claim is an annotation. What Volcano counts in it wakes nobody."""
    unclaimed = VolcanoQueue(ObjectMeta(name="vision"))
    claimed = VolcanoQueue(ObjectMeta(name="vision", annotations=CLAIM))
    counted = VolcanoQueue(ObjectMeta(name="vision", resource_version="2"))
    turned = [
        claim_changed(Change(VOLCANO_QUEUE, "updated", unclaimed, new, initial=False)) for new in (claimed, counted)
    ]
    assert turned == [True, False]
