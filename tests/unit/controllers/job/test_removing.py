"""What goes is what was seen, and nothing that took its place or was changed since."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import JOB, POD
from torchctl.controllers.job.actions import Child, Halt, Refusal, Removal
from torchctl.controllers.job.plan import REFUSAL_REQUEUE_S, Plan
from torchctl.controllers.job.reconciler import JobReconciler
from torchctl.controllers.job.status import derive
from torchctl.runtime.apply import Applier
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import Conflict, Forbidden, NotFound
from torchctl.runtime.intent import controlled_by
from torchctl.runtime.kinds import Key, Kind
from torchctl.runtime.manager import Manager

JOB_OF_TWO = "{jobQueue: research, numNodes: 2, command: python train.py}"


class Deletes:
    """Stands for the client: notes what is deleted, and answers with an error where it is given one."""

    def __init__(self, answer: Exception | None = None) -> None:
        self.answer = answer
        self.sent: list[tuple[str, str, dict[str, Any]]] = []

    async def delete(self, kind: Kind[Any], name: str, **guards: Any) -> None:
        self.sent.append((kind.kind, name, guards))
        if self.answer is not None:
            raise self.answer

    async def merge_patch(self, kind: Kind[Any], name: str, patch: Any, **where: Any) -> None:
        await self.delete(kind, name, **where)


async def removed(world: Any, client: Deletes, removal: Removal) -> None:
    w = world(JOB_OF_TWO)
    applier = Applier(cast(Client, client), cast(Cache, None))
    manager = SimpleNamespace(client=client, events=None, cache=None, applier=applier)
    await JobReconciler(cast(Manager, manager), w.settings)._act(w.seen, Plan(remove=(removal,)))


@pytest.mark.parametrize(
    ("removal", "version", "grace_s"),
    [
        (Removal(JOB, Key("team", "demo"), "uid"), "", None),
        (Removal(POD, Key("team", "demo"), "uid", force=True), "", 0),
        (Removal(TORCHRUN_JOB, Key("team", "demo"), "uid", version="7"), "7", None),
    ],
)
async def test_a_removal_is_guarded_by_what_it_was_decided_on(
    world: Any, removal: Removal, version: str, grace_s: int | None
) -> None:
    client = Deletes()
    await removed(world, client, removal)
    guards = {"namespace": "team", "uid": "uid", "resource_version": version, "grace_seconds": grace_s}
    assert client.sent == [(removal.kind.kind, "demo", guards)]


async def test_what_is_gone_already_is_no_error_and_what_is_another_by_now_is_one(world: Any) -> None:
    removal = Removal(JOB, Key("team", "demo"), "uid")
    await removed(world, Deletes(NotFound("gone")), removal)
    with pytest.raises(Conflict):
        await removed(world, Deletes(Conflict("another uid")), removal)


class Applies:
    """Stands for the applier and for the Events' recorder: notes what is made, and what is told."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.told: list[tuple[str, ...]] = []

    async def look(self, wanted: list[Any]) -> list[None]:
        return [None for _ in wanted]

    async def apply(self, kind: Kind[Any], body: dict[str, Any], ours: Any, *, found: None) -> None:
        self.made.append(f"{kind.kind} {body['metadata']['name']}")

    def event(self, regarding: Any, *said: str) -> None:
        self.told.append((f"{regarding.kind} {regarding.name}", *said))


async def test_what_may_not_be_deleted_is_told_and_holds_up_nothing_else(world: Any) -> None:
    w, client, others = world(JOB_OF_TWO), Deletes(Forbidden("jobs are kept here")), Applies()
    cache = SimpleNamespace(get=lambda kind, key: w.seen.job)
    manager = SimpleNamespace(client=client, events=others, cache=cache, applier=others)
    child = Child(JOB, {"metadata": {"name": "demo-r1", "namespace": "team"}}, controlled_by("uid"))
    todo = Plan(remove=(Removal(JOB, Key("team", "demo"), "uid"),), children=(child,))
    refusals = await JobReconciler(cast(Manager, manager), w.settings)._act(w.seen, todo)
    assert others.made == ["Job demo-r1"]
    (refusal,) = refusals
    assert (refusal.kind, refusal.name, refusal.reason, refusal.stays) == ("Job", "demo", "Refused", True)
    assert others.told == [("TorchrunJob demo", "Warning", "Refused", refusal.message)]
    assert refusal.message.startswith("Job demo cannot be deleted: the API server refused it: jobs are kept here")
    assert todo.again_s(refusals) == REFUSAL_REQUEUE_S


async def test_a_pod_that_may_not_be_ended_is_told_as_well(world: Any) -> None:
    w, client, others = world(JOB_OF_TWO), Deletes(Forbidden("pods are kept here")), Applies()
    manager = SimpleNamespace(client=client, events=others, cache=None, applier=others)
    todo = Plan(halt=(Halt(Key("team", "demo-0-x"), "uid", 5),))
    (refusal,) = await JobReconciler(cast(Manager, manager), w.settings)._act(w.seen, todo)
    assert refusal.message.startswith("Pod demo-0-x cannot be ended: the API server refused it: pods are kept here")
    assert (refusal.stays, len(others.told)) == (True, 1)


def test_what_stays_against_the_will_of_the_job_is_no_step_that_it_takes(world: Any) -> None:
    w = world(JOB_OF_TWO)
    w.settle()
    stays = Refusal("Job", "demo-r1", "Refused", "no", stays=True)
    assert derive(w.seen, w.last, (stays,), w.now) == derive(w.seen, w.last, (), w.now)
