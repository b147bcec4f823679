"""What a server shows over TLS: the pair of a directory, as it is at the moment, or one of its own making."""

import hashlib
import os
import ssl
from pathlib import Path

import structlog

from torchctl.runtime.clock import Clock

__all__ = ["Certificates"]

CHECK_PERIOD_S = 10.0
"""How old what was read may get."""

log = structlog.get_logger("torchctl.certificates")


class Certificates:
    """The TLS of a server.

    The directory has `tls.crt` and `tls.key`, as a volume of a Secret of type kubernetes.io/tls has. While they cannot
    be used, the last pair that could stays; before there was any, a self-signed one serves.

    Args:
        directory: Where they are; None: self-signed.
        clock: For when to look again.
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
    # Here, for it takes megabytes that a process with a certificate, or without TLS, has better use for.
    from torchctl.runtime.selfsigned import self_signed

    return _context(self_signed())


def _context(pair: bytes) -> ssl.SSLContext:
    """Raises SSLError where certificate and key are not a pair, or none."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    # It reads files only; this one is in memory, and both halves of it are of one moment.
    with open(os.memfd_create("pair"), "wb", buffering=0) as file:
        file.write(pair)
        # A password is never asked for on a terminal.
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password="")
    return context
