"""What is installed in a cluster."""

from typing import Any

import msgspec

from torchctl.client.cluster import Cluster
from torchctl.runtime.client.errors import Forbidden, NotFound
from torchctl.runtime.kinds import Kind, ObjectMeta

__all__ = ["operator_image"]

NAMESPACE = "torchctl-system"
NAME = "torchctl"
"""Where config/ installs the operator."""


class Deployment(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: dict[str, Any] = {}


DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments", Deployment)


async def operator_image(cluster: Cluster) -> str:
    """Returns the image of the operator, or why it is not known. RBAC: get on its Deployment, if any."""
    with cluster.explained(f"Deployment {NAME} in namespace {NAMESPACE}"):
        try:
            found = await cluster.client.get(DEPLOYMENT, NAME, NAMESPACE)
        except NotFound:
            return f"unknown: there is no Deployment {NAME} in namespace {NAMESPACE}"
        except Forbidden:
            return f"unknown: you may not read Deployments in namespace {NAMESPACE}"
    containers = found.spec["template"]["spec"]["containers"]
    return str(containers[0]["image"])
