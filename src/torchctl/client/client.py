"""The SDK's entry: a cluster's jobs and queues. `torchctl.client.blocking` is the same for synchronous programs."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Self

from torchctl.client.cluster import Cluster, Target, connect
from torchctl.client.jobs import Job, get_job, list_jobs
from torchctl.client.queues import get_queue, list_queues
from torchctl.client.views import QueueView
from torchctl.runtime.kinds import Key

__all__ = ["Client"]


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

    async def job(self, name: str, *, namespace: str = "") -> Job:
        """Reads a job. RBAC: get.

        Raises:
            NotFound: There is none.
        """
        return await get_job(self.cluster, Key(namespace or self.namespace, name))

    async def jobs(self, *, namespace: str = "", all_namespaces: bool = False, labels: str = "") -> list[Job]:
        """Reads all jobs of a namespace, or of all. RBAC: list."""
        return await list_jobs(self.cluster, namespace=self._scope(namespace, all_namespaces), labels=labels)

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
