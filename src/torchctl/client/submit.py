"""Submits a job: the object first, then its code. What goes wrong on the way leaves nothing behind.

Submitting again under the same name doubles nothing: a job of the same spec is gone on with, and of the code only what
is missing is sent. Whoever stops in the middle (Ctrl-C) can therefore go on with the same line later.
"""

import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from torchctl.api.job import JobSpec
from torchctl.api.names import GROUP
from torchctl.client.cluster import Cluster
from torchctl.client.delivery import PATIENCE_S, Code, Teller, bring
from torchctl.client.difference import difference
from torchctl.client.errors import ClientError, UsageError
from torchctl.client.jobs import Job, get_job
from torchctl.client.queues import get_queue
from torchctl.client.submission import Submission
from torchctl.client.views import JOB
from torchctl.client.wait import job_text
from torchctl.runtime.client import errors as api
from torchctl.runtime.kinds import Key

__all__ = ["SUBMISSION", "Made", "submit"]

SUBMISSION = f"{GROUP}/submission"
"""Annotation of a job: which call made it. So a call whose answer was lost still knows whether the job is its own."""


@dataclass(frozen=True, slots=True)
class Made:
    """A job that was submitted; `ours` if this call has made it."""

    job: Job
    ours: bool


async def submit(
    cluster: Cluster,
    submission: Submission,
    code: Code | Callable[[], Awaitable[Code]] | None,
    tell: Teller,
    *,
    patience_s: float = PATIENCE_S,
) -> Made:
    """Creates the job, brings its code, and returns when the job has all that it needs.

    RBAC: create and get on torchrunjobs, get and list on torchrunqueues; to bring code, list on pods and create on
    pods/portforward. If the code cannot be brought, the job is deleted if this call made it. A caller that is
    cancelled leaves it.

    Args:
        submission: The job.
        code: What it runs, if it is the directory; or what reads it, which takes longer than to look for the queue.
        patience_s: Seconds for which a pod that takes the code is waited for.

    Raises:
        UsageError: A job of this name has another spec.
        ClientError: The cluster refused something, or the code could not be brought.
    """
    await get_queue(cluster, Key(submission.namespace, submission.queue))
    code = await code() if callable(code) else code
    tell.making(submission.name)
    made = await _make(cluster, submission)
    tell.made(made.job.name, again=not made.ours)
    if code is None:
        return made
    try:
        await bring(made.job, code, tell, patience_s=patience_s)
    except ClientError as error:
        raise await _without(made, error) from error
    return made


# The object.


async def _make(cluster: Cluster, submission: Submission) -> Made:
    key, ticket = Key(submission.namespace, submission.name), str(uuid.uuid4())
    body = submission.noted(SUBMISSION, ticket)
    try:
        return Made(Job(cluster, await cluster.client.create(JOB, body)), ours=True)
    except api.AlreadyExists:
        return await _found(cluster, submission, ticket)
    except api.ApiError as error:
        if not error.outcome_unknown:
            with cluster.explained(job_text(key)):
                raise
        return await _found(cluster, submission, ticket)


async def _found(cluster: Cluster, submission: Submission, ticket: str) -> Made:
    """Returns the job of that name if it is the one that was asked for."""
    key = Key(submission.namespace, submission.name)
    job = await get_job(cluster, key)
    if job.object.metadata.annotations.get(SUBMISSION) == ticket:
        return Made(job, ours=True)
    with cluster.explained(job_text(key)):
        there = await cluster.client.get_raw(JOB, key.name, key.namespace)
    differs = difference(JobSpec.model_validate(there["spec"]), submission.spec)
    if differs:
        raise UsageError(
            f"{job_text(key)} exists already, and is another one: {differs}", "Choose another --name, or delete it."
        )
    return Made(job, ours=False)


async def _without(made: Made, error: ClientError) -> ClientError:
    """Deletes a job whose code cannot be brought, if this call has made it; returns the error that says so."""
    if not made.ours:
        return error
    client, key = made.job.cluster.client, made.job.key
    with anyio.CancelScope(shield=True):
        try:
            await client.delete(JOB, key.name, namespace=key.namespace, uid=made.job.uid)
        except (api.NotFound, api.Conflict):
            pass
        except api.ApiError as kept:
            return _with(error, f"The job {key.name} could not be deleted ({kept}): delete it.")
    return _with(error, "Nothing of the job is left.")


def _with(error: ClientError, sentence: str) -> ClientError:
    """Returns the error with one more sentence."""
    step = f"{error.step.rstrip('.')}. " if error.step else ""
    return type(error)(error.what, step + sentence)
