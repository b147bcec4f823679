"""What goes is what was seen, and nothing that took its place or was changed since."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import JOB, POD
from torchctl.controllers.job.actions import Removal
from torchctl.controllers.job.plan import Plan
from torchctl.controllers.job.reconciler import JobReconciler
from torchctl.runtime.apply import Applier
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import Conflict, NotFound
from torchctl.runtime.kinds import Key, Kind
from torchctl.runtime.manager import Manager


class Deletes:
    """Stands for the client: notes what is deleted, and answers with an error where it is given one."""

    def __init__(self, answer: Exception | None = None) -> None:
        self.answer = answer
        self.sent: list[tuple[str, str, dict[str, Any]]] = []

    async def delete(self, kind: Kind[Any], name: str, **guards: Any) -> None:
        self.sent.append((kind.kind, name, guards))
        if self.answer is not None:
            raise self.answer


async def removed(world: Any, client: Deletes, removal: Removal) -> None:
    w = world("{jobQueue: research, numNodes: 2, command: python train.py}")
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
