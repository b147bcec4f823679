"""Brings code to the pod that takes it, whichever that is by now, and again if the way to it breaks."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import anyio

from torchctl.api.jobstatus import JobStatus
from torchctl.api.kube import POD, Pod
from torchctl.api.labels import JOB_UID, ROLE, ROLE_SYNC, selector
from torchctl.client.errors import NotFound, RequestRefused, TimedOut, UsageError
from torchctl.client.receiving import Hopeless, Look, Receiver, There, Waiting, look
from torchctl.client.tables import revision
from torchctl.client.wait import job_text

if TYPE_CHECKING:
    from torchctl.client.jobs import Job

__all__ = ["PATIENCE_S", "SILENCE_S", "STUCK_S", "Code", "Interrupted", "Silent", "Teller", "bring"]

PATIENCE_S = 600.0
"""Seconds for which a sync pod that takes the code is waited for."""
_PERIOD_S, _GROWTH, _LONGEST_PERIOD_S = 0.25, 1.1, 2.0
STUCK_S = 600.0
"""Seconds for which a receiver may answer without coming any further: the longest step before the commit is to hash
what its claim has already."""
SILENCE_S = 60.0
"""Seconds for which a receiver may give no answer while its container runs: on a busy node it takes long to start."""


class Interrupted(Exception):
    """The way to the receiver broke: it may be another pod by now, or will be reachable again.

    Args:
        answered: Whether anything came from there before.
        reached: How far the receiver has come: a number that grows with what it has taken. None if nobody measures it.
    """

    def __init__(self, why: str, *, answered: bool = False, reached: int | None = None) -> None:
        super().__init__(why)
        self.answered = answered
        self.reached = reached


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

    def making(self, name: str) -> None:
        """The job is about to be made. If nothing more is told, it may be there."""
        ...

    def made(self, name: str, *, again: bool) -> None:
        """The job is there; `again` if it was before."""
        ...

    def waiting(self, why: str) -> None:
        """Nothing can be sent yet."""
        ...


class Silent:
    """A teller for programs: it tells nobody."""

    def making(self, name: str) -> None:
        """Nothing."""

    def made(self, name: str, *, again: bool) -> None:
        """Nothing."""

    def waiting(self, why: str) -> None:
        """Nothing."""


async def bring(
    job: "Job", code: Code, tell: Teller, *, judge: Callable[[JobStatus, Sequence[Pod]], Look] = look, patience_s: float
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
            await waiting.again(seen, cut)


class _Waiting:
    """Waits for a pod that takes the code, in all for so long.

    A pod is asked for as long as its container runs, but not if it says nothing for `SILENCE_S`, counted from when it
    was found, nor if it answers and comes no further for `STUCK_S`. A container that was started again has that time
    anew, and so has another pod.
    """

    def __init__(
        self, job: "Job", tell: Teller, judge: Callable[[JobStatus, Sequence[Pod]], Look], patience_s: float
    ) -> None:
        self._job, self._tell, self._judge = job, tell, judge
        self._patience_s = self._left_s = patience_s
        self._period_s = _PERIOD_S
        self._receiver: Receiver | None = None
        self._heard = self._moved = 0.0
        self._reached = 0
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
                case There() as there:
                    return there
                case receiver:
                    self._found(receiver)
                    return receiver

    def _found(self, receiver: Receiver) -> None:
        if receiver != self._receiver:
            self._receiver, self._reached = receiver, 0
            self._heard = self._moved = anyio.current_time()

    async def again(self, receiver: Receiver, cut: Interrupted) -> None:
        """Waits a moment after the way to a pod broke.

        Raises:
            TimedOut: It has been silent, or has come no further, for too long.
        """
        self._note(f"the connection to pod {receiver.pod} broke: {cut}")
        now, step = anyio.current_time(), f"See `kubectl logs {receiver.pod} -n {self._job.namespace}`, and try again."
        if cut.answered:
            self._heard = now
        if cut.reached is None or cut.reached > self._reached:
            self._moved, self._reached = now, cut.reached or 0
        if now - self._heard >= SILENCE_S:
            raise self._late(f"pod {receiver.pod} runs and has not answered for {SILENCE_S:g} s", step)
        if now - self._moved >= STUCK_S:
            raise self._late(f"pod {receiver.pod} answers and has taken nothing for {STUCK_S:g} s", step)
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

    def _late(self, how: str, step: str = "Correct what keeps it, or wait longer with --timeout.") -> TimedOut:
        return TimedOut(f"the code could not be sent to {job_text(self._job.key)}: {how}; last: {self._why}", step)


async def _state(job: "Job") -> tuple[JobStatus, list[Pod]]:
    """Reads the job's status, and its sync pods from the oldest to the newest."""
    cluster, uid = job.cluster, job.uid
    await job.refresh()
    if job.uid != uid:
        raise NotFound(f"{job_text(job.key)} was deleted meanwhile, and there is another one of its name")
    labels = selector({JOB_UID: uid, ROLE: ROLE_SYNC})
    with cluster.explained(f"pods of {job_text(job.key)}"):
        pods = await cluster.client.list(POD, namespace=job.namespace, labels=labels)
    return job.status, sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.name))


def _agree(job: "Job", code: Code, digest: str) -> None:
    """Raises if the job has other code than what would be sent."""
    if digest not in ("", code.digest, code.digest.removeprefix("sha256:")):
        raise UsageError(
            f"{job_text(job.key)} runs other code already ({revision(digest)}; "
            f"the directory is now {revision(code.digest)})",
            "Choose another --name for the directory as it is now.",
        )
