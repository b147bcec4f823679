"""Carries out what a plan decided: deletes, ends and applies a job's children."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.kube import POD
from torchctl.api.kueue import KUEUE_WORKLOAD
from torchctl.api.labels import KUEUE_PAUSED
from torchctl.api.words import EventType
from torchctl.controllers.complaints import complaints
from torchctl.controllers.finding import Refusal
from torchctl.controllers.job.actions import Actions, Child, Halt, Pause, Removal
from torchctl.controllers.refusals import is_refusal, refusal_reason
from torchctl.controllers.report import reference
from torchctl.runtime.apply import ForeignObject, StillDeleting
from torchctl.runtime.client.errors import ApiError, NotFound
from torchctl.runtime.kinds import Key, Kind, Object, key_of
from torchctl.runtime.manager import Manager

__all__ = ["Actor", "Seen"]

Seen = Mapping[tuple[Kind[Any], Key], Object | None]
"""Children as they were when their plan was made, by kind and key; None for one that was not there."""


class Actor:
    """Makes the cluster what a plan says."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    def look(self, todo: Actions) -> Seen:
        """Returns the plan's children as the cache has them now. Call it before anything is awaited.

        A child that goes between plan and apply is not made again so: its job may have been deleted, and what was made
        for it goes in any order.
        """
        return {(child.kind, child.key): self._manager.cache.get(child.kind, child.key) for child in todo.children}

    async def carry_out(self, job: TorchrunJob, todo: Actions, seen: Seen) -> tuple[Refusal, ...]:
        """Does what is to be done for a job whose children were as `seen`, and returns what the API server refused.

        RBAC: get, create, patch and delete on the kinds of the children.

        Raises:
            ApiError: It is no refusal, but a matter of trying again.
        """
        stay = await self._clear(job, todo)
        paused = [await self._pause(job, pause) for pause in todo.pause if pause.paused]
        refusals = await self._make(job, todo, seen)
        resumed = [await self._pause(job, pause) for pause in todo.pause if not pause.paused]
        return (*stay, *refusals, *filter(None, (*paused, *resumed)))

    async def _make(self, job: TorchrunJob, todo: Actions, seen: Seen) -> tuple[Refusal, ...]:
        for stage in todo.stages:
            if not self._is_there(job):
                return ()  # a child of a job that is deleted meanwhile would run until somebody deletes it
            refusals = await self._apply_all(stage, seen)
            if refusals:
                return refusals
        return ()

    async def _clear(self, job: TorchrunJob, todo: Actions) -> tuple[Refusal, ...]:
        removed = [await self._remove(job, removal) for removal in todo.remove]
        halted = [await self._halt(job, halt) for halt in todo.halt]
        return tuple(filter(None, (*removed, *halted)))

    def _is_there(self, job: TorchrunJob) -> bool:
        """Whether the job is still the one that was observed: its children take time to make."""
        found = self._manager.cache.get(TORCHRUN_JOB, key_of(job))
        return found is not None and found.metadata.uid == job.metadata.uid and not found.metadata.deletion_timestamp

    async def _apply_all(self, stage: Sequence[Child], seen: Seen) -> tuple[Refusal, ...]:
        """Applies children at once, and returns the refusals in the children's order.

        Raises:
            ApiError: As `_apply`, of the first child in their order. All have been tried.
        """
        ends = await asyncio.gather(*map(partial(self._apply, seen), stage), return_exceptions=True)
        for error in ends:
            if isinstance(error, BaseException):
                raise error
        return tuple(end for end in ends if isinstance(end, Refusal))

    async def _apply(self, seen: Seen, child: Child) -> Refusal | None:
        try:
            live = seen[child.kind, child.key]
            await self._manager.applier.apply_to(live, child.kind, child.body, child.ours, first=child.first)
        except (ForeignObject, StillDeleting, ApiError) as error:
            if not is_refusal(error):
                raise
            reason, message = refusal_reason(error, f"{child.kind} {child.name}")
            return Refusal(child.kind.kind, child.name, reason, message, fields=complaints(error, child.body))
        return None

    async def _remove(self, job: TorchrunJob, removal: Removal) -> Refusal | None:
        key = removal.key
        try:
            await self._manager.client.delete(
                removal.kind,
                key.name,
                namespace=key.namespace,
                uid=removal.uid,
                resource_version=removal.version,
                grace_seconds=0 if removal.force else None,
            )
        except NotFound:
            return None
        except ApiError as error:
            return self._stays(job, removal.kind, key, "deleted", error)
        return None

    async def _halt(self, job: TorchrunJob, halt: Halt) -> Refusal | None:
        key, patch = halt.key, {"metadata": {"uid": halt.uid}, "spec": {"activeDeadlineSeconds": halt.deadline_s}}
        try:
            await self._manager.client.merge_patch(POD, key.name, patch, namespace=key.namespace)
        except NotFound:
            return None
        except ApiError as error:
            return self._stays(job, POD, key, "ended", error)
        return None

    async def _pause(self, job: TorchrunJob, pause: Pause) -> Refusal | None:
        key, mark = pause.key, {KUEUE_PAUSED: "true" if pause.paused else None}
        meta = {"uid": pause.uid, "resourceVersion": pause.version, "annotations": mark}
        patch = {"metadata": meta, "spec": {"active": not pause.paused}}
        try:
            await self._manager.client.merge_patch(KUEUE_WORKLOAD, key.name, patch, namespace=key.namespace)
        except NotFound:
            return None
        except ApiError as error:
            return self._stays(job, KUEUE_WORKLOAD, key, "paused" if pause.paused else "resumed", error)
        return None

    def _stays(self, job: TorchrunJob, kind: Kind[Any], key: Key, what: str, error: ApiError) -> Refusal:
        """Reports an object that stays, in an Event and no condition: its attempt, revision or job is over.

        Raises:
            ApiError: It is no refusal, but a matter of trying again.
        """
        reason, message = refusal_reason(error, f"{kind} {key.name} cannot be {what}")
        self._manager.events.event(reference(TORCHRUN_JOB, job.metadata), EventType.WARNING, reason, message)
        return Refusal(kind.kind, key.name, reason, message, stays=True)
