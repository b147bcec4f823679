"""The Volcano Queue of a TorchrunQueue: when it is made, what it has, and what the status says of it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from torchctl.api.job import JobSpec, JobStatus, TorchrunJob
from torchctl.api.names import VOLCANO_FINALIZER
from torchctl.api.phases import Phase
from torchctl.api.queue import QueueSpec, QueueStatus, TorchrunQueue
from torchctl.api.queue import VolcanoQueueStatus as Recorded
from torchctl.api.volcano import VolcanoQueue, VolcanoQueueStatus
from torchctl.controllers.finding import Refusal
from torchctl.controllers.queue.plan import LOOK_S, Observed, Plan, look_again, plan
from torchctl.controllers.queue.status import derive
from torchctl.controllers.queue.volcano import volcano_queue
from torchctl.runtime.conditions import find
from torchctl.runtime.kinds import ObjectMeta

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
TYPE = "VolcanoQueueReady"


def queue(name: str | None = "train", policy: str = "Manage", **spec: Any) -> TorchrunQueue:
    scheduling = {"volcanoQueue": name, "volcanoQueuePolicy": policy} if name is not None else {}
    meta = ObjectMeta(name="gpu", namespace="team", uid="queue-uid", generation=1, finalizers=(VOLCANO_FINALIZER,))
    return TorchrunQueue(meta, QueueSpec.model_validate({"scheduling": scheduling} | spec))


def found(name: str = "train", claim: str = "queue-uid", state: str = "Open") -> VolcanoQueue:
    meta = ObjectMeta(name=name, uid=f"uid-{name}", annotations={"torchrun.ai/queue-uid": claim} if claim else {})
    return VolcanoQueue(meta, VolcanoQueueStatus(state))


def observed(subject: TorchrunQueue, *there: VolcanoQueue, available: bool = True) -> Observed:
    by_name = {one.metadata.name: one for one in there}
    return Observed(subject, (), False, {}, volcano_available=available, volcano_queues=by_name)


def told(seen: Observed, type_: str = TYPE) -> tuple[str, str, str]:
    condition = find(derive(seen, plan(seen, NOW), (), NOW).conditions, type_)
    assert condition is not None
    return condition.status, condition.reason, condition.message


def test_a_managed_queue_has_the_weight_and_the_quota() -> None:
    seen = observed(queue(weight=3, quota={"gpus": 16, "cpus": "64", "memory": "1Ti"}))
    made = plan(seen, NOW).apply
    assert made is not None
    assert made["spec"] == {"weight": 3, "capability": {"nvidia.com/gpu": "16", "cpu": "64", "memory": "1Ti"}}
    assert made["metadata"]["name"] == "train"
    assert made["metadata"]["annotations"]["torchrun.ai/queue-uid"] == "queue-uid"
    assert told(seen)[:2] == ("True", "VolcanoQueueReady")


def test_no_quota_is_no_bound() -> None:
    assert volcano_queue(queue())["spec"] == {"weight": 1}


def test_gpus_are_counted_as_the_resource_that_pods_ask_for() -> None:
    subject = queue(quota={"gpus": 4}, nodeResources={"gpuResourceName": "amd.com/gpu"})
    assert volcano_queue(subject)["spec"]["capability"] == {"amd.com/gpu": "4"}


def test_the_finalizer_comes_before_the_volcano_queue() -> None:
    subject = queue()
    bare = TorchrunQueue(ObjectMeta(name="gpu", namespace="team", uid="queue-uid"), subject.spec)
    assert plan(observed(bare), NOW) == Plan(finalizers=(VOLCANO_FINALIZER,))


def test_a_referenced_volcano_queue_is_never_written() -> None:
    seen = observed(queue(policy="Reference"), found(claim=""))
    todo = plan(seen, NOW)
    assert (todo.apply, todo.delete, todo.release) == (None, (), ())
    assert told(seen)[:2] == ("True", "VolcanoQueueReady")
    assert told(observed(seen.queue))[:2] == ("False", "VolcanoQueueNotFound")


def test_the_policy_is_reference_unless_asked_otherwise() -> None:
    spec = QueueSpec.model_validate({"scheduling": {"volcanoQueue": "train"}})
    assert plan(observed(TorchrunQueue(ObjectMeta(name="gpu", uid="queue-uid"), spec)), NOW).apply is None


def test_a_foreign_volcano_queue_is_a_conflict() -> None:
    seen = observed(queue(), found(claim="another"))
    assert plan(seen, NOW).apply is None
    status, reason, message = told(seen)
    assert (status, reason) == ("False", "Conflict")
    assert "choose another scheduling.volcanoQueue, or set scheduling.volcanoQueuePolicy: Reference" in message
    assert derive(seen, plan(seen, NOW), (), NOW).volcano_queue is None


def test_a_conflict_is_told_before_all_else() -> None:
    """By that reason alone no job starts in the Queue."""
    closed = observed(queue(), found(claim="another", state="Closed"), found("old"))
    refusal = Refusal("Volcano Queue", "old", "Refused", "Volcano Queue old: it has children")
    status = derive(closed, plan(closed, NOW), (refusal,), NOW)
    told = find(status.conditions, TYPE)
    assert told is not None
    assert told.reason == "Conflict"


def test_a_queue_that_somebody_deletes_is_not_ready() -> None:
    there = found()
    meta = msgspec.structs.replace(there.metadata, deletion_timestamp=NOW, finalizers=("team.example.com/audit",))
    status, reason, message = told(observed(queue(), msgspec.structs.replace(there, metadata=meta)))
    assert (status, reason) == ("False", "StillDeleting")
    assert "held by team.example.com/audit" in message


def test_after_volcano_is_gone_nothing_is_remembered() -> None:
    subject = queue(None)
    bare = msgspec.structs.replace(subject.metadata, finalizers=())
    recorded = QueueStatus(volcano_queue=Recorded("old", "uid-old", "Open"))
    seen = observed(TorchrunQueue(bare, subject.spec, recorded), available=False)
    assert derive(seen, plan(seen, NOW), (), NOW).volcano_queue is None


@pytest.mark.parametrize("state", ["Closing", "Closed"])
def test_a_volcano_queue_that_somebody_closed_is_told(state: str) -> None:
    assert told(observed(queue(), found(state=state)))[:2] == ("False", "VolcanoQueueClosed")


def test_a_handed_over_volcano_queue_stays() -> None:
    todo = plan(observed(queue(policy="Reference"), found()), NOW)
    assert [one.metadata.name for one in todo.release] == ["train"]
    assert todo.delete == ()


def test_without_volcano_the_queue_looks_again() -> None:
    seen = observed(queue(), available=False)
    assert told(seen)[1:] == (
        "VolcanoNotInstalled",
        "the cluster has no queues.scheduling.volcano.sh: install Volcano; this queue goes on by itself then",
    )
    assert look_again(seen, (), NOW) == LOOK_S
    assert look_again(observed(queue()), (), NOW) is None


def test_out_of_sight_the_recorded_name_stays() -> None:
    subject = queue()
    recorded = QueueStatus(volcano_queue=Recorded("old", "uid-old", "Open"))
    seen = observed(TorchrunQueue(subject.metadata, subject.spec, recorded), available=False)
    assert derive(seen, plan(seen, NOW), (), NOW).volcano_queue == recorded.volcano_queue
    seen = replace(seen, volcano_available=True, volcano_queues={"train": found()})
    assert derive(seen, plan(seen, NOW), (), NOW).volcano_queue == Recorded("train", "uid-train", "Open")


def test_other_queues_have_no_such_condition() -> None:
    seen = observed(queue(None))
    assert find(derive(seen, plan(seen, NOW), (), NOW).conditions, TYPE) is None
    left = observed(queue(None), found("old"))
    assert told(left)[:2] == ("True", "NoVolcanoQueue")
    assert [one.metadata.name for one in plan(left, NOW).delete] == ["old"]


@pytest.mark.parametrize(
    ("spec", "reason", "named"),
    [
        (queue(policy="Reference", weight=2).spec, "NotSupportedYet", "spec.weight"),
        (queue(policy="Reference", quota={"gpus": 2}).spec, "NotSupportedYet", "spec.quota.gpus"),
        (queue(quota={"gpus": 2, "jobs": 3}).spec, "NotSupportedYet", "spec.quota.jobs: only"),
        (queue(cohort="all").spec, "NotSupportedYet", "spec.cohort"),
        (queue(policy="Reference", weight=2).spec, "NotSupportedYet", "or set scheduling.volcanoQueuePolicy: Manage"),
        (queue(quota={"cpus": "0"}).spec, "InvalidSpec", "spec.quota.cpus: 0 is no bound to Volcano"),
        (queue(quota={"memory": 0}).spec, "InvalidSpec", "spec.quota.memory: 0 is no bound"),
        (queue(quota={"gpus": 8}, nodeResources={"gpusPerNode": 8}).spec, "InvalidSpec", "come from resource claims"),
        (queue("default").spec, "InvalidSpec", "default and root"),
        (queue("root").spec, "InvalidSpec", "default and root"),
    ],
    ids=repr,
)
def test_what_volcano_does_not_heed_is_refused_by_name(spec: QueueSpec, reason: str, named: str) -> None:
    seen = observed(TorchrunQueue(ObjectMeta(name="gpu", uid="queue-uid"), spec))
    status, said, message = told(seen, "Accepted")
    assert (status, said) == ("False", reason)
    assert named in message


def guest(phase: Phase, revision: str = "r") -> TorchrunJob:
    spec = JobSpec.model_validate({"jobQueue": "other", "numNodes": 1, "command": "true"})
    return TorchrunJob(ObjectMeta(name="j", namespace="them"), spec, JobStatus(phase, queue_revision=revision))


@pytest.mark.parametrize("name", ["train", "renamed"])
def test_a_running_guest_keeps_the_volcano_queue(name: str) -> None:
    """A job of another TorchrunQueue, which refers to the Queue that this one made."""
    subject = queue(name)
    deleted = msgspec.structs.replace(subject.metadata, deletion_timestamp=NOW)
    for seen in (observed(subject, found()), observed(TorchrunQueue(deleted, subject.spec), found())):
        if seen.queue is subject and name == "train":
            continue
        assert plan(replace(seen, guests=(guest(Phase.RUNNING),)), NOW).delete == ()
        for gone in ((), (guest(Phase.SUCCEEDED),), (guest(Phase.PENDING, ""),)):
            assert [one.metadata.name for one in plan(replace(seen, guests=gone), LATER).delete] == ["train"]
    held = replace(observed(TorchrunQueue(deleted, queue().spec), found()), guests=(guest(Phase.RUNNING),))
    assert told(held)[1:] == ("Deleting", "the Volcano Queue is kept until 1 unfinished job ends: them/j")
