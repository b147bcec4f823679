"""A server's TLS certificate: read from a directory and reloaded when it changes, or self-signed."""

import hashlib
import os
import ssl
from pathlib import Path

import structlog

from torchctl.runtime.clock import Clock

__all__ = ["Certificates"]

CHECK_PERIOD_S = 10.0
"""Seconds after which the directory is read again."""

log = structlog.get_logger("torchctl.certificates")


class Certificates:
    """The certificate and key of a server.

    The directory has `tls.crt` and `tls.key`, like the volume of a Secret of type kubernetes.io/tls. While they are
    unusable, the last usable pair stays in place; if there was none yet, a self-signed one is used.

    Args:
        directory: Contains certificate and key; None: self-signed.
        clock: Times the next look at the directory.
    """

    def __init__(self, directory: str | None, clock: Clock) -> None:
        self._directory = Path(directory) if directory is not None else None
        self._clock = clock
        self._context: ssl.SSLContext | None = None
        self._digest = b""
        self._checked_at = float("-inf")
        self._complaint = ""

    def __repr__(self) -> str:
        return f"<Certificates of {self._directory or 'its own'}>"

    def current(self) -> ssl.SSLContext:
        """The context for the next connection."""
        now = self._clock.monotonic()
        if self._directory is not None and now - self._checked_at >= CHECK_PERIOD_S:
            self._checked_at = now
            self._follow(self._directory)
        if self._context is None:
            self._context = _self_signed()
        return self._context

    def _follow(self, directory: Path) -> None:
        try:
            pair = (directory / "tls.key").read_bytes() + b"\n" + (directory / "tls.crt").read_bytes()
            digest = hashlib.sha256(pair).digest()
            if digest != self._digest:
                self._context, self._digest = _context(pair), digest
                log.info("serving a certificate", directory=str(directory))
            self._complaint = ""
        except OSError as error:  # an SSLError is one
            self._complain(str(error))

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            instead = "the one before" if self._digest else "a self-signed one"
            log.warning("no certificate to serve", error=complaint, instead=instead)
        self._complaint = complaint


def _self_signed() -> ssl.SSLContext:
    # Imported only when needed, because it takes megabytes of memory.
    from torchctl.runtime.selfsigned import self_signed

    return _context(self_signed())


def _context(pair: bytes) -> ssl.SSLContext:
    """Builds the TLS context. Raises SSLError if certificate and key are no pair or cannot be parsed."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    # `load_cert_chain` reads files only. This one is in memory, and its two halves were read together.
    with open(os.memfd_create("pair"), "wb", buffering=0) as file:
        file.write(pair)
        # With a password given, OpenSSL never asks for one on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password="")
    return context
