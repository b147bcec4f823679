"""Changes jobs that are there: suspends, resumes, scales, restarts and deletes them.

Each change names the job's uid, so it never reaches another job that has taken over the name.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from torchctl.api.kube import POD, PVC, PersistentVolumeClaim
from torchctl.api.labels import APP_MANAGED_BY, JOB_NAME, JOB_UID, selector
from torchctl.api.names import checkpoints_claim
from torchctl.client.changing import RESTARTING, check_alive, check_restart, check_scale, stands_still
from torchctl.client.errors import ClientError, NotFound, TimedOut, Unreachable
from torchctl.client.states import states
from torchctl.client.views import JOB, JobView
from torchctl.client.wait import job_text
from torchctl.runtime.client import errors as api

if TYPE_CHECKING:
    from torchctl.client.cluster import Cluster
    from torchctl.client.jobs import Job
    from torchctl.runtime.kinds import Key

__all__ = ["Kept", "delete", "delete_left", "has_nodes", "restart", "resume", "scale", "suspend"]

RESTART_S = 120.0
"""Seconds for which a restart waits for the operator to stop the job."""
_GONE_S = 90.0
"""Seconds for which the end of a job's pods is waited for before its checkpoints are deleted."""
_RESUME_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between the tries to resume a job that must not stay suspended."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What stays of a deleted job: the claim with its checkpoints, and why it stays."""

    claim: str
    why: str


async def suspend(job: "Job") -> bool:
    """Stops a job's pods; workspace and checkpoints stay. Returns False if it was suspended. RBAC: get, patch.

    Raises:
        UsageError: The job has ended.
    """
    check_alive((await job.refresh()).object)
    return await _set_suspend(job, True)


async def resume(job: "Job") -> bool:
    """Starts the next attempt of a suspended job. Returns False if it was not suspended. RBAC: get, patch.

    Raises:
        UsageError: The job has ended.
    """
    check_alive((await job.refresh()).object)
    return await _set_suspend(job, False)


async def scale(job: "Job", nodes: int) -> bool:
    """Sets how many nodes an elastic job should have. Returns False if it had that many. RBAC: get, patch.

    Raises:
        UsageError: The job has ended, is not elastic, or cannot have so many.
    """
    check_scale((await job.refresh()).object, nodes)
    had = job.object.spec.num_nodes
    await _patch(job, {"numNodes": nodes})
    return had != nodes


async def has_nodes(job: "Job", nodes: int, *, timeout_s: float) -> None:
    """Waits until a job has so many nodes, all ready. RBAC: list and watch.

    Raises:
        UsageError: The job ended before.
        TimedOut: It took longer. The job goes on.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await _reached(job, lambda seen: (seen.status.nodes.desired, seen.status.nodes.ready) == (nodes, nodes))
    except TimeoutError:
        ready = job.status.nodes.ready
        raise TimedOut(
            f"{job_text(job.key)} has {ready} ready nodes and not yet {nodes} after {timeout_s:g} s",
            f"It goes on; see `kubectl torchrun status {job.name} -n {job.namespace}`.",
        ) from None
    await job.refresh()


async def restart(job: "Job", *, timeout_s: float = RESTART_S) -> None:
    """Ends a job's attempt and begins the next one, by suspending and resuming it. RBAC: get, list, watch, patch.

    Returns when the operator has stopped the attempt and the job is resumed: its next attempt begins then, whatever
    becomes of operator and caller. Whatever goes wrong in the middle, also if the caller is cancelled, the job is
    resumed and not left suspended. If the caller is killed, the job stays suspended; another restart goes on.

    Raises:
        UsageError: The job has ended, or is suspended.
        TimedOut: The operator did not stop the job in time. It was not restarted, and goes on.
    """
    check_restart((await job.refresh()).object)
    try:
        stopping = await _suspend(job, True, restarting=True)
        async with asyncio.timeout(timeout_s):
            await _reached(job, lambda seen: stands_still(seen, stopping.metadata.generation))
    except TimeoutError:
        raise TimedOut(
            f"{job_text(job.key)} was not restarted: the operator did not stop it within {timeout_s:g} s; it goes on",
            "Ask who runs the cluster whether torchctl runs.",
        ) from None
    finally:
        with anyio.CancelScope(shield=True):
            await _resumed(job)


async def delete(job: "Job", *, checkpoints: bool = False) -> Kept | None:
    """Deletes a job, and with `checkpoints` the claim of its checkpoints; returns what stays, None if nothing does.

    RBAC: delete on torchrunjobs, get on persistentvolumeclaims; with `checkpoints` also delete on them, and list and
    watch on pods.

    Raises:
        NotFound: There is no such job any more.
    """
    claim = await _claim(job)
    with job.cluster.explained(job_text(job.key)):
        await job.cluster.client.delete(JOB, job.name, namespace=job.namespace, uid=job.uid)
    return await _rest(job, claim, checkpoints)


async def delete_left(cluster: "Cluster", key: "Key") -> str | None:
    """Deletes the claim with the checkpoints of a job that is gone; returns its name, None if there is none of ours.

    RBAC: get and delete on persistentvolumeclaims.
    """
    claim = await _checkpoints(cluster, key)
    if claim is None or claim.metadata.owner_references or not _is_ours(claim, key.name):
        return None
    with cluster.explained(f"PersistentVolumeClaim {claim.metadata.name} in namespace {key.namespace}"):
        await cluster.client.delete(PVC, claim.metadata.name, namespace=key.namespace, uid=claim.metadata.uid)
    return claim.metadata.name


# Parts.


async def _set_suspend(job: "Job", value: bool) -> bool:
    changes = job.object.spec.suspend is not value
    await _suspend(job, value)
    return changes


async def _suspend(job: "Job", value: bool, *, restarting: bool = False) -> JobView:
    return await _patch(job, {"suspend": value}, {RESTARTING: "true" if restarting else None})


async def _patch(job: "Job", spec: Mapping[str, Any], annotations: Mapping[str, str | None] | None = None) -> JobView:
    with job.cluster.explained(job_text(job.key)):
        body = {"metadata": {"uid": job.uid, "annotations": annotations or {}}, "spec": spec}
        return await job.cluster.client.merge_patch(JOB, job.name, body, namespace=job.namespace)


async def _resumed(job: "Job") -> None:
    """Resumes a job that must not stay suspended, and tries several times to."""
    for pause_s in _RESUME_PAUSES_S:
        try:
            await _suspend(job, False)
            return
        except Unreachable:
            await anyio.sleep(pause_s)
    raise Unreachable(
        f"{job_text(job.key)} is left suspended: the API server gave no answer",
        f"`kubectl torchrun resume {job.name} -n {job.namespace}` starts it.",
    )


async def _reached(job: "Job", is_reached: Callable[[JobView], bool]) -> None:
    async with job.watch() as changes:
        async for seen in changes:
            if seen is None:
                raise NotFound(f"{job_text(job.key)} was deleted meanwhile")
            if is_reached(seen):
                return
            check_alive(seen)


async def _claim(job: "Job") -> PersistentVolumeClaim | None:
    """Returns the claim of the job's checkpoints, if it has one of its own that outlives it."""
    claim = await _checkpoints(job.cluster, job.key)
    goes = claim is not None and any(owner.uid == job.uid for owner in claim.metadata.owner_references)
    return None if goes else claim


async def _checkpoints(cluster: "Cluster", job: "Key") -> PersistentVolumeClaim | None:
    try:
        return await cluster.client.get(PVC, checkpoints_claim(job.name), job.namespace)
    except api.ApiError:
        return None  # there is none, or it is not for this person to see


async def _rest(job: "Job", claim: PersistentVolumeClaim | None, asked: bool) -> Kept | None:
    if claim is None:
        return None
    name = claim.metadata.name
    if not asked:
        return Kept(name, "it has the checkpoints, which the next job of this name finds; --checkpoints deletes it too")
    if not _is_ours(claim, job.name):
        return Kept(name, "torchctl has not made it")
    try:
        async with asyncio.timeout(_GONE_S):
            await _delete_claim(job, claim)
    except TimeoutError:
        return Kept(name, f"pods of the job still use it; once they are gone: kubectl delete pvc {name}")
    except ClientError as error:
        return Kept(name, str(error))
    return None


def _is_ours(claim: PersistentVolumeClaim, job: str) -> bool:
    labels = claim.metadata.labels
    return (labels.get(APP_MANAGED_BY), labels.get(JOB_NAME)) == ("torchctl", job)


async def _delete_claim(job: "Job", claim: PersistentVolumeClaim) -> None:
    """Deletes a claim once the pods of its job are gone: an operator that still sees the job would make it anew."""
    client, labels = job.cluster.client, selector({JOB_UID: job.uid})
    with job.cluster.explained(f"PersistentVolumeClaim {claim.metadata.name} in namespace {job.namespace}"):
        async with states(job.cluster, POD, namespace=job.namespace, labels=labels) as pods:
            await anext(state async for state in pods if not state)
        with suppress(api.NotFound):
            await client.delete(PVC, claim.metadata.name, namespace=job.namespace, uid=claim.metadata.uid)
