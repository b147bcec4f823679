"""Turns what the API server refuses into the errors of the SDK."""

import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from torchctl.client.errors import (
    ClusterError,
    NotAllowed,
    NotFound,
    NotInstalled,
    NotLoggedIn,
    RequestRefused,
    Unreachable,
)
from torchctl.runtime.client import errors as api
from torchctl.runtime.client.credentials import CredentialsError

__all__ = ["explain", "explained"]

_NOBODY = 'User "system:anonymous" cannot '
_NO_RIGHT = re.compile('User ".*" cannot [a-z*]+ ')
"""What an authorizer says (staging/src/k8s.io/apiserver/.../responsewriters/errors.go). Webhooks, policies and quotas
refuse with the same status, in words of their own."""


def explain(error: api.ApiError, what: str, *, host: str = "", login: str = "") -> ClusterError:
    """Returns the error for a person.

    Args:
        error: What the runtime's client raised.
        what: The object that the request was about, such as `TorchrunJob vit in namespace ml`.
        host: The API server's URL.
        login: Where the login comes from, such as `context dev`.
    """
    match error:
        case api.Unauthorized():
            return NotLoggedIn(
                f"the API server at {host} does not accept the login of {login}",
                "Log in again, as you do for kubectl; `kubectl auth whoami` shows whether it works.",
            )
        case api.Forbidden() if _NOBODY in error.message:
            return NotLoggedIn(
                f"the API server at {host} does not know who asks: {login} gives no credentials that it takes",
                "Log in as you do for kubectl, or choose another context with --context.",
            )
        case api.Forbidden() if _NO_RIGHT.search(error.message):
            return NotAllowed(
                f"{what}: you lack a right: {error.message}",
                "Ask who runs the cluster for the role view (to look), edit (to submit) or admin in the namespace.",
            )
        case api.NotFound():
            return _missing(error, what, host)
        case api.Unavailable() | api.Timeout() if error.code == 0:
            return _no_answer(error, host, login)
        case api.Unavailable() | api.Timeout() | api.TooManyRequests():
            return Unreachable(
                f"{what}: the API server at {host} cannot answer now: {error.message}", "Try again in a moment."
            )
        case api.AlreadyExists():
            return RequestRefused(f"{what} exists already", "Choose another name, or delete it first.")
        case api.Conflict():
            return RequestRefused(f"{what} was changed by somebody else meanwhile: {error.message}", "Try again.")
        case api.Malformed():
            return RequestRefused(
                f"{what}: the answer cannot be understood: {error.message}",
                "Compare versions with `kubectl torchrun version`.",
            )
    return RequestRefused(
        f"{what}: the API server refuses it: {error.message}", "Correct what it names, or ask who runs the cluster."
    )


@contextmanager
def explained(what: str, *, host: str = "", login: str = "") -> Iterator[None]:
    """Turns the errors of the runtime's client, inside the block, into those of the SDK."""
    try:
        yield
    except api.ApiError as error:
        raise explain(error, what, host=host, login=login) from error


def _missing(error: api.NotFound, what: str, host: str) -> ClusterError:
    details = error.details
    if details is None or not details.name:
        # A path that the server does not know is a 404 without an object's name.
        return NotInstalled(
            f"torchctl is not installed in the cluster at {host}: it does not know the kind of {what}",
            "Ask who runs the cluster to install it, or choose another with --context.",
        )
    if details.kind == "namespaces":
        return NotFound(f"there is no namespace {details.name}", "Choose one with -n; `kubectl get ns` lists them.")
    return NotFound(
        f"there is no {what}", "Check its name and namespace (-n); `kubectl torchrun list -A` shows all jobs."
    )


def _no_answer(error: api.ApiError, host: str, login: str) -> ClusterError:
    if isinstance(error.__cause__, CredentialsError):
        return NotLoggedIn(f"there are no credentials for {login}: {error.__cause__}", "Log in as you do for kubectl.")
    if isinstance(error.__cause__, ssl.SSLCertVerificationError):
        return Unreachable(
            f"the certificate of the API server at {host} is not one that the kubeconfig trusts: {error.message}",
            "Correct certificate-authority-data of the cluster in the kubeconfig, or the address.",
        )
    return Unreachable(
        f"the API server at {host} gives no answer: {error.message}",
        "Check the network (a VPN?), the proxy, and the context of the kubeconfig.",
    )
