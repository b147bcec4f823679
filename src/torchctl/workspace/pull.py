"""`torchctl workspace pull`: downloads the archive from the sync pod's server until it is complete and verified."""

import random
from pathlib import Path

import aiohttp
import anyio

from .core import Guard, Limits, Member
from .errors import Refused, Unreachable
from .handout import already_there, check_directory, verify
from .marker import Marker
from .serve import DIGEST, MARKER_HEADER
from .staging import Staging
from .steps import deadline
from .tarstream import TarParser
from .unpack import Unpacker
from .urls import check_url

__all__ = ["pull"]

_LONGEST_PAUSE_S = 10.0


async def pull(
    url: str, target: Path, *, timeout_s: float, limits: Limits, expected: str = "", first_pause_s: float = 0.25
) -> Marker:
    """Fetch the archive into an empty volume; a target that has it already is left alone.

    If the server is not there yet, is busy or breaks off, the request is repeated until the deadline.

    Args:
        expected: the digest that the workspace must have; empty: the one that the server sends.
        first_pause_s: the first pause between tries; it doubles up to 10 s, with jitter.

    Raises:
        Refused: the archive contains something that a workspace must not contain, or is not the expected one.
        Unreachable: the deadline passed; the message contains the last error.
    """
    check_url(url, ("http", "https"))
    check_directory(target)
    client = _Pull(url, target, limits, expected)
    try:
        async with deadline(timeout_s, f"pulling the workspace from {url}"):
            return await _until_done(client, first_pause_s)
    except Unreachable as error:
        if client.trouble:
            raise Unreachable(f"{error.message} ({client.trouble})", next_step=error.next_step) from None
        raise


async def _until_done(client: "_Pull", first_pause_s: float) -> Marker:
    pause = first_pause_s
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)
    async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as http:
        while True:
            before = client.received
            try:
                return await client.run(http)
            except (aiohttp.ClientError, TimeoutError, ConnectionError, Unreachable) as error:
                client.trouble = str(error) or type(error).__name__
            pause = first_pause_s if client.received > before else min(pause * 2, _LONGEST_PAUSE_S)
            await anyio.sleep(pause * random.uniform(0.5, 1))


class _Pull:
    """The download of one workspace over as many connections as needed."""

    def __init__(self, url: str, target: Path, limits: Limits, expected: str) -> None:
        self.received = 0
        self.trouble = ""
        self._url = url
        self._staging = Staging(target)
        self._limits = limits
        self._expected = expected
        self._digest = ""
        self._parser = TarParser(limits)
        self._unpacker = Unpacker(self._staging.tree, Guard(limits))

    async def run(self, http: aiohttp.ClientSession) -> Marker:
        """Download over one connection, from where the last one broke off.

        Raises:
            Unreachable, aiohttp.ClientError: call again to resume.
        """
        headers = {"Range": f"bytes={self.received}-", "If-Range": f'"{self._digest}"'} if self.received else {}
        async with http.get(self._url, headers=headers, allow_redirects=False) as response:
            marker = self._marker(response)
            if already_there(self._staging.root, marker.digest):
                self._staging.discard()
                return marker
            if response.status == 200:
                self._restart(marker)
            await self._receive(response)
        if not self._parser.ended:
            raise Unreachable("the archive was cut off")
        self._unpacker.close()
        try:
            await verify(self._staging.tree, marker.digest, self._limits)
        except Unreachable:
            self.received = 0
            raise
        self._staging.publish(marker)
        return marker

    def _marker(self, response: aiohttp.ClientResponse) -> Marker:
        if response.status not in (200, 206):
            self.received = 0 if response.status == 416 else self.received
            raise Unreachable(f"the server answered {response.status}")
        marker = Marker.from_json(response.headers.get(MARKER_HEADER, ""))
        if response.headers.get(DIGEST) != marker.digest or (response.status == 206 and marker.digest != self._digest):
            raise Refused("the server contradicts itself about the workspace's digest")
        if self._expected and marker.digest != self._expected:
            raise Refused(
                f"the server has the workspace {marker.digest}, and {self._expected} is wanted",
                next_step="The workspace was synced again meanwhile: start the job again",
            )
        return marker

    def _restart(self, marker: Marker) -> None:
        self.received = 0
        self._digest = marker.digest
        self._staging.open()
        self._parser = TarParser(self._limits)
        self._unpacker = Unpacker(self._staging.tree, Guard(self._limits))

    async def _receive(self, response: aiohttp.ClientResponse) -> None:
        async for chunk in response.content.iter_any():
            self.received += len(chunk)
            for event in self._parser.feed(chunk):
                if isinstance(event, Member):
                    self._unpacker.add(event)
                else:
                    self._unpacker.write(event)
