"""Goes back to a revision that a running job had before. Its files are where the job's companion keeps them."""

from typing import TYPE_CHECKING

from torchctl.api.names import UPLOAD_PORT
from torchctl.client.delivery import Interrupted, Teller
from torchctl.client.errors import RequestRefused, UsageError
from torchctl.client.history import known
from torchctl.client.portforward import forward_port
from torchctl.client.receiver import Gone, Retry
from torchctl.client.receiver import Receiver as Channel
from torchctl.client.receiving import Receiver
from torchctl.client.reloading import check_reload, earlier
from torchctl.client.sync import PATIENCE_S, Synced, sync
from torchctl.client.wait import job_text

if TYPE_CHECKING:
    from torchctl.client.jobs import Job

__all__ = ["republish", "rollback"]


async def rollback(job: "Job", tell: Teller, *, to: str = "", patience_s: float = PATIENCE_S) -> Synced:
    """Has all workers take an earlier revision. RBAC: as `torchctl.client.sync.sync`.

    Args:
        to: The revision, or the beginning of it; empty for the one before.

    Raises:
        UsageError: There is none, or it was not sent from this machine.
        RequestRefused: The job does not have all its files any more.
        ClientError: As for a sync.
    """
    check_reload((await job.refresh()).object)
    revision = earlier(job.object, to)
    manifest = known(revision)
    if manifest is None:
        raise UsageError(
            f"{revision} of {job_text(job.key)} was not sent from this machine, which has no list of its files",
            "Check out that state of the directory and use sync.",
        )
    return await sync(job, _Earlier(job, revision, manifest), tell, patience_s=patience_s)


class _Earlier:
    """A tree that the companion has had before."""

    def __init__(self, job: "Job", revision: str, manifest: bytes) -> None:
        self.digest = revision
        self._job, self._manifest = job, manifest

    async def send(self, receiver: Receiver) -> None:
        job = self._job
        async with forward_port(job.cluster.client, receiver.pod, job.namespace, UPLOAD_PORT) as forward:
            await republish(forward.url, receiver.uid, self.digest, self._manifest)


async def republish(url: str, token: str, revision: str, manifest: bytes) -> None:
    """Has a receiver publish a tree whose files it has.

    Raises:
        RequestRefused: It does not have all of them.
        Interrupted: The way to it broke.
    """
    tree = revision.removeprefix("sha256:")
    try:
        async with Channel(url, token) as channel:
            answer = await channel.put(tree, manifest)
            if answer.size:
                await channel.leave(tree)
                raise RequestRefused(
                    f"the job does not have {len(answer.missing)} files of {revision} any more",
                    "Check out that state of the directory and use sync.",
                )
            while answer.state != "published":
                answer = await channel.commit(tree)
            await channel.leave(tree)
    except (Gone, Retry) as error:
        raise Interrupted(str(error)) from error
