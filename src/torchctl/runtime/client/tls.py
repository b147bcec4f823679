"""TLS contexts from certificate files; changed files take effect without a restart."""

import hashlib
import os
import ssl
from dataclasses import dataclass

from torchctl.runtime.clock import Clock

__all__ = ["TlsContexts", "TlsFiles"]

CHECK_PERIOD_S = 10.0


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The certificate files of a connection, and how to verify the server.

    Attributes:
        ca: PEM bundle of the authorities that are trusted; None trusts the machine's.
        certificate: PEM of the client certificate, with `key`; None if there is none.
        key: PEM of its key.
        verify: False accepts any server. Only for a kubeconfig that says so.
        server_name: The name that the server's certificate must carry; None: the host of the URL.
    """

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    verify: bool = True
    server_name: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(path for path in (self.ca, self.certificate, self.key) if path)

    def context(self) -> ssl.SSLContext:
        """Reads the files and makes a TLS context.

        Raises:
            OSError, ssl.SSLError: A file cannot be read, or is no PEM.
        """
        context = ssl.create_default_context(cafile=self.ca)
        # Python 3.13 demands key identifiers, which many clusters' certificates lack. Go's clients do not.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate:
            context.load_cert_chain(self.certificate, self.key)
        return context


class TlsContexts:
    """Keeps a TLS context up to date: makes a new one if a file has changed, checking at most every 10 s.

    While a file is unreadable or half written, the last good context stays in use.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._files: TlsFiles | None = None
        self._digest = b""
        self._checked_at = float("-inf")
        self._context: ssl.SSLContext | None = None

    def current(self, files: TlsFiles, *, check: bool = False) -> ssl.SSLContext:
        """Returns the context for `files`; `check` reads the files now."""
        now = self._clock.monotonic()
        changed = files is not self._files and files != self._files
        due = check or changed or now - self._checked_at >= CHECK_PERIOD_S
        if self._context is not None and not due:
            return self._context
        self._checked_at = now
        try:
            return self._load(files)
        except (OSError, ssl.SSLError):
            if self._context is None:
                raise
            return self._context

    def _load(self, files: TlsFiles) -> ssl.SSLContext:
        digest = _digest(files)
        if self._context is None or files != self._files or digest != self._digest:
            self._context = files.context()
            self._files, self._digest = files, digest
        return self._context


def _digest(files: TlsFiles) -> bytes:
    digest = hashlib.sha256()
    for path in files.paths:
        with open(path, "rb") as file:
            content = file.read()
        digest.update(os.fsencode(path) + len(content).to_bytes(8, "big") + content)
    return digest.digest()
