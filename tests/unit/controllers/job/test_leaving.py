"""A job that is deleted while its children are being made gets no more of them."""

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from torchctl.api.job import TorchrunJob
from torchctl.controllers.job.actions import Child
from torchctl.controllers.job.plan import plan
from torchctl.controllers.job.reconciler import JobReconciler
from torchctl.runtime.apply import Found
from torchctl.runtime.kinds import Key, Kind
from torchctl.runtime.manager import Manager


class Cluster:
    """Stands for cache and applier: the job turns into something else once so many children are made."""

    def __init__(self, job: TorchrunJob, after: int, then: TorchrunJob | None) -> None:
        self.job, self.after, self.then = job, after, then
        self.made: list[str] = []

    def get(self, kind: Kind[Any], key: Key) -> TorchrunJob | None:
        return self.job if len(self.made) < self.after else self.then

    async def look(self, wanted: list[tuple[Kind[Any], Key]]) -> list[Found[Any]]:
        return [Found()] * len(wanted)

    async def apply(self, kind: Kind[Any], body: dict[str, Any], ours: Any, *, found: Found[Any]) -> None:
        self.made.append(Child(kind, body, ours).name)


def changed(job: TorchrunJob, **meta: Any) -> TorchrunJob:
    return msgspec.structs.replace(job, metadata=msgspec.structs.replace(job.metadata, **meta))


@pytest.mark.parametrize("becomes", ["gone", "another of its name", "one that is being deleted"])
async def test_nothing_is_made_for_a_job_that_has_left_meanwhile(world: Any, becomes: str) -> None:
    w = world("{jobQueue: research, numNodes: 2, command: python train.py}")
    w.step()
    todo = plan(w.seen, w.settings, w.now)
    assert len(todo.children) == 3
    job = w.seen.job
    then = {
        "gone": None,
        "another of its name": changed(job, uid="another"),
        "one that is being deleted": changed(job, deletion_timestamp=w.now),
    }
    cluster = Cluster(job, 1, then[becomes])
    manager = SimpleNamespace(client=None, events=None, cache=cluster, applier=cluster)
    assert await JobReconciler(cast(Manager, manager), w.settings)._act(w.seen, todo) == ()
    assert len(cluster.made) == 1
