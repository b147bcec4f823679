"""Which changes of a queue wake its jobs."""

import msgspec
from msgspec.structs import replace

from torchctl.api.queue import TORCHRUN_QUEUE, JobCounts, QueueSpec, QueueStatus, TorchrunQueue
from torchctl.controllers.job.reconciler import queue_turned
from torchctl.runtime.cache.informer import Change
from torchctl.runtime.kinds import Condition, ObjectMeta

QUEUE = TorchrunQueue(ObjectMeta(name="gpu", namespace="team"), QueueSpec())


def change(status: QueueStatus) -> Change[TorchrunQueue]:
    return Change(TORCHRUN_QUEUE, "updated", QUEUE, msgspec.structs.replace(QUEUE, status=status), initial=False)


def test_a_count_that_one_job_changed_wakes_no_other() -> None:
    assert not queue_turned(change(QueueStatus(jobs=JobCounts(running=3))))


def test_a_kai_queue_that_turned_wakes_its_waiting_jobs() -> None:
    turned = change(QueueStatus(conditions=(Condition("KaiQueueReady", "False", "Conflict", "theirs"),)))
    assert queue_turned(turned)
    assert queue_turned(replace(turned, old=None))


def test_a_volcano_queue_that_turned_wakes_its_waiting_jobs() -> None:
    managed = QueueSpec.model_validate({"scheduling": {"volcanoQueue": "train", "volcanoQueuePolicy": "Manage"}})
    before = replace(QUEUE, spec=managed)
    status = QueueStatus(conditions=(Condition("VolcanoQueueReady", "True", "VolcanoQueueReady", "as asked"),))
    after = replace(before, status=status)
    assert queue_turned(Change(TORCHRUN_QUEUE, "updated", before, after, initial=False))
