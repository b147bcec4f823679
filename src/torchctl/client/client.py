"""The SDK's entry: a cluster's jobs and queues. `torchctl.client.blocking` is the same for synchronous programs."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import Any, Literal, Self, TypedDict, Unpack

from torchctl.client.cluster import Cluster, Target, connect
from torchctl.client.code import read_code
from torchctl.client.delivery import PATIENCE_S, Silent
from torchctl.client.handles import JobHandle
from torchctl.client.jobs import get_job, list_jobs
from torchctl.client.queues import get_queue, list_queues
from torchctl.client.submission import Request, build
from torchctl.client.submit import submit
from torchctl.client.views import QueueView
from torchctl.runtime.kinds import Key

__all__ = ["Client", "Options"]


class Options(TypedDict, total=False):
    """What may be said of a new job besides its command, as in `torchctl.client.submission.Request`."""

    queue: str
    gpus: int
    nodes: int
    elastic: tuple[int, int]
    name: str
    namespace: str
    image: str
    env: Mapping[str, str]
    git: str
    git_secret: str
    hot_reload: Literal["Restart", "WarmStart", "Files"]
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    manifest: Mapping[str, Any]


def _name(directory: str | Path | None) -> str:
    return Path(directory or ".").resolve().name


class Client:
    """Jobs and queues of one cluster.

        async with Client.connect() as client:
            job = await client.job("vit")
            await job.wait()

    Args:
        cluster: An open connection; `connect` makes one.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def __repr__(self) -> str:
        return f"<Client of {self.cluster.connection.host} in namespace {self.namespace}>"

    @classmethod
    @asynccontextmanager
    async def connect(cls, target: Target | None = None) -> AsyncGenerator[Self]:
        """Yields a client of the cluster that kubectl would use, or of `target`. Raises as `cluster.connect` does."""
        async with connect(target) as cluster:
            yield cls(cluster)

    @property
    def namespace(self) -> str:
        """The namespace where a method is given none."""
        return self.cluster.namespace

    async def submit(
        self,
        command: str | Sequence[str] | None = None,
        *,
        directory: str | Path | None = None,
        workspace: bool = True,
        timeout_s: float = PATIENCE_S,
        **options: Unpack[Options],
    ) -> JobHandle:
        """Creates a job, sends it a directory as its code, and returns when it has all that it needs.

            job = await client.submit("python train.py --epochs 10", queue="h100", gpus=8)

        The same call again, with a name, doubles nothing. If the code cannot be sent, nothing of the job is left.
        RBAC: as `torchctl.client.submit.submit`.

        Args:
            command: A shell line, or an argv; None if `manifest` has it.
            directory: The code. Default: the current directory, unless the code comes from elsewhere (`git`).
            workspace: False for a job without code.
            timeout_s: Seconds for which the cluster is waited for to take the code.
            options: The rest of the job.

        Raises:
            UsageError: Something is missing or impossible, or a job of this name is another one.
            ClientError: The cluster refused something, or the code could not be sent.
        """
        request = Request(
            command=command if isinstance(command, str) else None,
            args=() if command is None or isinstance(command, str) else tuple(command),
            directory=_name(directory),
            workspace=False if not workspace else True if directory is not None else None,
            default_namespace=self.namespace,
            **options,
        )
        submission = build(request, SystemRandom().choice)
        read = partial(read_code, self.cluster, submission.namespace, Path(directory or "."))
        code = read if submission.uploads else None
        return JobHandle.of((await submit(self.cluster, submission, code, Silent(), patience_s=timeout_s)).job)

    async def job(self, name: str, *, namespace: str = "") -> JobHandle:
        """Reads a job. RBAC: get.

        Raises:
            NotFound: There is none.
        """
        return JobHandle.of(await get_job(self.cluster, Key(namespace or self.namespace, name)))

    async def jobs(self, *, namespace: str = "", all_namespaces: bool = False, labels: str = "") -> list[JobHandle]:
        """Reads all jobs of a namespace, or of all. RBAC: list."""
        found = await list_jobs(self.cluster, namespace=self._scope(namespace, all_namespaces), labels=labels)
        return [JobHandle.of(job) for job in found]

    async def queue(self, name: str, *, namespace: str = "") -> QueueView:
        """Reads a queue. RBAC: get.

        Raises:
            NotFound: There is none.
        """
        return await get_queue(self.cluster, Key(namespace or self.namespace, name))

    async def queues(self, *, namespace: str = "", all_namespaces: bool = False) -> list[QueueView]:
        """Reads all queues of a namespace, or of all. RBAC: list."""
        return await list_queues(self.cluster, namespace=self._scope(namespace, all_namespaces))

    def _scope(self, namespace: str, all_namespaces: bool) -> str:
        return "" if all_namespaces else namespace or self.namespace
