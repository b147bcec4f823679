"""What a pass carries out: removals guarded by what was seen, pods that are ended, children of a job that is there."""

from types import SimpleNamespace
from typing import Any, cast

import anyio
import msgspec
import pytest
from specs import decoded
from world import World

from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.kube import CONTROLLER_REVISION, JOB, KAI_PODGROUP, POD, PVC, SERVICE
from torchctl.api.kueue import KUEUE_WORKLOAD
from torchctl.controllers.finding import Refusal
from torchctl.controllers.job.act import Actor
from torchctl.controllers.job.actions import Actions, Child, Halt, Pause, Removal
from torchctl.controllers.job.plan import REFUSAL_REQUEUE_S, Idle, again_s, plan
from torchctl.controllers.job.status import derive
from torchctl.runtime.apply import Applier
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import Conflict, Forbidden, NotFound, Unavailable
from torchctl.runtime.intent import controlled_by
from torchctl.runtime.kinds import Key, Kind
from torchctl.runtime.manager import Manager
from torchctl.testing.fake import FakeApiServer, Served

JOB_OF_TWO = "{jobQueue: research, numNodes: 2, command: python train.py}"


class Deletes:
    """Stands for the client: notes what is deleted, and answers with an error where it is given one."""

    field_manager = "torchctl"

    def __init__(self, answer: Exception | None = None) -> None:
        self.answer = answer
        self.sent: list[tuple[str, str, dict[str, Any]]] = []

    async def delete(self, kind: Kind[Any], name: str, **guards: Any) -> None:
        self.sent.append((kind.kind, name, guards))
        if self.answer is not None:
            raise self.answer

    async def merge_patch(self, kind: Kind[Any], name: str, patch: Any, **where: Any) -> None:
        await self.delete(kind, name, **where)


async def removed(world: type[World], client: Deletes, removal: Removal) -> None:
    w = world(JOB_OF_TWO)
    applier = Applier(cast(Client, client), cast(Cache, None))
    manager = SimpleNamespace(client=client, events=None, cache=None, applier=applier)
    await Actor(cast(Manager, manager)).carry_out(w.seen.job, Actions(remove=(removal,)), {})


@pytest.mark.parametrize(
    ("removal", "version", "grace_s"),
    [
        (Removal(JOB, Key("team", "demo"), "uid"), "", None),
        (Removal(POD, Key("team", "demo"), "uid", force=True), "", 0),
        (Removal(TORCHRUN_JOB, Key("team", "demo"), "uid", version="7"), "7", None),
    ],
)
async def test_a_removal_is_guarded_by_what_it_was_decided_on(
    world: type[World], removal: Removal, version: str, grace_s: int | None
) -> None:
    client = Deletes()
    await removed(world, client, removal)
    guards = {"namespace": "team", "uid": "uid", "resource_version": version, "grace_seconds": grace_s}
    assert client.sent == [(removal.kind.kind, "demo", guards)]


async def test_deleting_a_replaced_object_is_an_error(world: type[World]) -> None:
    """An object that is gone already is none."""
    removal = Removal(JOB, Key("team", "demo"), "uid")
    await removed(world, Deletes(NotFound("gone")), removal)
    with pytest.raises(Conflict):
        await removed(world, Deletes(Conflict("another uid")), removal)


class Applies:
    """Stands for the applier and for the Events' recorder: notes what is made, and what is told."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.told: list[tuple[str, ...]] = []

    async def apply_to(self, live: Any, kind: Kind[Any], body: dict[str, Any], ours: Any, *, first: Any) -> None:
        self.made.append(f"{kind.kind} {body['metadata']['name']}")

    def event(self, regarding: Any, *said: str) -> None:
        self.told.append((f"{regarding.kind} {regarding.name}", *said))


async def test_a_refused_deletion_is_reported_and_holds_up_nothing_else(world: type[World]) -> None:
    w, client, others = world(JOB_OF_TWO), Deletes(Forbidden("jobs are kept here")), Applies()
    cache = SimpleNamespace(get=lambda kind, key: w.seen.job)
    manager = SimpleNamespace(client=client, events=others, cache=cache, applier=others)
    child = Child(JOB, {"metadata": {"name": "demo-r1", "namespace": "team"}}, controlled_by("uid"))
    todo = Actions(remove=(Removal(JOB, Key("team", "demo"), "uid"),), children=(child,))
    actor = Actor(cast(Manager, manager))
    refusals = await actor.carry_out(w.seen.job, todo, actor.look(todo))
    assert others.made == ["Job demo-r1"]
    (refusal,) = refusals
    assert (refusal.kind, refusal.name, refusal.reason, refusal.stays) == ("Job", "demo", "Refused", True)
    assert others.told == [("TorchrunJob demo", "Warning", "Refused", refusal.message)]
    assert refusal.message.startswith("Job demo cannot be deleted: the API server refused it: jobs are kept here")
    assert again_s(Idle(todo), refusals) == REFUSAL_REQUEUE_S


async def test_a_refused_halt_is_reported(world: type[World]) -> None:
    w, client, others = world(JOB_OF_TWO), Deletes(Forbidden("pods are kept here")), Applies()
    manager = SimpleNamespace(client=client, events=others, cache=None, applier=others)
    todo = Actions(halt=(Halt(Key("team", "demo-0-x"), "uid", 5),))
    (refusal,) = await Actor(cast(Manager, manager)).carry_out(w.seen.job, todo, {})
    assert refusal.message.startswith("Pod demo-0-x cannot be ended: the API server refused it: pods are kept here")
    assert (refusal.stays, len(others.told)) == (True, 1)


@pytest.mark.parametrize(("paused", "mark"), [(True, "true"), (False, None)])
async def test_workload_is_paused_by_uid_and_marked(world: type[World], paused: bool, mark: str | None) -> None:
    """A merge patch with null takes the mark away again."""
    server = Server(gone=False)
    todo = Actions(pause=(Pause(Key("team", "job-demo-1"), "uid-w", "7", paused),))
    manager = SimpleNamespace(client=server, events=None, cache=None, applier=server)
    assert await Actor(cast(Manager, manager)).carry_out(world(JOB_OF_TWO).seen.job, todo, {}) == ()
    ((kind, name, patch, namespace),) = server.patches
    assert (kind, name, namespace) == (KUEUE_WORKLOAD, "job-demo-1", "team")
    meta = {"uid": "uid-w", "resourceVersion": "7", "annotations": {"torchrun.ai/paused": mark}}
    assert patch == {"metadata": meta, "spec": {"active": not paused}}


async def test_a_refused_pause_is_reported(world: type[World]) -> None:
    w, client, others = world(JOB_OF_TWO), Deletes(Forbidden("workloads are kept here")), Applies()
    manager = SimpleNamespace(client=client, events=others, cache=None, applier=others)
    todo = Actions(pause=(Pause(Key("team", "job-demo-1"), "uid-w", "7", paused=True),))
    (refusal,) = await Actor(cast(Manager, manager)).carry_out(w.seen.job, todo, {})
    assert refusal.message.startswith("Workload job-demo-1 cannot be paused")
    assert refusal.stays


async def test_job_that_vanished_since_the_plan_is_not_made_again(world: type[World]) -> None:
    """Its pods may still run, and a name belongs to one attempt for ever. The next pass sees that it is gone."""
    w, server = world(JOB_OF_TWO), FakeApiServer([Served(JOB, status=True, generation=True)])
    cache = SimpleNamespace(get=lambda kind, key: w.seen.job if kind == TORCHRUN_JOB else None)
    client = server.client()
    manager = SimpleNamespace(client=client, events=None, cache=cache, applier=Applier(client, cast(Cache, cache)))
    body: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "demo", "namespace": "team"},
        "spec": {},
    }
    owner = {"apiVersion": "v1", "kind": "Owner", "name": "demo", "uid": "owner", "controller": True}
    seen = decoded(JOB, {**body, "metadata": {**body["metadata"], "uid": "uid", "ownerReferences": [owner]}})
    child = Child(JOB, body, controlled_by("owner"))
    actor = Actor(cast(Manager, manager))
    with pytest.raises(Conflict):
        await actor.carry_out(w.seen.job, Actions(children=(child,)), {(JOB, child.key): seen})
    assert await client.list(JOB, namespace="team") == []


def test_a_refused_deletion_does_not_change_status(world: type[World]) -> None:
    """The object stays against the will of the job."""
    w = world(JOB_OF_TWO)
    w.settle()
    stays = Refusal("Job", "demo-r1", "Refused", "no", stays=True)
    assert derive(w.seen, w.last, (stays,), w.now) == derive(w.seen, w.last, (), w.now)


# Pods that are ended.


HALT = Halt(Key("team", "demo-1-x"), "uid-1", 26)


class Server:
    """Stands for client and applier."""

    def __init__(self, *, gone: bool) -> None:
        self.gone = gone
        self.patches: list[tuple[Kind[Any], str, Any, str]] = []

    async def merge_patch(self, kind: Kind[Any], name: str, patch: Any, *, namespace: str) -> None:
        self.patches.append((kind, name, patch, namespace))
        if self.gone:
            raise NotFound(f"pod {name} not found", code=404)


@pytest.mark.parametrize("gone", [False, True])
async def test_it_is_this_pod_whose_deadline_is_over(world: type[World], gone: bool) -> None:
    w, server = world("{jobQueue: research, numNodes: 2, command: python train.py}"), Server(gone=gone)
    manager = SimpleNamespace(client=server, events=None, cache=None, applier=server)
    await Actor(cast(Manager, manager)).carry_out(w.seen.job, Actions(halt=(HALT,)), {})
    patch = {"metadata": {"uid": "uid-1"}, "spec": {"activeDeadlineSeconds": 26}}
    assert server.patches == [(POD, "demo-1-x", patch, "team")]


# A job that leaves meanwhile.


class Cluster:
    """Stands for cache and applier: the job turns into something else once so many children are made."""

    def __init__(self, job: TorchrunJob, after: int, then: TorchrunJob | None) -> None:
        self.job, self.after, self.then = job, after, then
        self.made: list[str] = []

    def get(self, kind: Kind[Any], key: Key) -> TorchrunJob | None:
        return self.job if len(self.made) < self.after else self.then

    async def apply_to(self, live: Any, kind: Kind[Any], body: dict[str, Any], ours: Any, *, first: Any) -> None:
        self.made.append(kind.kind)


def changed(job: TorchrunJob, **meta: Any) -> TorchrunJob:
    return msgspec.structs.replace(job, metadata=msgspec.structs.replace(job.metadata, **meta))


@pytest.mark.parametrize("becomes", ["gone", "another of its name", "one that is being deleted"])
async def test_nothing_is_made_for_a_job_that_has_left_meanwhile(world: type[World], becomes: str) -> None:
    w = world("{jobQueue: research, numNodes: 2, command: python train.py}")
    w.step()
    todo = plan(w.seen, w.settings, w.now).actions
    assert len(todo.children) == 3
    job = w.seen.job
    then = {
        "gone": None,
        "another of its name": changed(job, uid="another"),
        "one that is being deleted": changed(job, deletion_timestamp=w.now),
    }
    cluster = Cluster(job, 1, then[becomes])
    manager = SimpleNamespace(client=None, events=None, cache=cluster, applier=cluster)
    actor = Actor(cast(Manager, manager))
    assert await actor.carry_out(w.seen.job, todo, actor.look(todo)) == ()
    assert cluster.made == ["ControllerRevision", "Service"]


async def test_a_child_gone_since_its_plan_stays_gone(world: type[World]) -> None:
    """The garbage collector takes the children of a deleted job before the cache shows that the job is deleted."""
    w = world(JOB_OF_TWO)
    w.step()
    todo = plan(w.seen, w.settings, w.now).actions
    service = next(one for one in todo.children if one.kind is SERVICE)
    there: dict[Kind[Any], Any] = {TORCHRUN_JOB: w.seen.job, SERVICE: SimpleNamespace(metadata="as it was seen")}
    given: dict[str, Any] = {}

    async def apply_to(live: Any, kind: Kind[Any], body: dict[str, Any], ours: Any, *, first: Any) -> None:
        given[kind.kind] = live

    cache = SimpleNamespace(get=lambda kind, key: there.get(kind))
    applier = SimpleNamespace(apply_to=apply_to)
    actor = Actor(cast(Manager, SimpleNamespace(client=None, events=None, cache=cache, applier=applier)))
    seen = actor.look(todo)
    gone = there.pop(SERVICE)
    assert await actor.carry_out(w.seen.job, todo, seen) == ()
    assert (given["Service"], given["Job"], service.name) == (gone, None, "demo")


# Children that are applied at once.


def child(kind: Kind[Any], name: str = "demo") -> Child:
    return Child(kind, {"metadata": {"name": name, "namespace": "team"}}, controlled_by("uid"))


def test_what_runs_or_keeps_data_is_applied_alone() -> None:
    kinds: tuple[Kind[Any], ...] = (JOB, JOB, CONTROLLER_REVISION, PVC, SERVICE, POD, KAI_PODGROUP, SERVICE, JOB)
    stages = Actions(children=(*map(child, kinds),)).stages
    assert [[one.kind for one in stage] for stage in stages] == [
        *([JOB], [JOB], [CONTROLLER_REVISION], [PVC], [SERVICE], [POD]),
        *([KAI_PODGROUP, SERVICE], [JOB]),
    ]
    assert Actions().stages == ()


class Refuses(Applies):
    """Stands for an applier that waits until a whole stage is under way, and then answers with errors."""

    def __init__(self, errors: dict[str, Exception]) -> None:
        super().__init__()
        self.errors, self.under_way = errors, anyio.Event()

    async def apply_to(self, live: Any, kind: Kind[Any], body: dict[str, Any], ours: Any, *, first: Any) -> None:
        await super().apply_to(live, kind, body, ours, first=first)
        if len(self.made) == 3:
            self.under_way.set()
        await self.under_way.wait()
        if kind.kind in self.errors:
            raise self.errors[kind.kind]


STAGE = (child(CONTROLLER_REVISION), child(KAI_PODGROUP), child(SERVICE), child(JOB))


async def tried(world: type[World], applier: Refuses) -> tuple[Refusal, ...]:
    job = world(JOB_OF_TWO).seen.job
    cache = SimpleNamespace(get=lambda kind, key: job)
    manager = SimpleNamespace(client=None, events=None, cache=cache, applier=applier)
    actor = Actor(cast(Manager, manager))
    return await actor.carry_out(job, Actions(children=STAGE), actor.look(Actions(children=STAGE)))


async def test_refusals_of_a_stage_are_told_in_order(world: type[World]) -> None:
    """And nothing of the next stage is applied."""
    applier = Refuses({"Service": Forbidden("no services"), "ControllerRevision": Forbidden("no revisions")})
    refusals = await tried(world, applier)
    assert [refusal.kind for refusal in refusals] == ["ControllerRevision", "Service"]
    assert len(applier.made) == 3


async def test_an_error_of_a_stage_is_raised_over_refusals(world: type[World]) -> None:
    """The others of the stage have been tried by then."""
    applier = Refuses({"Service": Unavailable("later"), "ControllerRevision": Forbidden("no revisions")})
    with pytest.raises(Unavailable):
        await tried(world, applier)
    assert len(applier.made) == 3
