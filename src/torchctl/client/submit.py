"""Submits a job: the object first, then its code. What goes wrong on the way leaves nothing behind.

Submitting again under the same name doubles nothing: a job of the same spec is gone on with, and of the code only what
is missing is sent. Whoever stops in the middle (Ctrl-C) can therefore go on with the same line later.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import anyio

from torchctl.api.job import JobSpec
from torchctl.api.jobstatus import JobStatus
from torchctl.api.kube import POD, Pod
from torchctl.api.labels import JOB_UID, ROLE, ROLE_SYNC, selector
from torchctl.api.names import GROUP
from torchctl.client.cluster import Cluster
from torchctl.client.difference import difference
from torchctl.client.errors import ClientError, NotFound, RequestRefused, TimedOut, UsageError
from torchctl.client.jobs import Job, get_job
from torchctl.client.queues import get_queue
from torchctl.client.receiving import Hopeless, Look, Receiver, There, Waiting, look
from torchctl.client.submission import Submission
from torchctl.client.views import JOB
from torchctl.client.wait import job_text
from torchctl.runtime.client import errors as api
from torchctl.runtime.kinds import Key

__all__ = ["SUBMISSION", "Code", "Interrupted", "Made", "Silent", "Teller", "bring", "submit"]

SUBMISSION = f"{GROUP}/submission"
"""Annotation of a job: which call made it. So a call whose answer was lost still knows whether the job is its own."""

PATIENCE_S = 600.0
"""Seconds for which a sync pod that takes the code is waited for."""
_PERIOD_S, _GROWTH, _LONGEST_PERIOD_S = 0.25, 1.1, 2.0
_CUTS = 20
"""The number of times that the way to the receiver may break in one submit."""


class Interrupted(Exception):
    """The way to the receiver broke: it may be another pod by now, or will be reachable again."""


class Code(Protocol):
    """The tree that is the job's code."""

    digest: str
    """Its revision: the same for the same tree."""

    async def send(self, receiver: Receiver) -> None:
        """Brings the tree to the receiver, of which it sends only what is not there already.

        Raises:
            Interrupted: The connection broke; sending again goes on where it was.
            ClientError: It was refused.
        """
        ...


class Teller(Protocol):
    """Tells a person how far it is."""

    def made(self, name: str, *, again: bool) -> None:
        """The job is there; `again` if it was before."""
        ...

    def waiting(self, why: str) -> None:
        """Nothing can be sent yet."""
        ...


class Silent:
    """A teller for programs: it tells nobody."""

    def made(self, name: str, *, again: bool) -> None:
        """Nothing."""

    def waiting(self, why: str) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class Made:
    """A job that was submitted; `ours` if this call has made it."""

    job: Job
    ours: bool


async def submit(
    cluster: Cluster, submission: Submission, code: Code | None, tell: Teller, *, patience_s: float = PATIENCE_S
) -> Made:
    """Creates the job, brings its code, and returns when the job has all that it needs.

    RBAC: create and get on torchrunjobs, get and list on torchrunqueues; to bring code, list on pods and create on
    pods/portforward. If the code cannot be brought, the job is deleted if this call made it. A caller that is
    cancelled leaves it.

    Args:
        submission: The job.
        code: What it runs, if it is the directory.
        patience_s: Seconds for which a pod that takes the code is waited for.

    Raises:
        UsageError: A job of this name has another spec.
        ClientError: The cluster refused something, or the code could not be brought.
    """
    await get_queue(cluster, Key(submission.namespace, submission.queue))
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


# The code.


async def bring(
    job: Job, code: Code, tell: Teller, *, judge: Callable[[JobStatus, Sequence[Pod]], Look] = look, patience_s: float
) -> None:
    """Sends the code as soon as there is a pod that takes it, and again if the way to it breaks.

    Args:
        judge: Says where the code can be sent.

    Raises:
        UsageError: The job has other code already.
        ClientError: The code cannot be brought.
    """
    waiting = _Waiting(job, tell, judge, patience_s)
    while True:
        seen = await waiting.end()
        if isinstance(seen, There):
            return _agree(job, code, seen.workspace.digest)
        try:
            return await code.send(seen)
        except Interrupted as cut:
            await waiting.again(f"the connection to pod {seen.pod} broke: {cut}")


class _Waiting:
    """Waits for a pod that takes the code, in all for so long and so often."""

    def __init__(
        self, job: Job, tell: Teller, judge: Callable[[JobStatus, Sequence[Pod]], Look], patience_s: float
    ) -> None:
        self._job, self._tell, self._judge = job, tell, judge
        self._patience_s = self._left_s = patience_s
        self._period_s = _PERIOD_S
        self._cuts = 0
        self._why = ""

    async def end(self) -> Receiver | There:
        """Returns where the code can be sent to, or that it is there.

        Raises:
            RequestRefused: It never can be.
            TimedOut: It took too long.
        """
        while True:
            match self._judge(*await _state(self._job)):
                case Waiting(why):
                    self._note(why)
                    await self._pause()
                case Hopeless(why, step):
                    raise RequestRefused(f"{job_text(self._job.key)} cannot take the code: {why}", step)
                case found:
                    return found

    async def again(self, why: str) -> None:
        """Waits a moment after the way to a pod broke.

        Raises:
            TimedOut: It broke too often.
        """
        self._note(why)
        self._cuts += 1
        if self._cuts > _CUTS:
            raise self._late(f"the way to it broke {self._cuts} times")
        await self._pause()

    def _note(self, why: str) -> None:
        if why != self._why:
            self._why = why
            self._tell.waiting(why)

    async def _pause(self) -> None:
        if self._left_s <= 0:
            raise self._late(f"that took longer than {self._patience_s:g} s")
        await anyio.sleep(self._period_s)
        self._left_s -= self._period_s
        self._period_s = min(self._period_s * _GROWTH, _LONGEST_PERIOD_S)

    def _late(self, how: str) -> TimedOut:
        return TimedOut(
            f"the code could not be sent to {job_text(self._job.key)}: {how}; last: {self._why}",
            "Correct what keeps it, or wait longer with --timeout.",
        )


async def _state(job: Job) -> tuple[JobStatus, list[Pod]]:
    """Reads the job's status, and its sync pods from the oldest to the newest."""
    cluster, uid = job.cluster, job.uid
    await job.refresh()
    if job.uid != uid:
        raise NotFound(f"{job_text(job.key)} was deleted meanwhile, and there is another one of its name")
    labels = selector({JOB_UID: uid, ROLE: ROLE_SYNC})
    with cluster.explained(f"pods of {job_text(job.key)}"):
        pods = await cluster.client.list(POD, namespace=job.namespace, labels=labels)
    return job.status, sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.name))


def _agree(job: Job, code: Code, digest: str) -> None:
    """Raises if the job has other code than what would be sent."""
    if digest not in ("", code.digest, code.digest.removeprefix("sha256:")):
        raise UsageError(
            f"{job_text(job.key)} runs other code already ({digest[:12]}; the directory is now {code.digest[:12]})",
            "Choose another --name for the directory as it is now.",
        )
