"""Finds the API server's address and our credentials, in a kubeconfig or a service account.

A pod's service account is read here. A kubeconfig is read by the module `kubeconfig`, which is imported only then.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from torchctl.runtime.client.connection import ConfigError, Connection
from torchctl.runtime.client.credentials import CredentialsError, TokenFile
from torchctl.runtime.client.proxies import proxy_for, supported
from torchctl.runtime.client.tls import TlsFiles
from torchctl.runtime.clock import Clock

__all__ = ["ConfigError", "Connection", "CredentialsError", "in_cluster", "load_connection"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


async def load_connection(kubeconfig: str | os.PathLike[str] | None = None, context: str | None = None) -> Connection:
    """Finds the configuration: `kubeconfig`, else $KUBECONFIG, else ~/.kube/config, else the pod's service account.

    Args:
        kubeconfig: Path, or several joined by colons.
        context: The context to use; None takes the current one. Only a kubeconfig has contexts.

    Raises:
        ConfigError: There is none, or it is invalid, or its proxy is of a kind that is not spoken here.
    """
    connection = await _found(kubeconfig, context)
    supported(connection.proxy or proxy_for(connection.host, os.environ))
    return connection


async def _found(kubeconfig: str | os.PathLike[str] | None, context: str | None) -> Connection:
    paths = os.fspath(kubeconfig) if kubeconfig else os.environ.get("KUBECONFIG", "")
    default = Path.home() / ".kube" / "config"
    if not paths and default.is_file():
        paths = str(default)
    if not paths and not context and "KUBERNETES_SERVICE_HOST" in os.environ:
        return in_cluster(os.environ)
    if not paths:
        raise ConfigError(f"no kubeconfig given, $KUBECONFIG is empty, there is no {default}, and this is no pod")
    from torchctl.runtime.client.kubeconfig import load

    return await load(paths, context)


def in_cluster(
    environment: Mapping[str, str], directory: Path = SERVICE_ACCOUNT, clock: Clock | None = None
) -> Connection:
    """Returns the connection of a pod's service account.

    Raises:
        ConfigError: This is no pod, or its service account is not mounted.
    """
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ConfigError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is no pod")
    ca, token, namespace = directory / "ca.crt", directory / "token", directory / "namespace"
    for path in (ca, token):
        if not path.is_file():
            raise ConfigError(f"{path} is missing: the pod's service account is not mounted")
    return Connection(
        host=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        tls=TlsFiles(ca=str(ca)),
        namespace=namespace.read_text().strip() if namespace.is_file() else "default",
        credentials=TokenFile(str(token), clock),
    )
