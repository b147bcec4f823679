"""The way to the program in a sync pod that takes code: a port of the pod's loopback interface, by port-forward."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from torchctl.api.names import UPLOAD_PORT
from torchctl.client.cluster import Cluster
from torchctl.client.delivery import Interrupted
from torchctl.client.errors import RequestRefused, Unreachable
from torchctl.client.portforward import forward_port
from torchctl.client.receiver import Gone, Retry
from torchctl.client.receiving import Receiver
from torchctl.runtime.client import errors as api
from torchctl.runtime.client.portforward import connect_port

__all__ = ["reach"]


@asynccontextmanager
async def reach(cluster: Cluster, namespace: str, receiver: Receiver) -> AsyncGenerator[str]:
    """Yields the URL at which a receiver listens. RBAC: get and create on pods/portforward.

    Raises:
        Interrupted: The way broke, or what was asked for there has to be asked for again.
        ClientError: A right is missing.
    """
    await _knock(cluster, namespace, receiver.pod)
    async with forward_port(cluster.client, receiver.pod, namespace, UPLOAD_PORT) as forward:
        try:
            yield forward.url
        except (Gone, Retry, Unreachable) as error:
            why = error.what if isinstance(error, Unreachable) else error
            raise Interrupted(str(forward.failure or why), answered=forward.answered) from error


async def _knock(cluster: Cluster, namespace: str, pod: str) -> None:
    """Finds out at once whether the port can be reached at all, and if not, why."""
    try:
        async with connect_port(cluster.client, pod, namespace, UPLOAD_PORT):
            return
    except (api.Forbidden, api.Unauthorized):
        with cluster.explained(f"port-forward to pod {pod} in namespace {namespace}"):
            raise
    except api.Unsupported as error:
        raise RequestRefused(error.message, "Ask whoever runs the cluster to switch that feature gate on.") from error
    except api.ApiError as error:
        raise Interrupted(error.message) from error
