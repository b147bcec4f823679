"""Whatever becomes of a queue, its spec and its jobs: no scheduler's Queue of others is touched, none is lost."""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from torchctl.api.job import JobSpec, JobStatus, TorchrunJob
from torchctl.api.kube import KaiQueue
from torchctl.api.labels import QUEUE_UID
from torchctl.api.names import KAI_FINALIZER, VOLCANO_FINALIZER
from torchctl.api.phases import Phase
from torchctl.api.queue import QueueSpec, TorchrunQueue
from torchctl.api.volcano import VolcanoQueue
from torchctl.controllers.queue.claims import KAI, SchedulerQueue, scheduler_of
from torchctl.controllers.queue.plan import Observed, Plan, parent_problem, plan
from torchctl.controllers.queue.status import derive
from torchctl.runtime.conditions import find
from torchctl.runtime.kinds import ObjectMeta

START = datetime(2026, 1, 1, tzinfo=UTC)
UID = "queue-uid"
Name = tuple[str, str]
"""What a scheduler's Queue is called, and its name."""
THEIRS: dict[Name, SchedulerQueue] = {
    ("KAI Queue", "theirs"): KaiQueue(ObjectMeta(name="theirs", uid="theirs"), {"priority": 1}),
    ("Volcano Queue", "theirs"): VolcanoQueue(ObjectMeta(name="theirs", uid="theirs")),
}


def name_of(found: SchedulerQueue) -> Name:
    return scheduler_of(found).noun, found.metadata.name


@dataclass
class World:
    """A queue and the schedulers' Queues of the cluster; a `step` is a reconcile of which the API server takes all."""

    spec: dict[str, Any] = field(default_factory=dict)
    queues: dict[Name, SchedulerQueue] = field(default_factory=THEIRS.copy)
    finalizers: tuple[str, ...] = ()
    jobs: tuple[TorchrunJob, ...] = ()
    deleted_at: datetime | None = None
    gone: bool = False
    now: datetime = START
    made: set[Name] = field(default_factory=set)
    released: set[Name] = field(default_factory=set)
    deleted: set[Name] = field(default_factory=set)

    def observed(self) -> Observed:
        meta = ObjectMeta(
            name="gpu", namespace="team", uid=UID, finalizers=self.finalizers, deletion_timestamp=self.deleted_at
        )
        return Observed(
            TorchrunQueue(meta, QueueSpec.model_validate(self.spec)),
            self.jobs,
            True,
            {found.metadata.name: found for found in self.queues.values() if isinstance(found, KaiQueue)},
            volcano_available=True,
            volcano_queues={
                found.metadata.name: found for found in self.queues.values() if isinstance(found, VolcanoQueue)
            },
        )

    def step(self) -> bool:
        """One reconcile; whether it wrote anything but status."""
        if self.gone:
            return False
        todo = plan(self.observed(), self.now)
        derive(self.observed(), todo, (), self.now)
        if todo.finalizers is not None:
            self.finalizers = todo.finalizers
        self.gone = self.deleted_at is not None and not self.finalizers
        return self._carry_out(todo) or todo.finalizers is not None

    def _carry_out(self, todo: Plan) -> bool:
        before = dict(self.queues)
        if todo.apply is not None and todo.finalizers is None:
            meta = ObjectMeta(
                name=todo.apply["metadata"]["name"],
                uid=f"uid-{todo.apply['metadata']['name']}",
                annotations=todo.apply["metadata"]["annotations"],
            )
            is_kai = todo.apply["apiVersion"] == KAI.kind.api_version
            made = KaiQueue(meta, todo.apply["spec"]) if is_kai else VolcanoQueue(meta)
            assert scheduler_of(made).finalizer in self.finalizers, "what is made is remembered first"
            self.queues[name_of(made)] = made
            self.made.add(name_of(made))
        for found in todo.release:
            bare = ObjectMeta(name=found.metadata.name, uid=found.metadata.uid)
            left = KaiQueue(bare, found.spec) if isinstance(found, KaiQueue) else VolcanoQueue(bare)
            self.queues[name_of(found)] = left
            self.released.add(name_of(found))
        for found in todo.delete:
            assert found.metadata.annotations.get(QUEUE_UID) == UID
            assert not self.jobs, "a job keeps the Queue that it started in"
            del self.queues[name_of(found)]
            self.deleted.add(name_of(found))
        return before != self.queues

    def settle(self) -> None:
        for _ in range(20):
            if not self.step():
                return
        raise AssertionError("no rest")

    def claimed(self) -> set[Name]:
        return {name for name, found in self.queues.items() if found.metadata.annotations.get(QUEUE_UID) == UID}


def volcano(name: str, policy: str = "Manage") -> dict[str, Any]:
    return {"scheduling": {"volcanoQueue": name, "volcanoQueuePolicy": policy}}


SPECS: dict[str, dict[str, Any]] = {
    "manage a": {"kaiQueue": "a"},
    "manage b": {"kaiQueue": "b", "kaiPriority": 2},
    "refer to a": {"kaiQueue": "a", "kaiQueuePolicy": "Reference"},
    "manage theirs": {"kaiQueue": "theirs"},
    "refer to theirs": {"kaiQueue": "theirs", "kaiQueuePolicy": "Reference"},
    "under a": {"kaiQueue": "b", "parentKaiQueue": "a"},
    "volcano's a": volcano("a"),
    "volcano's b": volcano("b") | {"weight": 3, "quota": {"gpus": 8}},
    "refer to volcano's a": volcano("a", "Reference"),
    "manage volcano's theirs": volcano("theirs"),
    "broken": {"kaiQueue": "a", "weight": 2},
    "nothing": {},
}


@given(happenings=st.lists(st.sampled_from([*SPECS, "step", "settle", "job", "done", "later"]), max_size=25))
def test_foreign_queues_stay_and_ours_are_never_lost(happenings: list[str]) -> None:
    world = World()
    spec = JobSpec.model_validate({"jobQueue": "gpu", "numNodes": 1, "command": "true"})
    job = TorchrunJob(ObjectMeta(name="j", namespace="team"), spec, JobStatus(Phase.RUNNING, queue_revision="r"))
    for what in happenings:
        match what:
            case "step" | "settle":
                getattr(world, what)()
            case "job" | "done":
                world.jobs = (job,) if what == "job" else ()
            case "later":
                world.now += timedelta(seconds=10)
            case _:
                world.spec = SPECS[what]
        assert THEIRS.items() <= world.queues.items()
        claimed = {noun for noun, _ in world.claimed()}
        assert "KAI Queue" not in claimed or KAI_FINALIZER in world.finalizers
        assert "Volcano Queue" not in claimed or VOLCANO_FINALIZER in world.finalizers
    world.settle()
    assert not world.step(), "at rest nothing is written"
    world.deleted_at = world.now
    world.settle()
    assert world.gone == (not world.jobs or not world.claimed())
    world.jobs, world.now = (), world.now + timedelta(seconds=10)
    world.settle()
    assert world.gone
    assert world.claimed() == set()
    assert THEIRS.items() <= world.queues.items()
    assert set(world.queues) - set(THEIRS) <= world.released, "what stays was handed over"
    assert world.made - world.released <= world.deleted


def test_a_kai_queue_taken_over_meanwhile_is_a_conflict() -> None:
    world = World({"kaiQueue": "a"})
    world.settle()
    world.spec = SPECS["refer to a"]
    world.settle()
    world.spec = SPECS["manage a"]
    world.settle()
    seen = world.observed()
    found = find(derive(seen, plan(seen, START), (), START).conditions, "KaiQueueReady")
    assert found is not None
    assert (found.reason, world.released, world.claimed()) == ("Conflict", {("KAI Queue", "a")}, set())


def test_a_long_line_of_parents_is_walked_once() -> None:
    """Tenants may make KAI Queues under their own, and the walk is in every reconcile of each of them."""
    length = 40_000
    line = {f"q{n}": KaiQueue(ObjectMeta(name=f"q{n}"), {"parentQueue": f"q{n + 1}"}) for n in range(length)}
    meta = ObjectMeta(name="gpu", namespace="team", uid=UID)
    subject = TorchrunQueue(meta, QueueSpec(kai_queue="mine", parent_kai_queue="q0"))
    began = time.process_time()
    assert parent_problem(Observed(subject, (), True, line)) == ""
    assert time.process_time() - began < 2
