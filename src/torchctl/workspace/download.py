"""Downloads one file: limited in bytes and time, resumed after a broken connection, hashed while it arrives."""

import asyncio
import hashlib
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import urljoin

import aiohttp
import anyio
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from .errors import Refused, Unreachable, WorkspaceError
from .secret import Secret
from .urls import Redactor, check_address, check_url, origin

__all__ = ["Server", "WebServer", "download", "session", "tls"]

_TRIES = 5
_MAX_REFUSAL = 64 * 1024
_RETRIED = frozenset({408, 425, 429})
"""Statuses that are retried, besides all of 500 and above."""
_MOVED = frozenset({301, 302, 303, 307, 308})


class _PublicResolver(AbstractResolver):
    """Resolves names with the system's resolver, and refuses those that lead to a metadata service."""

    def __init__(self) -> None:
        self._inner = aiohttp.ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        for result in found:
            check_address(result["host"])
        return found

    async def close(self) -> None:
        await self._inner.close()


def tls(ca: Path | None) -> ssl.SSLContext:
    """Make a TLS context that trusts `ca`, else SSL_CERT_FILE and SSL_CERT_DIR, else the system's authorities."""
    return ssl.create_default_context(cafile=str(ca) if ca else None)


@asynccontextmanager
async def session(context: ssl.SSLContext) -> AsyncIterator[aiohttp.ClientSession]:
    """Open a session for one source: the environment's proxies, no cookies, at most 60 s of silence, no total limit."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=20, sock_read=60)
    connector = aiohttp.TCPConnector(ssl=context, resolver=_PublicResolver())
    async with aiohttp.ClientSession(
        connector=connector,
        timeout=timeout,
        trust_env=True,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        headers={"User-Agent": "torchctl", "Accept-Encoding": "identity"},
    ) as opened:
        yield opened


class Server(Protocol):
    """The request headers and error messages for one kind of server."""

    @property
    def schemes(self) -> tuple[str, ...]: ...

    @property
    def redirects(self) -> int:
        """The number of redirects that are followed."""

    @property
    def condition(self) -> str:
        """The header that makes a resumed download safe: If-Range, or If-Match if the server supports only that."""

    def shown(self, text: str) -> str:
        """Return a text with all secrets removed."""

    def headers(self, url: str, *, home: bool) -> Mapping[str, str]:
        """Return the headers that authorize a request; `home` is false after a redirect to another origin."""

    def refusal(self, shown: str, response: aiohttp.ClientResponse, body: bytes) -> WorkspaceError:
        """Return the error for an answer that is no success and not worth a retry."""


class WebServer:
    """A web server: https, with a user name and password or without."""

    schemes = ("https",)
    redirects = 5
    condition = "If-Range"

    def __init__(self, secret: Secret) -> None:
        self._secret = secret

    def shown(self, text: str) -> str:
        return self._secret.redactor()(text)

    def headers(self, url: str, *, home: bool) -> Mapping[str, str]:
        authorization = self._secret.basic()
        return {"Authorization": authorization} if home and authorization else {}

    def refusal(self, shown: str, response: aiohttp.ClientResponse, body: bytes) -> WorkspaceError:
        steps = {401: "Check the Secret that secretRef names", 403: "Check the rights of the credentials"}
        return Refused(
            f"cannot download {shown}: the server answered {response.status}",
            next_step=steps.get(response.status, "Check volumes.workspace.url"),
        )


async def download(
    http: aiohttp.ClientSession,
    server: Server,
    url: str,
    target: Path,
    *,
    max_bytes: int,
    sha256: str = "",
    etag: str = "",
) -> str:
    """Download `url` into `target`.

    Args:
        url: credentials are sent to its origin only, even after a redirect.
        sha256: hexadecimal; when given, the file must have it.
        etag: when given, the file must have this version.

    Returns:
        The SHA-256 of the file, hexadecimal.

    Raises:
        Refused: the URL, the answer or the checksum is not acceptable, or the file is larger than `max_bytes`.
        Unreachable: the server failed after a few tries, or has another version by now.
    """
    check_url(url, server.schemes)
    transfer = _Transfer(server, url, target, max_bytes, etag)
    for attempt in range(1, _TRIES + 1):
        try:
            await transfer.run(http)
            break
        except (aiohttp.ClientError, OSError, Unreachable) as error:
            _give_up(error, attempt, transfer.shown)
        await anyio.sleep(2**attempt / 4)
    found = transfer.hash.hexdigest()
    if sha256 and found != sha256.lower():
        raise Refused(
            f"{transfer.shown} has the SHA-256 {found}, not {sha256}",
            next_step="Update volumes.workspace.revision, or find out who changed the file",
        )
    return found


def _give_up(error: Exception, attempt: int, shown: str) -> None:
    """Raise the error of a failed attempt, unless it is worth a retry."""
    cause: BaseException | None = error
    while cause is not None:  # aiohttp wraps the error of a refused address
        if isinstance(cause, Refused):
            raise cause from None
        cause = cause.__cause__
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        raise Refused(
            f"the certificate of {shown} is not trusted",
            next_step="Put the authority's certificate as ca.crt into the Secret that secretRef names",
        ) from None
    if isinstance(error, OSError) and not isinstance(error, aiohttp.ClientError | ConnectionError | TimeoutError):
        raise error
    if attempt == _TRIES:
        said = Redactor()(str(error)) or type(error).__name__
        raise Unreachable(
            f"cannot download {shown} ({said})", next_step="Check volumes.workspace.url and the network policy"
        ) from None


async def _beginning(content: aiohttp.StreamReader) -> bytes:
    """Read the beginning of an error's body, however many chunks it arrives in."""
    try:
        return await content.readexactly(_MAX_REFUSAL)
    except asyncio.IncompleteReadError as whole:
        return whole.partial


class _Transfer:
    """The download of one file over as many connections as needed."""

    def __init__(self, server: Server, url: str, target: Path, max_bytes: int, etag: str) -> None:
        self.hash = hashlib.sha256()
        self.shown = server.shown(url)
        self._server = server
        self._url = url
        self._target = target
        self._max_bytes = max_bytes
        self._wanted = etag
        self._done = 0
        self._etag = ""

    async def run(self, http: aiohttp.ClientSession) -> None:
        """Download over one connection, from where the last one broke off.

        Raises:
            Refused, Unreachable, aiohttp.ClientError: after the latter two, call again to resume.
        """
        async with self._follow(http) as response:
            await self._check_status(response)
            if response.status != 206:
                self._restart(response.headers)
            self._check_size(self._done + (response.content_length or 0))
            with self._target.open("ab") as file:
                async for chunk in response.content.iter_any():
                    self._check_size(self._done + len(chunk))
                    file.write(chunk)
                    self.hash.update(chunk)
                    self._done += len(chunk)

    @asynccontextmanager
    async def _follow(self, http: aiohttp.ClientSession) -> AsyncIterator[aiohttp.ClientResponse]:
        schemes = self._server.schemes
        first = origin(check_url(self._url, schemes))
        url = self._url
        for _ in range(self._server.redirects + 1):
            home = origin(check_url(url, schemes)) == first
            headers = {**self._server.headers(url, home=home), **self._conditions()}
            async with http.get(URL(url, encoded=True), headers=headers, allow_redirects=False) as response:
                if response.status not in _MOVED or not self._server.redirects:
                    yield response
                    return
                url = self._target_of(url, response.headers.get("Location", ""))
        raise Refused(f"{self.shown} redirects more than {self._server.redirects} times")

    def _target_of(self, url: str, location: str) -> str:
        try:
            return urljoin(url, location)
        except ValueError:
            raise Refused(f"{self.shown} redirects to what is no URL") from None

    def _conditions(self) -> Mapping[str, str]:
        if self._done and self._etag:
            return {"Range": f"bytes={self._done}-", self._server.condition: self._etag}
        return {"If-Match": self._wanted} if self._wanted else {}

    async def _check_status(self, response: aiohttp.ClientResponse) -> None:
        status = response.status
        if status in (200, 206):
            return
        if status == 412:
            self._done = 0
            raise Unreachable(f"{self.shown} was changed while it was fetched")
        if status == 416 and self._done:  # the whole file had arrived, but not the end of the answer
            self._done = 0
            raise Unreachable("the server has no more of it")
        if status in _RETRIED or status >= 500:
            raise Unreachable(f"the server answered {status}")
        raise self._server.refusal(self.shown, response, await _beginning(response.content))

    def _restart(self, headers: Mapping[str, str]) -> None:
        etag = headers.get("ETag", "")
        self._etag = "" if etag.startswith("W/") else etag
        self.hash, self._done = hashlib.sha256(), 0
        with self._target.open("wb"):
            pass

    def _check_size(self, total: int) -> None:
        if total > self._max_bytes:
            raise Refused(
                f"{self.shown} has more than {self._max_bytes} bytes",
                next_step="Leave out what training does not need; put data into a dataset claim",
            )
