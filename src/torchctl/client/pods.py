"""Pods of a job."""

from torchctl.api.kube import POD, Pod
from torchctl.api.labels import JOB_NAME
from torchctl.client.cluster import Cluster
from torchctl.runtime.kinds import Key

__all__ = ["pods_label", "pods_of"]


def pods_label(job: str) -> str:
    """Returns the label selector of a job's pods: workers of all attempts, and sync pods."""
    return f"{JOB_NAME}={job}"


async def pods_of(cluster: Cluster, job: Key) -> list[Pod]:
    """Reads the pods of a job. RBAC: list on pods."""
    with cluster.explained(f"pods of TorchrunJob {job.name} in namespace {job.namespace}"):
        return await cluster.client.list(POD, namespace=job.namespace, labels=pods_label(job.name))
