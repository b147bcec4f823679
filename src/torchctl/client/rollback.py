"""Goes back to a revision that a running job had before. Its files are where the job's companion keeps them."""

from typing import TYPE_CHECKING

from torchctl.api.counts import counted
from torchctl.client.delivery import Teller
from torchctl.client.errors import RequestRefused
from torchctl.client.reaching import reach
from torchctl.client.receiver import Receiver as Channel
from torchctl.client.receiver import Retry
from torchctl.client.receiving import Receiver
from torchctl.client.reloading import check_reload, earlier
from torchctl.client.sync import PATIENCE_S, Synced, sync

if TYPE_CHECKING:
    from torchctl.client.jobs import Job

__all__ = ["republish", "rollback"]

_STEP = "Check out that state of the directory and use sync."
_COMMITS = 120
"""The number of times that a receiver is asked whether it has published a tree; each answer takes up to 15 s."""


async def rollback(
    job: "Job", tell: Teller, *, to: str = "", restart: bool = True, patience_s: float = PATIENCE_S
) -> Synced:
    """Has all workers take an earlier revision, whoever sent it. RBAC: as `torchctl.client.sync.sync`.

    Args:
        to: The revision, or the beginning of it; empty for the one before.
        restart: Start the program again with it. If not, its files change under the program that runs.

    Raises:
        UsageError: There is none.
        RequestRefused: The job does not have all its files any more.
        ClientError: As for a sync.
    """
    check_reload((await job.refresh()).object, restart=restart)
    code = _Earlier(job, earlier(job.object, to))
    return await sync(job, code, tell, restart=restart, patience_s=patience_s)


class _Earlier:
    """A tree that the companion has had before."""

    def __init__(self, job: "Job", revision: str) -> None:
        self.digest = revision
        self._job = job

    async def send(self, receiver: Receiver) -> None:
        async with (
            reach(self._job.cluster, self._job.namespace, receiver) as url,
            Channel(url, receiver.uid) as channel,
        ):
            await republish(channel, self.digest)


async def republish(channel: Channel, revision: str) -> None:
    """Has a receiver publish a tree that it had before.

    Raises:
        RequestRefused: It does not have all files of it, or does not know them.
        Gone: The receiver was replaced meanwhile.
        Retry: The connection broke, or it takes too long.
    """
    tree = revision.removeprefix("sha256:")
    answer = await channel.put(tree, b"")
    if answer.size:
        await channel.leave(tree)
        raise RequestRefused(
            f"the job does not have {counted(len(answer.missing), 'file')} of {revision} any more", _STEP
        )
    for _ in range(_COMMITS):
        if answer.state == "published":
            return await channel.leave(tree)
        answer = await channel.commit(tree)
    raise Retry("the tree is still being put in place")
