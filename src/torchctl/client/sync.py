"""Brings new code to a job that is there: the first to one that waits for it, later ones to one that runs.

A later revision goes to the job's companion, which has all workers take it. Then it is written into the job, so that
later attempts have it too. Whoever is interrupted in between can do the same again: what is there is not sent again.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
import anyio
import msgspec

from torchctl.api.names import SERVE_PORT
from torchctl.client.delivery import Code, Interrupted, Teller, bring
from torchctl.client.errors import TimedOut
from torchctl.client.portforward import forward_port
from torchctl.client.receiving import Receiver, companion
from torchctl.client.reloading import REVISIONS, Launchers, check_reload, had, has_code, late, said
from torchctl.client.views import JOB
from torchctl.client.wait import job_text

if TYPE_CHECKING:
    from torchctl.client.jobs import Job

__all__ = ["Synced", "ask", "sync"]

PATIENCE_S = 120.0
"""Seconds for which a pod that takes the code is waited for, and then for the workers to take it."""
_PERIOD_S = 0.2
_ANSWER_S = 10.0
_MAX_ANSWER = 8 * 2**20


@dataclass(frozen=True, slots=True)
class Synced:
    """What became of new code.

    Attributes:
        revision: Its digest.
        first: It is the first code of the job.
        workers: The workers that have taken it; 0 if none runs, and the next attempt has it.
    """

    revision: str
    first: bool
    workers: int = 0


async def sync(job: "Job", code: Code, tell: Teller, *, patience_s: float = PATIENCE_S) -> Synced:
    """Brings code to a job and returns when all its workers have taken it.

    RBAC: get and patch on torchrunjobs, list on pods, create on pods/portforward.

    Raises:
        UsageError: The job takes no new code.
        TimedOut: Some workers have not taken it in time; the message names them. They may do so later.
        ClientError: The code could not be brought.
    """
    await job.refresh()
    if not has_code(job.object):
        await bring(job, code, tell, patience_s=patience_s)
        return Synced(code.digest, first=True)
    check_reload(job.object)
    await bring(job, code, tell, judge=companion, patience_s=patience_s)
    await _write(job, code.digest)
    taking = _Taking(job, code.digest, tell)
    try:
        async with asyncio.timeout(patience_s):
            await bring(job, taking, tell, judge=companion, patience_s=patience_s)
    except TimeoutError:
        raise _late(job, taking.found, patience_s) from None
    return Synced(code.digest, first=False, workers=len(taking.found.launchers))


async def _write(job: "Job", revision: str) -> None:
    """Has later attempts take a revision, and says in spec which one was sent last."""
    noted = {REVISIONS: " ".join(had(job.object, revision))}
    body = {
        "metadata": {"uid": job.uid, "annotations": noted},
        "spec": {"volumes": {"workspace": {"revision": revision}}},
    }
    with job.cluster.explained(job_text(job.key)):
        await job.cluster.client.merge_patch(JOB, job.name, body, namespace=job.namespace)


def _late(job: "Job", found: Launchers, patience_s: float) -> TimedOut:
    return TimedOut(
        f"{job_text(job.key)}: after {patience_s:g} s some workers do not run the new code: {said(found)}",
        f"They may yet take it; see `kubectl torchrun status {job.name} -n {job.namespace}`.",
    )


class _Taking:
    """Follows how the workers take a revision, at whichever pod the companion is.

    Attributes:
        digest: The revision.
        found: Who has which revision, as the companion said last.
    """

    def __init__(self, job: "Job", revision: str, tell: Teller) -> None:
        self.digest = revision
        self.found = Launchers()
        self._job, self._tell = job, tell
        self._told = ""

    async def send(self, companion: Receiver) -> None:
        """Returns when all workers have the revision. Raises Interrupted if the companion cannot be asked."""
        job = self._job
        async with forward_port(job.cluster.client, companion.pod, job.namespace, SERVE_PORT) as forward:
            while late(self.found, self.digest):
                self._note()
                await anyio.sleep(_PERIOD_S)
                self.found = await ask(f"{forward.url}/launcher/v1/{job.uid}")

    def _note(self) -> None:
        if self.found.revision and self._told != (text := said(self.found)):
            self._told = text
            self._tell.waiting(f"not all workers have the code yet: {text}")


async def ask(url: str) -> Launchers:
    """Asks the companion who has which revision. Raises Interrupted if it does not answer."""
    timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
    try:
        async with aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as http, http.get(url) as answer:
            return msgspec.json.decode(await answer.content.read(_MAX_ANSWER), type=Launchers)
    except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError) as error:
        raise Interrupted(f"the job's companion cannot be asked: {error}") from error
