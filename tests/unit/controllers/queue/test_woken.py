"""Which queues look again when a KAI Queue changes."""

from types import SimpleNamespace
from typing import Any

from torchctl.api.kube import KaiQueue
from torchctl.api.queue import QueueSpec, TorchrunQueue
from torchctl.controllers.queue.reconciler import QueueReconciler
from torchctl.controllers.settings import OperatorSettings
from torchctl.runtime.kinds import Key, ObjectMeta

QUEUES = (
    TorchrunQueue(ObjectMeta(name="own", namespace="team"), QueueSpec(kai_queue="vision")),
    TorchrunQueue(ObjectMeta(name="below", namespace="team"), QueueSpec(kai_queue="a", parent_kai_queue="vision")),
    TorchrunQueue(ObjectMeta(name="beside", namespace="team"), QueueSpec(kai_queue="b", parent_kai_queue="speech")),
)
CLAIM = {"torchrun.ai/queue-uid": "u", "torchrun.ai/queue": "moved", "torchrun.ai/queue-namespace": "other"}


def reconciler() -> QueueReconciler:
    manager: Any = SimpleNamespace(cache=SimpleNamespace(list=lambda kind: QUEUES), client=None, events=None)
    return QueueReconciler(manager, OperatorSettings(image="torchctl:test"))


def test_a_kai_queue_concerns_who_claims_it_who_names_it_and_who_is_under_it() -> None:
    vision = KaiQueue(ObjectMeta(name="vision", annotations=CLAIM))
    assert set(reconciler().queues_around(vision)) == {
        Key("team", "own"),
        Key("other", "moved"),
        Key("team", "below"),
    }


def test_what_kai_counts_in_a_parent_concerns_none_of_the_queues_under_it() -> None:
    """A parent's counts change with every pod below it, and a parent may have hundreds of queues."""
    vision = KaiQueue(ObjectMeta(name="vision", annotations=CLAIM))
    assert set(reconciler().queues_in(vision)) == {Key("team", "own"), Key("other", "moved")}
