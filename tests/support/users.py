"""What the user of a story sees of its jobs, and does to them."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from torchctl.api.conditions import JobCondition
from torchctl.api.job import TORCHRUN_JOB, JobStatus, TorchrunJob
from torchctl.api.kube import POD, Pod
from torchctl.api.labels import ATTEMPT, JOB_NAME, ROLE, ROLE_WORKER
from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE, TorchrunQueue
from torchctl.controllers.job import pods
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import NotFound
from torchctl.runtime.conditions import is_true
from torchctl.runtime.kinds import Key
from torchctl.testing.kubelet import ScriptedKubelet

__all__ = [
    "Act",
    "User",
    "asks_for",
    "brought",
    "deletes",
    "deletes_worker",
    "edits",
    "edits_queue",
    "ends",
    "in_phase",
    "ready",
    "runs",
    "runs_code",
]


class User:
    """Acts in one namespace, whose queue is called `queue`.

    Args:
        cache: Has queues and jobs of all namespaces: who looks there asks the API server nothing.
    """

    def __init__(self, admin: Client, cache: Cache, kubelet: ScriptedKubelet, namespace: str) -> None:
        self.admin, self.kubelet, self.namespace, self._cache = admin, kubelet, namespace, cache

    def job(self, name: str) -> TorchrunJob | None:
        return self._cache.get(TORCHRUN_JOB, Key(self.namespace, name))

    def queue(self) -> TorchrunQueue | None:
        return self._cache.get(TORCHRUN_QUEUE, Key(self.namespace, "queue"))

    async def edit_job(self, name: str, spec: dict[str, Any]) -> None:
        await self.admin.merge_patch(TORCHRUN_JOB, name, {"spec": spec}, namespace=self.namespace)

    async def edit_queue(self, spec: dict[str, Any]) -> None:
        await self.admin.merge_patch(TORCHRUN_QUEUE, "queue", {"spec": spec}, namespace=self.namespace)

    async def delete_job(self, name: str) -> None:
        """Does nothing the second time."""
        with suppress(NotFound):
            await self.admin.delete(TORCHRUN_JOB, name, namespace=self.namespace)

    async def delete_worker(self, job: str, index: int | None) -> None:
        """Tells a worker of the attempt that runs to stop, or all of them."""
        for pod in await self._workers(job, index):
            await self.admin.delete(POD, pod.metadata.name, namespace=self.namespace)

    async def end_worker(self, job: str, index: int | None, exit_code: int) -> None:
        """A worker of the attempt that runs comes to its end, or all of them."""
        for pod in await self._workers(job, index):
            self.kubelet.end(self.namespace, pod.metadata.name, exit_code)

    async def _workers(self, name: str, index: int | None) -> list[Pod]:
        job = self.job(name)
        assert job is not None, f"{name} is gone"
        labels = f"{JOB_NAME}={name},{ROLE}={ROLE_WORKER},{ATTEMPT}={job.status.attempt}"
        found = await self.admin.list(POD, namespace=self.namespace, labels=labels)
        running = [pod for pod in found if index in (None, pods.index(pod)) and pod.status.phase == "Running"]
        assert running, f"no worker {index} of {name} runs: {found}"
        return running


@dataclass(frozen=True, slots=True)
class Act:
    """What the user does to a job as soon as its status is such. Such a status stays until then.

    Args:
        job: Name of the job; empty for the story's own.
    """

    when: Callable[[JobStatus], bool]
    do: Callable[[User, str], Awaitable[None]]
    job: str = ""


# When.


def in_phase(phase: Phase) -> Callable[[JobStatus], bool]:
    return lambda status: status.phase == phase


def runs(attempt: int) -> Callable[[JobStatus], bool]:
    """All workers of that attempt run."""
    return lambda status: (status.phase, status.attempt) == (Phase.RUNNING, attempt)


def runs_code(attempt: int, revision: str) -> Callable[[JobStatus], bool]:
    """All workers of that attempt run that revision of the workspace."""

    def there(status: JobStatus) -> bool:
        return runs(attempt)(status) and status.workspace is not None and status.workspace.revision == revision

    return there


def ready(nodes: int) -> Callable[[JobStatus], bool]:
    """So many workers are ready, and no others are there."""
    wanted = (Phase.RUNNING, nodes, nodes, nodes)
    return lambda status: (status.phase, status.nodes.desired, status.nodes.ready, status.workers.running) == wanted


def brought(revision: str) -> Callable[[JobStatus], bool]:
    """The job stands still with that revision of its workspace."""

    def there(status: JobStatus) -> bool:
        known, ready = status.workspace, is_true(status.conditions, JobCondition.WORKSPACE_READY)
        return status.phase == Phase.SUSPENDED and ready and known is not None and known.requested == revision

    return there


# What.


def ends(index: int | None = None, exit_code: int = 0) -> Callable[[User, str], Awaitable[None]]:
    return lambda user, job: user.end_worker(job, index, exit_code)


def edits(**spec: Any) -> Callable[[User, str], Awaitable[None]]:
    return lambda user, job: user.edit_job(job, spec)


def looks() -> Callable[[User, str], Awaitable[None]]:
    """Does nothing: what follows waits for the status all the same."""

    async def look(user: User, job: str) -> None:
        pass

    return look


def asks_for(revision: str) -> Callable[[User, str], Awaitable[None]]:
    return edits(volumes={"workspace": {"revision": revision}})


def edits_queue(**spec: Any) -> Callable[[User, str], Awaitable[None]]:
    return lambda user, job: user.edit_queue(spec)


def deletes() -> Callable[[User, str], Awaitable[None]]:
    return lambda user, job: user.delete_job(job)


def deletes_worker(index: int | None = None) -> Callable[[User, str], Awaitable[None]]:
    return lambda user, job: user.delete_worker(job, index)
