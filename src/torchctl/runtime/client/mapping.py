"""Turns the errors of the network libraries into ours, at the one place where they cross."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp

from torchctl.runtime.cancellation import is_asked_to_cancel
from torchctl.runtime.client.credentials import CredentialsError
from torchctl.runtime.client.errors import Timeout, Unavailable
from torchctl.runtime.client.requests import HttpRequest

__all__ = ["mapped"]


@contextmanager
def mapped(request: HttpRequest) -> Iterator[None]:
    """Turns the errors of the layers below into ours; their messages name the request."""
    what = f"{request.verb} {request.path}"
    try:
        yield
    except asyncio.CancelledError as error:
        if is_asked_to_cancel():
            raise
        message = f"{what}: somebody else cancelled what it waited for"
        raise Unavailable(message, outcome_unknown=request.is_write) from error
    except CredentialsError as error:
        raise Unavailable(f"{what}: {error}") from error
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError) as error:
        raise Unavailable(f"{what}: cannot connect: {_said(error)}") from error
    except TimeoutError as error:
        raise Timeout(f"{what}: no answer in time", outcome_unknown=request.is_write) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        detail = f"{type(error).__name__}: {error}"
        raise Unavailable(f"{what}: the connection broke: {detail}", outcome_unknown=request.is_write) from error


def _said(error: aiohttp.ClientError) -> str:
    """Returns what the network said. aiohttp's own text shows a Python object."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return str(error.certificate_error)
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{error.host}:{error.port}: {error.os_error.strerror or error.os_error}"
    return str(error)
