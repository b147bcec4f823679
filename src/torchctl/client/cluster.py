"""Connects to a cluster as kubectl does: the same files, environment and flags lead to the same API server and user.

A kubeconfig is `--kubeconfig`, else the files of $KUBECONFIG (merged), else ~/.kube/config, else the account of the
pod that this runs in.
"""

import re
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, replace

from torchctl.client.errors import ConfigError, NotLoggedIn, UsageError
from torchctl.client.refusals import explained
from torchctl.runtime.client import config
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.client import connect as connect_to
from torchctl.runtime.client.connection import Connection
from torchctl.runtime.client.impersonation import Impersonation
from torchctl.runtime.client.retry import RetryPolicy
from torchctl.runtime.settings import ClientSettings

__all__ = ["FIELD_MANAGER", "Cluster", "Target", "connect"]

FIELD_MANAGER = "kubectl-torchrun"
"""Owner of the fields that people set through this program; the operator's is `torchctl`."""

_NAMESPACE = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
RETRY = RetryPolicy(deadline_s=3.0)
"""A person waits: a server that is away is reported within seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Which cluster, which namespace, and in whose name. What is empty is as the kubeconfig says.

    Attributes:
        kubeconfig: Path of the kubeconfig, or several joined by colons.
        context: Context of the kubeconfig.
        namespace: Namespace of jobs and queues.
        user: The user to impersonate.
        groups: The groups to impersonate; only with a user.
        request_timeout_s: Seconds for one request; 0 leaves it to the kind of request.
    """

    kubeconfig: str = ""
    context: str = ""
    namespace: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    request_timeout_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """An open connection to a cluster.

    Attributes:
        client: Reads and writes objects; raises the runtime's errors (see `explained`).
        connection: Address and credentials of the API server, for requests that `client` has no method for.
        namespace: The namespace where none is named.
        login: Where the login comes from, for messages.
    """

    client: Client
    connection: Connection
    namespace: str
    login: str

    def explained(self, what: str) -> AbstractContextManager[None]:
        """Turns errors of `client`, inside the block, into those of the SDK.

        Args:
            what: The object that the request is about, such as `TorchrunJob vit in namespace ml`.
        """
        return explained(what, host=self.connection.host, login=self.login)


@asynccontextmanager
async def connect(target: Target | None = None) -> AsyncGenerator[Cluster]:
    """Yields the cluster of `target`. It is connected to by the first request.

    Raises:
        ConfigError: The kubeconfig is missing, or makes no sense.
        NotLoggedIn: The kubeconfig's plugin gives no credentials.
        UsageError: `target` contradicts itself.
    """
    target = target or Target()
    connection = await _connection(target)
    namespace = _namespace(target, connection)
    settings = _settings(target.request_timeout_s)
    async with connect_to(
        connection, user_agent=FIELD_MANAGER, field_manager=FIELD_MANAGER, settings=settings, retry=RETRY
    ) as client:
        yield Cluster(client, connection, namespace, _login(target))


async def _connection(target: Target) -> Connection:
    try:
        connection = await config.load_connection(target.kubeconfig or None, target.context or None)
    except config.ConfigError as error:
        if isinstance(error.__cause__, config.CredentialsError):
            raise NotLoggedIn(f"no credentials: {error}", "Log in as you do for kubectl.") from error
        raise ConfigError(
            f"the kubeconfig cannot be used: {error}",
            "`kubectl config get-contexts` shows what there is; --kubeconfig and --context choose.",
        ) from error
    impersonation = _impersonation(target)
    return replace(connection, impersonation=impersonation) if impersonation is not None else connection


def _namespace(target: Target, connection: Connection) -> str:
    name = target.namespace or connection.namespace
    if not re.fullmatch(_NAMESPACE, name):
        raise UsageError(f"{name!r} is no name of a namespace", "Choose one with -n; `kubectl get ns` lists them.")
    return name


def _impersonation(target: Target) -> Impersonation | None:
    if not target.user and not target.groups:
        return None
    try:
        return Impersonation(user=target.user, groups=target.groups)
    except ValueError as error:
        raise UsageError(f"{error}", "Name the user with --as.") from error


def _settings(timeout_s: float) -> ClientSettings:
    if not timeout_s:
        return ClientSettings()
    return ClientSettings(read_timeout_s=timeout_s, list_timeout_s=timeout_s, write_timeout_s=timeout_s)


def _login(target: Target) -> str:
    login = f"context {target.context}" if target.context else "the current context"
    return f"{login} as {target.user}" if target.user else login
