"""Tells an empty namespace from one that does not exist."""

import msgspec

from torchctl.client.cluster import Cluster
from torchctl.client.errors import NotFound
from torchctl.runtime.client import errors
from torchctl.runtime.kinds import Kind, ObjectMeta

__all__ = ["check_namespace"]


class Namespace(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


NAMESPACE = Kind("", "v1", "Namespace", "namespaces", Namespace, namespaced=False)


async def check_namespace(cluster: Cluster, name: str) -> None:
    """Raises if a namespace is known not to exist; the API server lists nothing in it all the same. RBAC: get, if any.

    Raises:
        NotFound: There is no such namespace.
    """
    if not name:
        return
    try:
        await cluster.client.get(NAMESPACE, name)
    except errors.NotFound:
        raise NotFound(f"there is no namespace {name}", "Choose one with -n; `kubectl get ns` lists them.") from None
    except errors.ApiError:
        return  # Few people may read namespaces; then it counts as there.
