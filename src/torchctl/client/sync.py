"""Brings new code to a job that is there: the first to one that waits for it, later ones to one that runs.

A later revision goes to the job's companion, which has all workers take it. Then it is written into the job, so that
later attempts have it too. Whoever is interrupted in between can do the same again: what is there is not sent again.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import anyio
import msgspec

from torchctl.api.labels import BEHIND, FILES_ONLY, REVISIONS
from torchctl.api.names import SERVE_PORT
from torchctl.client.delivery import Code, Interrupted, Teller, bring
from torchctl.client.errors import RequestRefused, TimedOut
from torchctl.client.portforward import forward_port
from torchctl.client.reaching import reach
from torchctl.client.receiver import Receiver as Channel
from torchctl.client.receiver import Retry, bounded
from torchctl.client.receiving import Receiver, companion
from torchctl.client.reloading import (
    Launchers,
    check_reload,
    had,
    has_code,
    is_replaced,
    is_shared,
    late,
    said,
)
from torchctl.client.views import JOB
from torchctl.client.wait import job_text

if TYPE_CHECKING:
    from torchctl.client.jobs import Job

__all__ = ["Synced", "ask", "sync"]

PATIENCE_S = 120.0
"""Seconds for which a pod that takes the code is waited for, and then for the workers to take it."""
_PERIOD_S = 0.2
_ANSWER_S = 10.0


@dataclass(frozen=True, slots=True)
class Synced:
    """What became of new code.

    Attributes:
        revision: Its digest.
        first: It is the first code of the job.
        workers: The workers that have taken it; 0 if none runs, and the next attempt has it.
        shared: The workers have the workspace itself mounted, and need not take it.
    """

    revision: str
    first: bool
    workers: int = 0
    shared: bool = False


async def sync(job: "Job", code: Code, tell: Teller, *, restart: bool = True, patience_s: float = PATIENCE_S) -> Synced:
    """Brings code to a job and returns when all its workers have taken it.

    RBAC: get and patch on torchrunjobs, list on pods, get and create on pods/portforward.

    Args:
        restart: Start the program again with it. If not, its files change under the program that runs.

    Raises:
        UsageError: The job takes no new code, or not with a restart.
        RequestRefused: Somebody else has sent other code meanwhile, and the job has that.
        TimedOut: Some workers have not taken it in time; the message names them. They may do so later.
        ClientError: The code could not be brought.
    """
    await job.refresh()
    if not has_code(job.object):
        await bring(job, code, tell, patience_s=patience_s)
        return Synced(code.digest, first=True)
    check_reload(job.object, restart=restart)
    await bring(job, _Later(job, code, restart=restart), tell, judge=companion, patience_s=patience_s)
    await _write(job, code.digest, restart=restart)
    taking = _Taking(job, code.digest, tell)
    try:
        async with asyncio.timeout(patience_s):
            await bring(job, taking, tell, judge=companion, patience_s=patience_s)
    except TimeoutError:
        await _leave_note(job, taking)
        raise _late(job, taking.found, patience_s) from None
    if taking.written != code.digest:
        raise RequestRefused(
            f"{job_text(job.key)} has other code by now ({taking.written}): somebody else has sent it after yours",
            "Agree on who sends code to this job, and use sync again.",
        )
    return Synced(code.digest, first=False, workers=len(taking.found.launchers), shared=is_shared(job.object))


async def _write(job: "Job", revision: str, *, restart: bool) -> None:
    """Has later attempts take a revision, and says in spec which one was sent last."""
    noted = {REVISIONS: " ".join(had(job.object, revision)), FILES_ONLY: None if restart else revision, BEHIND: None}
    await _patch(job, {"annotations": noted}, {"volumes": {"workspace": {"revision": revision}}})


async def _leave_note(job: "Job", taking: "_Taking") -> None:
    """Tells the operator, which cannot ask the companion, who does not have the code. It says so in the conditions."""
    if any(one.behind for one in taking.found.launchers):
        await _patch(job, {"annotations": {BEHIND: f"{taking.digest} {said(taking.found)}"}})


async def _patch(job: "Job", metadata: Mapping[str, Any], spec: Mapping[str, Any] | None = None) -> None:
    body = {"metadata": {"uid": job.uid, **metadata}, **({"spec": spec} if spec else {})}
    with job.cluster.explained(job_text(job.key)):
        await job.cluster.client.merge_patch(JOB, job.name, body, namespace=job.namespace)


def _late(job: "Job", found: Launchers, patience_s: float) -> TimedOut:
    return TimedOut(
        f"{job_text(job.key)}: after {patience_s:g} s some workers do not have the new code: {said(found)}",
        f"They may yet take it; see `kubectl torchrun status {job.name} -n {job.namespace}`.",
    )


class _Later:
    """Code for a job that runs: its companion is told first whether programs are started again with it."""

    def __init__(self, job: "Job", code: Code, *, restart: bool) -> None:
        self.digest = code.digest
        self._job, self._code, self._restart = job, code, restart

    async def send(self, receiver: Receiver) -> None:
        async with (
            reach(self._job.cluster, self._job.namespace, receiver) as url,
            Channel(url, receiver.uid) as channel,
        ):
            await channel.wish(self.digest, restart=self._restart)
        await self._code.send(receiver)


class _Taking:
    """Follows how the workers take a revision, at whichever pod the companion is.

    If several people send code at the same time, the last commit is what the job has, and not the last write of spec.
    So each of them looks at the companion after the write, and corrects what is written.

    Attributes:
        digest: The revision.
        written: The revision that spec says.
        found: Who has which revision, as the companion said last.
    """

    def __init__(self, job: "Job", revision: str, tell: Teller) -> None:
        self.digest = self.written = revision
        self.found = Launchers()
        self._job, self._tell = job, tell
        self._told = ""

    async def send(self, receiver: Receiver) -> None:
        """Returns when all workers have the revision, or the job has another. Raises Interrupted if nobody answers."""
        job = self._job
        async with forward_port(job.cluster.client, receiver.pod, job.namespace, SERVE_PORT) as forward:
            while True:
                try:
                    self.found = await ask(f"{forward.url}/launcher/v1/{job.uid}", lambda: forward.failure)
                except Interrupted as cut:
                    raise Interrupted(str(cut), answered=forward.answered) from cut
                if is_replaced(self.found, self.written):
                    await self._correct()
                elif self.written != self.digest or not late(self.found, self.digest):
                    return
                else:
                    self._note()
                    await anyio.sleep(_PERIOD_S)

    async def _correct(self) -> None:
        self.written = self.found.revision
        await self._job.refresh()
        await _write(self._job, self.written, restart=self.found.restart)

    def _note(self) -> None:
        if self.found.revision and self._told != (text := said(self.found)):
            self._told = text
            self._tell.waiting(f"not all workers have the code yet: {text}")


async def ask(url: str, failure: Callable[[], object] = lambda: None) -> Launchers:
    """Asks the companion who has which revision. Raises Interrupted if it does not answer.

    Args:
        failure: Returns why the way there broke, if that is known.
    """
    timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
    try:
        async with aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as http, http.get(url) as answer:
            return msgspec.json.decode(await bounded(answer), type=Launchers)
    except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError, Retry) as error:
        raise Interrupted(f"the job's companion cannot be asked: {failure() or error}") from error
