"""A pod that is ended where it is gets a deadline that is over; one that is gone needs none."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from torchctl.api.kube import POD
from torchctl.controllers.job.actions import Halt
from torchctl.controllers.job.plan import Plan
from torchctl.controllers.job.reconciler import JobReconciler
from torchctl.runtime.client.errors import NotFound
from torchctl.runtime.kinds import Key, Kind
from torchctl.runtime.manager import Manager

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

    async def look(self, wanted: Any) -> list[Any]:
        return []


@pytest.mark.parametrize("gone", [False, True])
async def test_it_is_this_pod_whose_deadline_is_over(world: Any, gone: bool) -> None:
    w, server = world("{jobQueue: research, numNodes: 2, command: python train.py}"), Server(gone=gone)
    manager = SimpleNamespace(client=server, events=None, cache=None, applier=server)
    await JobReconciler(cast(Manager, manager), w.settings)._act(w.seen, Plan(halt=(HALT,)))
    patch = {"metadata": {"uid": "uid-1"}, "spec": {"activeDeadlineSeconds": 26}}
    assert server.patches == [(POD, "demo-1-x", patch, "team")]
