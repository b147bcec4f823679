"""A directory as the code of a job: listed and hashed here, sent to a pod through the API server."""

from collections.abc import AsyncGenerator
from pathlib import Path

import anyio

from torchctl.client.cluster import Cluster
from torchctl.client.content import Content
from torchctl.client.delivery import Interrupted
from torchctl.client.reaching import reach
from torchctl.client.receiving import Receiver
from torchctl.client.tree import Tree, scan
from torchctl.client.upload import Report, Sent, hashed, upload

__all__ = ["DirectoryCode", "changes", "list_tree", "read_code"]

_LOOK_EVERY_S = 0.5


class DirectoryCode:
    """A tree that can be sent to receivers of a namespace.

    Attributes:
        content: The tree with its hashes.
        digest: Its revision: `sha256:` and hexadecimal digits.
        sent: What became of it; None until it was sent.
    """

    def __init__(self, cluster: Cluster, namespace: str, content: Content, report: Report | None = None) -> None:
        self.content = content
        self.digest = f"sha256:{content.name}"
        self.sent: Sent | None = None
        self._cluster = cluster
        self._namespace = namespace
        self._report = report

    async def send(self, receiver: Receiver) -> None:
        """Sends what the receiver does not have. RBAC: get and create on pods/portforward.

        Raises:
            Interrupted: The way broke; sending again goes on where it was.
            ClientError: It was refused, or a right is missing.
        """
        reached = [0]
        try:
            async with reach(self._cluster, self._namespace, receiver) as url:
                self.sent = await upload(
                    url, receiver.uid, self.content.tree, report=self._report, content=self.content, took=reached.append
                )
        except Interrupted as cut:
            raise Interrupted(str(cut), answered=cut.answered, reached=max(reached)) from cut


async def list_tree(directory: Path) -> Tree:
    """Lists what of a directory would be sent.

    Raises:
        UsageError: Something in it cannot be sent, or there is too much.
    """
    return await anyio.to_thread.run_sync(scan, directory)


async def read_code(cluster: Cluster, namespace: str, directory: Path, report: Report | None = None) -> DirectoryCode:
    """Lists and hashes a directory.

    Raises:
        UsageError: Something in it cannot be read or sent, or there is too much.
    """
    content = await hashed(await list_tree(directory), report=report)
    return DirectoryCode(cluster, namespace, content, report)


async def changes(known: Tree, *, every_s: float = _LOOK_EVERY_S) -> AsyncGenerator[Tree]:
    """Yields the tree after each change since `known`, as soon as two looks, `every_s` apart, agree.

    Raises:
        UsageError: Something in the directory cannot be sent, or there is too much.
    """
    before = known
    while True:
        now = await list_tree(known.root)
        if now.members == before.members and now.members != known.members:
            known = now
            yield now
        before = now
        await anyio.sleep(every_s)
