"""Turns the errors of the network libraries into ours, at the one place where they cross."""

import asyncio
from contextlib import AbstractContextManager
from types import TracebackType

import aiohttp

from torchctl.runtime.cancellation import is_asked_to_cancel
from torchctl.runtime.client.credentials import CredentialsError
from torchctl.runtime.client.errors import ApiError, Timeout, Unavailable
from torchctl.runtime.client.requests import HttpRequest

__all__ = ["mapped"]


def mapped(request: HttpRequest) -> AbstractContextManager[None, None]:
    """Turns the errors of the layers below into ours; their messages name the request."""
    return _Mapped(request)


class _Mapped(AbstractContextManager[None, None]):
    """A class and no generator: it is entered for each request."""

    __slots__ = ("_request",)

    def __init__(self, request: HttpRequest) -> None:
        self._request = request

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ours = None if error is None else _ours(error, self._request)
        if ours is not None:
            raise ours from error


def _ours(error: BaseException, request: HttpRequest) -> ApiError | None:
    """Returns our error for that of a layer below; None for what passes as it is."""
    what = f"{request.verb} {request.path}"
    match error:
        case asyncio.CancelledError():
            message = f"{what}: somebody else cancelled what it waited for"
            return None if is_asked_to_cancel() else Unavailable(message, outcome_unknown=request.is_write)
        case CredentialsError():
            return Unavailable(f"{what}: {error}")
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError() | aiohttp.ClientHttpProxyError():
            return Unavailable(f"{what}: cannot connect: {_said(error)}")
        case TimeoutError():
            return Timeout(f"{what}: no answer in time", outcome_unknown=request.is_write)
        case aiohttp.ClientError() | OSError() | ValueError():
            detail = f"{type(error).__name__}: {error}"
            return Unavailable(f"{what}: the connection broke: {detail}", outcome_unknown=request.is_write)
    return None


def _said(error: aiohttp.ClientError) -> str:
    """Returns what the network said. aiohttp's own text shows a Python object."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return str(error.certificate_error)
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{error.host}:{error.port}: {error.os_error.strerror or error.os_error}"
    return str(error)
