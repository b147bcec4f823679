"""Downloads published releases and verifies them.

A file that does not match its published SHA-256 is never kept.
"""

import hashlib
import http.client
import io
import tarfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torchctl.testing.programs import Program, architecture, version

__all__ = ["CorruptDownload", "Release", "Unreachable", "release_of"]

_PROBE_TIMEOUT_S = 4.0
_READ_TIMEOUT_S = 30.0
_CHUNK = 1 << 20

Progress = Callable[[str], None]


class Unreachable(Exception):
    """The site did not answer, or does not have the file."""


class CorruptDownload(Exception):
    """The file does not match the publisher's checksum.

    Only the publisher or the network's owner can fix it; an empty TORCHCTL_ASSETS_URL builds from source instead.
    """


@dataclass(frozen=True, slots=True)
class Release:
    """The URLs of one published program.

    `checksums` is a file that has either the bare SHA-256 of `url` or lines of `<sha256>  <file>`; `member` is
    the program's path if `url` is a tar archive.
    """

    url: str
    checksums: str
    member: str = ""

    def probe(self) -> str:
        """Returns the SHA-256 that `url` must have, within seconds, name resolution included.

        Raises Unreachable.
        """
        answers: list[str | Exception] = []

        def ask() -> None:
            try:
                answers.append(_read(self.checksums, _PROBE_TIMEOUT_S).decode())
            except Exception as error:
                answers.append(error)

        # A thread, because no timeout bounds the resolver.
        thread = threading.Thread(target=ask, daemon=True, name="torchctl-probe")
        thread.start()
        thread.join(_PROBE_TIMEOUT_S + 1)
        answer = answers[0] if answers else TimeoutError("no answer in time")
        if isinstance(answer, Exception):
            raise Unreachable(f"{self.checksums}: {answer}") from answer
        return _checksum(answer, self.url)

    def fetch(self, target: Path, progress: Progress) -> None:
        """Downloads and verifies the program, and only then writes it to `target`.

        Raises:
            Unreachable: the site did not answer, or the download ended too early.
            CorruptDownload: the content does not match its checksum.
        """
        expected = self.probe()
        content = self._download(progress)
        actual = hashlib.sha256(content).hexdigest()
        if actual != expected:
            raise CorruptDownload(f"{self.url}: SHA-256 is {actual}, published is {expected}: refused")
        program = self._extract(content) if self.member else content
        partial = target.with_name(f".{target.name}.partial")
        partial.write_bytes(program)
        partial.chmod(0o755)
        partial.replace(target)

    def _download(self, progress: Progress) -> bytes:
        content = io.BytesIO()
        try:
            with _open(self.url, _READ_TIMEOUT_S) as response:
                total = int(response.headers.get("Content-Length") or 0)
                while chunk := response.read(_CHUNK):
                    content.write(chunk)
                    progress(f"{self.url}: {content.tell() >> 20} of {total >> 20} MiB")
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{self.url}: {error}") from error
        if content.tell() < total:
            raise Unreachable(f"{self.url}: ended after {content.tell()} of {total} bytes")
        return content.getvalue()

    def _extract(self, archive: bytes) -> bytes:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            member = tar.extractfile(self.member)
            assert member is not None, f"{self.url} has a directory where {self.member} should be"
            return member.read()


def release_of(program: Program, kubernetes_url: str, etcd_url: str) -> Release | None:
    """Returns the release of a program; None if it is not published, or its site's base URL is empty."""
    tag, platform = version(program), f"linux-{architecture()}"
    if program.is_kubernetes and kubernetes_url:
        url = f"{kubernetes_url.rstrip('/')}/{tag}/bin/{platform.replace('-', '/')}/{program.name}"
        return Release(url, f"{url}.sha256")
    if program.module == "etcd" and etcd_url:
        site, name = f"{etcd_url.rstrip('/')}/{tag}", f"etcd-{tag}-{platform}"
        return Release(f"{site}/{name}.tar.gz", f"{site}/SHA256SUMS", member=f"{name}/etcd")
    return None


def _read(url: str, timeout_s: float) -> bytes:
    with _open(url, timeout_s) as response:
        return response.read(1 << 20)


def _open(url: str, timeout_s: float) -> http.client.HTTPResponse:
    try:
        response: http.client.HTTPResponse = urllib.request.urlopen(url, timeout=timeout_s)
    except urllib.error.HTTPError as refusal:
        refusal.close()  # it is the open response as well
        raise OSError(str(refusal)) from None
    return response


def _checksum(text: str, url: str) -> str:
    file = url.rsplit("/", 1)[1]
    for line in text.splitlines():
        digest, _, name = line.strip().partition(" ")
        if len(digest) == 64 and name.strip().lstrip("*") in ("", file):
            return digest.lower()
    raise Unreachable(f"no SHA-256 of {file} is published")
