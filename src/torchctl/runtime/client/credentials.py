"""Where the Authorization header comes from, and when it is fetched anew."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torchctl.runtime.clock import Clock, SystemClock

__all__ = ["Credentials", "CredentialsError", "Issued", "PluginCredentials", "StaticCredentials", "TokenFile"]

TOKEN_FILE_PERIOD_S = 60.0
"""How old a token read from a file may get. A projected token is replaced long before it expires."""

SKEW_S = 60.0
"""How long before its end a credential is fetched anew."""

REFUSED_PERIOD_S = 2.0
"""A credential this young is not fetched again because of a 401: many requests fail at once, one fetches."""


class CredentialsError(Exception):
    """The credentials could not be obtained: a file is missing, a plugin failed. Whoever set them up can mend it."""


class Credentials(Protocol):
    """A source of credentials."""

    @property
    def certificate(self) -> tuple[str, str] | None:
        """Paths of a client certificate and its key, for sources that issue those."""
        ...

    async def authorization(self, force: bool = False) -> str | None:
        """The value of the Authorization header, None for none.

        Args:
            force: The server refused the last one.

        Raises:
            CredentialsError: There is none to be had.
        """
        ...


@dataclass(frozen=True, slots=True)
class StaticCredentials:
    """A value that never changes; None for connections without one."""

    value: str | None = None
    certificate: tuple[str, str] | None = None

    async def authorization(self, force: bool = False) -> str | None:
        # Offering the same again after a 401 is of no use.
        return None if force else self.value


class TokenFile:
    """A bearer token in a file that somebody else renews, as the kubelet does for service accounts."""

    certificate: tuple[str, str] | None = None

    def __init__(self, path: str, clock: Clock | None = None) -> None:
        self._path = Path(path)
        self._clock = clock or SystemClock()
        self._value = ""
        self._read_at = float("-inf")

    def __repr__(self) -> str:
        return f"<TokenFile {self._path}>"

    async def authorization(self, force: bool = False) -> str | None:
        now = self._clock.monotonic()
        if force or now - self._read_at >= TOKEN_FILE_PERIOD_S:
            self._value, self._read_at = self._read(), now
        return self._value

    def _read(self) -> str:
        try:
            token = self._path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            if self._value:
                return self._value
            raise CredentialsError(f"the token file cannot be read: {error}") from error
        if not token and not self._value:
            raise CredentialsError(f"the token file {self._path} is empty")
        return f"Bearer {token}" if token else self._value


@dataclass(frozen=True, slots=True)
class Issued:
    """What a plugin gave.

    Attributes:
        authorization: The header's value; None where it gave a certificate.
        certificate: Paths of the certificate and its key.
        remaining_s: How long it is good for; None where it does not say.
    """

    authorization: str | None
    certificate: tuple[str, str] | None = None
    remaining_s: float | None = None


class PluginCredentials:
    """Credentials that cost something to fetch: kept until shortly before they end, fetched once for all who wait."""

    def __init__(self, fetch: Callable[[], Awaitable[Issued]], first: Issued, clock: Clock | None = None) -> None:
        self._fetch = fetch
        self._clock = clock or SystemClock()
        self._lock = asyncio.Lock()
        self._keep(first)

    @property
    def certificate(self) -> tuple[str, str] | None:
        return self._issued.certificate

    async def authorization(self, force: bool = False) -> str | None:
        if self._is_due(force):
            async with self._lock:
                if self._is_due(force):
                    self._keep(await self._fetch())
        return self._issued.authorization

    def _is_due(self, force: bool) -> bool:
        now = self._clock.monotonic()
        return now >= self._renew_at or (force and now - self._fetched_at >= REFUSED_PERIOD_S)

    def _keep(self, issued: Issued) -> None:
        now = self._clock.monotonic()
        self._issued, self._fetched_at = issued, now
        left_s = issued.remaining_s
        # Short-lived ones are renewed after nine tenths of their life, and never in a busy loop.
        self._renew_at = float("inf") if left_s is None else now + max(left_s - SKEW_S, left_s * 0.9, 1.0)
