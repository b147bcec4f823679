"""TorchrunQueues and TorchrunJobs as tests write them, and waiting for what becomes of them."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import anyio
from waiting import PERIOD_S, until

from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.kube import KAI_QUEUE
from torchctl.api.names import API_VERSION
from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import NotFound
from torchctl.runtime.conditions import find
from torchctl.runtime.kinds import EVENT, Condition, Event, Kind

__all__ = ["Place", "a_job", "a_kai_queue", "a_queue", "become"]

T = TypeVar("T")


def a_queue(namespace: str, name: str = "queue", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": TORCHRUN_QUEUE.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"image": "trainer:1", **spec},
    }


def a_job(namespace: str, name: str = "job", **spec: Any) -> dict[str, Any]:
    """A job of two nodes in queue `queue`, unless `spec` says otherwise; what is None there is left out."""
    whole = {"jobQueue": "queue", "numNodes": 2, "command": "python train.py", **spec}
    return {
        "apiVersion": API_VERSION,
        "kind": TORCHRUN_JOB.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {field: value for field, value in whole.items() if value is not None},
    }


def a_kai_queue(name: str, **spec: Any) -> dict[str, Any]:
    """A KAI Queue that somebody else than the operator makes; KAI's own schema wants all three resources."""
    unbounded = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = dict.fromkeys(("gpu", "cpu", "memory"), unbounded)
    body = {"apiVersion": KAI_QUEUE.api_version, "kind": KAI_QUEUE.kind, "metadata": {"name": name}}
    return body | {"spec": {"resources": resources, **spec}}


@dataclass(frozen=True)
class Place:
    """A namespace, as its user sees it."""

    admin: Client
    namespace: str

    async def queue(self, name: str = "queue", **spec: Any) -> None:
        """Creates a queue."""
        await self.admin.create(TORCHRUN_QUEUE, a_queue(self.namespace, name, **spec))

    async def job(self, name: str = "job", **spec: Any) -> None:
        """Creates a job."""
        await self.admin.create(TORCHRUN_JOB, a_job(self.namespace, name, **spec))

    async def touch(self, name: str = "job") -> None:
        """Makes the operator look at a job now, as any change would, instead of when its time comes."""
        body = {"metadata": {"annotations": {"touched": secrets.token_hex(4)}}}
        await self.admin.merge_patch(TORCHRUN_JOB, name, body, namespace=self.namespace)

    async def reaches(self, phase: Phase, name: str = "job", *, timeout_s: float = 30.0) -> TorchrunJob:
        """The job, once it is in that phase."""

        def in_phase(job: TorchrunJob) -> TorchrunJob | None:
            return job if job.status.phase == phase else None

        return await self._until(in_phase, TORCHRUN_JOB, name, timeout_s)

    async def in_attempt(self, number: int, name: str = "job", *, timeout_s: float = 60.0) -> TorchrunJob:
        """The job, once all workers of that attempt run."""

        def there(job: TorchrunJob) -> TorchrunJob | None:
            return job if (job.status.attempt, job.status.phase) == (number, Phase.RUNNING) else None

        return await self._until(there, TORCHRUN_JOB, name, timeout_s)

    async def condition(
        self, type_: str, reason: str, name: str = "job", *, kind: Kind[Any] = TORCHRUN_JOB, timeout_s: float = 30.0
    ) -> Condition:
        """The condition, once it gives that reason."""

        def given(obj: Any) -> Condition | None:
            found = find(obj.status.conditions, type_)
            return found if found is not None and found.reason == reason else None

        return await self._until(given, kind, name, timeout_s)

    async def _until(self, given: Callable[[Any], T | None], kind: Kind[Any], name: str, timeout_s: float) -> T:
        """Reads an object until something is given of it. Raises AssertionError with the status that it had last."""
        status: Any = None
        with anyio.move_on_after(timeout_s):
            while True:
                obj = await self.admin.get(kind, name, self.namespace)
                status = obj.status
                if (found := given(obj)) is not None:
                    return found
                await anyio.sleep(PERIOD_S)
        raise AssertionError(f"{kind.kind} {name} is not as awaited after {timeout_s:g} s: {status}")

    async def gone(self, kind: Kind[Any], name: str, *, timeout_s: float = 30.0) -> None:
        """Returns once there is no such object; one of a cluster-scoped kind, too."""

        async def look() -> bool:
            return not await self.exists(kind, name)

        await until(look, timeout_s=timeout_s)

    async def exists(self, kind: Kind[Any], name: str) -> bool:
        try:
            await self.admin.get(kind, name, self.namespace if kind.namespaced else "")
        except NotFound:
            return False
        return True

    async def events(self, name: str = "job") -> list[Event]:
        """The operator's Events about an object of that name."""
        fields = f"involvedObject.name={name}"
        events = await self.admin.list(EVENT, namespace=self.namespace, fields=fields)
        return [event for event in events if event.involved_object.kind in (TORCHRUN_JOB.kind, TORCHRUN_QUEUE.kind)]


async def become(place: Place, phase: str, name: str = "job", **conditions: str) -> None:
    """Writes a job's status, as the operator would, for tests without one."""
    now = datetime.now(UTC).isoformat()
    found = [
        {"type": type_, "status": status, "reason": "Test", "message": "as written", "lastTransitionTime": now}
        for type_, status in conditions.items()
    ]
    body = {"status": {"phase": phase, "conditions": found}}
    await place.admin.merge_patch(TORCHRUN_JOB, name, body, namespace=place.namespace, subresource="status")
