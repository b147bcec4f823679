"""Whatever becomes of a queue's spec, of its jobs and of itself: no KAI Queue of others is touched, none is lost."""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from torchctl.api.job import JobSpec, JobStatus, TorchrunJob
from torchctl.api.kube import KaiQueue
from torchctl.api.labels import QUEUE_UID
from torchctl.api.names import QUEUE_FINALIZER
from torchctl.api.phases import Phase
from torchctl.api.queue import QueueSpec, TorchrunQueue
from torchctl.controllers.queue.plan import Observed, Plan, parent_problem, plan
from torchctl.controllers.queue.status import derive
from torchctl.runtime.conditions import find
from torchctl.runtime.kinds import ObjectMeta

START = datetime(2026, 1, 1, tzinfo=UTC)
UID = "queue-uid"
THEIRS = KaiQueue(ObjectMeta(name="theirs", uid="theirs"), {"priority": 1})


@dataclass
class World:
    """A queue and the KAI Queues of the cluster; `step` is one reconcile of which the API server takes everything."""

    spec: dict[str, Any] = field(default_factory=dict)
    kai_queues: dict[str, KaiQueue] = field(default_factory=lambda: {"theirs": THEIRS})
    finalizers: tuple[str, ...] = ()
    jobs: tuple[TorchrunJob, ...] = ()
    deleted_at: datetime | None = None
    gone: bool = False
    now: datetime = START
    made: set[str] = field(default_factory=set)
    released: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)

    def observed(self) -> Observed:
        meta = ObjectMeta(
            name="gpu", namespace="team", uid=UID, finalizers=self.finalizers, deletion_timestamp=self.deleted_at
        )
        subject = TorchrunQueue(meta, QueueSpec.model_validate(self.spec))
        return Observed(subject, self.jobs, True, self.kai_queues)

    def step(self) -> bool:
        """One reconcile; whether it wrote anything but status."""
        if self.gone:
            return False
        todo = plan(self.observed(), self.now)
        derive(self.observed(), todo, (), self.now)
        if todo.finalizers is not None:
            self.finalizers = todo.finalizers
        self.gone = self.deleted_at is not None and QUEUE_FINALIZER not in self.finalizers
        return self._carry_out(todo) or todo.finalizers is not None

    def _carry_out(self, todo: Plan) -> bool:
        before = dict(self.kai_queues)
        if todo.apply is not None and todo.finalizers is None:
            assert QUEUE_FINALIZER in self.finalizers, "what is made is remembered first"
            name = todo.apply["metadata"]["name"]
            annotations = todo.apply["metadata"]["annotations"]
            self.kai_queues[name] = KaiQueue(
                ObjectMeta(name=name, uid=f"uid-{name}", annotations=annotations), todo.apply["spec"]
            )
            self.made.add(name)
        for found in todo.release:
            self.kai_queues[found.metadata.name] = KaiQueue(
                ObjectMeta(name=found.metadata.name, uid=found.metadata.uid), found.spec
            )
            self.released.add(found.metadata.name)
        for found in todo.delete:
            assert found.metadata.annotations.get(QUEUE_UID) == UID
            assert not self.jobs, "a job keeps the KAI Queue that it started in"
            del self.kai_queues[found.metadata.name]
            self.deleted.add(found.metadata.name)
        return before != self.kai_queues

    def settle(self) -> None:
        for _ in range(20):
            if not self.step():
                return
        raise AssertionError("no rest")

    def claimed(self) -> set[str]:
        return {name for name, found in self.kai_queues.items() if found.metadata.annotations.get(QUEUE_UID) == UID}


SPECS: dict[str, dict[str, Any]] = {
    "manage a": {"kaiQueue": "a"},
    "manage b": {"kaiQueue": "b", "kaiPriority": 2},
    "refer to a": {"kaiQueue": "a", "kaiQueuePolicy": "Reference"},
    "manage theirs": {"kaiQueue": "theirs"},
    "refer to theirs": {"kaiQueue": "theirs", "kaiQueuePolicy": "Reference"},
    "under a": {"kaiQueue": "b", "parentKaiQueue": "a"},
    "broken": {"kaiQueue": "a", "weight": 2},
    "nothing": {},
}


@given(happenings=st.lists(st.sampled_from([*SPECS, "step", "settle", "job", "done", "later"]), max_size=25))
def test_foreign_kai_queues_stay_and_ours_are_never_lost(happenings: list[str]) -> None:
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
        assert world.kai_queues["theirs"] == THEIRS
        assert not world.claimed() or QUEUE_FINALIZER in world.finalizers
    world.settle()
    assert not world.step(), "at rest nothing is written"
    world.deleted_at = world.now
    world.settle()
    assert world.gone == (not world.jobs or not world.claimed())
    world.jobs, world.now = (), world.now + timedelta(seconds=10)
    world.settle()
    assert world.gone
    assert world.claimed() == set()
    assert world.kai_queues["theirs"] == THEIRS
    assert set(world.kai_queues) - {"theirs"} <= world.released, "what stays was handed over"
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
    assert (found.reason, world.released, world.claimed()) == ("Conflict", {"a"}, set())


def test_a_long_line_of_parents_is_walked_once() -> None:
    """Tenants may make KAI Queues under their own, and the walk is in every reconcile of each of them."""
    length = 40_000
    line = {f"q{n}": KaiQueue(ObjectMeta(name=f"q{n}"), {"parentQueue": f"q{n + 1}"}) for n in range(length)}
    meta = ObjectMeta(name="gpu", namespace="team", uid=UID)
    subject = TorchrunQueue(meta, QueueSpec(kai_queue="mine", parent_kai_queue="q0"))
    began = time.process_time()
    assert parent_problem(Observed(subject, (), True, line)) == ""
    assert time.process_time() - began < 2
