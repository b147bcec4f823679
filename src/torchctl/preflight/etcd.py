"""Asks an etcd server if torchrun can use it for its rendezvous, and repeats until it answers or time is over."""

import asyncio
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import anyio
from yarl import URL

from .core import KEYS, VERSION, Answer, NotUsable, OutOfReach, Silence, judge

__all__ = ["Server", "check"]

_ONE_S = 5.0
"""Seconds for one request."""
_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 5.0
_MAX_BODY = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The address and certificates with which torchrun reaches etcd.

    Args:
        endpoint: host:port.
        ca: Authority of the server's certificate, which is not verified without one (as python-etcd does not).
        certificate: Client certificate.
        key: Its key, if it is not in the same file.
    """

    endpoint: str
    tls: bool = False
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def url(self, path: str) -> URL:
        return URL(f"{'https' if self.tls else 'http'}://{self.endpoint}{path}")


async def check(server: Server, *, timeout_s: float) -> None:
    """Returns once torchrun can use the server for its rendezvous.

    Raises:
        V2Off: It is etcd without its v2 API.
        NotUsable: It is no etcd, requires something that torchrun cannot provide, or a certificate is wrong.
        OutOfReach: No server answered in time.
    """
    context = _context(server) if server.tls else False
    last = Silence("it has not been asked yet")
    with anyio.move_on_after(timeout_s):
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, force_close=True),
            timeout=aiohttp.ClientTimeout(total=_ONE_S),
        ) as session:
            for pause_s in _pauses():
                version = await _ask(session, server.url(VERSION))
                found = judge(server.endpoint, version, await _ask(session, server.url(KEYS)))
                if found is None:
                    return
                last = found
                await anyio.sleep(pause_s)
    raise OutOfReach(
        f"etcd at {server.endpoint} cannot be used after {timeout_s:g} s: {last.why}",
        next_step="Check that it runs, rdzvEndpoint, the protocol in rdzvConf, and network policies",
    )


async def _ask(session: aiohttp.ClientSession, url: URL) -> Answer | Silence:
    try:
        async with session.get(url, allow_redirects=False) as response:
            return Answer(response.status, (await _body(response.content)).decode(errors="replace"))
    except TimeoutError:
        return Silence(f"no answer within {_ONE_S:g} s")
    except (aiohttp.ClientError, OSError) as error:
        return _unheard(url, error)


async def _body(content: aiohttp.StreamReader) -> bytes:
    """Reads an answer up to a limit, however many chunks it arrives in."""
    try:
        return await content.readexactly(_MAX_BODY)
    except asyncio.IncompleteReadError as whole:
        return whole.partial


def _unheard(url: URL, error: Exception) -> Silence:
    """Returns the reason why there is no answer. Raises if waiting cannot help, as after a refused handshake."""
    causes = [cause for cause in (error, error.__cause__) if isinstance(cause, aiohttp.ClientSSLError | ssl.SSLError)]
    if causes and not isinstance(causes[-1], ssl.SSLEOFError):
        raise NotUsable(
            f"no TLS connection to {url.host}:{url.port}: {_reason(error)}",
            next_step="Check the protocol and the certificates in rdzvConf",
        )
    return Silence(_reason(error))


def _reason(error: Exception) -> str:
    """Returns the system's error text, without the one that aiohttp adds."""
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__


def _context(server: Server) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if server.ca is not None:
            context.load_verify_locations(server.ca)
        else:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if server.certificate is not None:
            context.load_cert_chain(server.certificate, server.key)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(str(path) for path in (server.ca, server.certificate, server.key) if path is not None)
        raise NotUsable(
            f"a certificate cannot be read: {error} (one of {files})", next_step="Correct rdzvConf"
        ) from None
    return context


def _pauses() -> Iterator[float]:
    pause_s = _PAUSE_S
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
