"""Sources of the Authorization header, and their rules for renewal."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torchctl.runtime.clock import Clock, SystemClock

__all__ = ["Credentials", "CredentialsError", "Issued", "PluginCredentials", "StaticCredentials", "TokenFile"]

TOKEN_FILE_PERIOD_S = 60.0
"""Seconds after which a token file is read again. A projected token is replaced long before it expires."""

SKEW_S = 60.0
"""Seconds before its expiry at which a credential is renewed."""

REFUSED_PERIOD_S = 2.0
"""Seconds for which a new credential is not renewed on a 401: if many requests fail at once, only one renews."""

FAILED_PERIOD_S = 2.0
"""Seconds for which a failure is kept, so that a plugin that fails is not started for every request."""


class CredentialsError(Exception):
    """The credentials could not be obtained: a file is missing, a plugin failed. Whoever set them up can fix it."""


class Credentials(Protocol):
    """A source of credentials."""

    @property
    def certificate(self) -> tuple[str, str] | None:
        """Returns the paths of a client certificate and its key; None if this source issues none."""
        ...

    async def authorization(self, force: bool = False) -> str | None:
        """Returns the value of the Authorization header, None for no header.

        Args:
            force: The server refused the last one.

        Raises:
            CredentialsError: The credentials cannot be obtained.
        """
        ...


@dataclass(frozen=True, slots=True)
class StaticCredentials:
    """A value that never changes; None for connections without one."""

    value: str | None = None
    certificate: tuple[str, str] | None = None

    async def authorization(self, force: bool = False) -> str | None:
        # After a 401 the same value would be refused again.
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
    """The credentials that a plugin issued.

    Attributes:
        authorization: The header's value; None if it issued a certificate instead.
        certificate: Paths of the certificate and its key.
        remaining_s: Seconds until it expires; None if unknown.
    """

    authorization: str | None
    certificate: tuple[str, str] | None = None
    remaining_s: float | None = None


class PluginCredentials:
    """Credentials that are costly to fetch: kept until shortly before expiry, fetched once for all waiting callers.

    A fetch belongs to none of the callers: it goes on when their deadlines are over, and must have a deadline itself.
    """

    def __init__(self, fetch: Callable[[], Awaitable[Issued]], first: Issued, clock: Clock | None = None) -> None:
        self._fetch = fetch
        self._clock = clock or SystemClock()
        self._fetching: asyncio.Task[None] | None = None
        self._failure = ""
        self._failed_at = float("-inf")
        self._keep(first)

    @property
    def certificate(self) -> tuple[str, str] | None:
        return self._issued.certificate

    async def authorization(self, force: bool = False) -> str | None:
        if self._is_due(force):
            if self._clock.monotonic() - self._failed_at >= FAILED_PERIOD_S:
                await self._renew()
            if self._failure:
                raise CredentialsError(self._failure)
        return self._issued.authorization

    async def _renew(self) -> None:
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.create_task(self._try())
        await asyncio.shield(self._fetching)

    async def _try(self) -> None:
        try:
            self._keep(await self._fetch())
        except CredentialsError as error:
            self._failure, self._failed_at = str(error), self._clock.monotonic()

    def _is_due(self, force: bool) -> bool:
        now = self._clock.monotonic()
        return now >= self._renew_at or (force and now - self._fetched_at >= REFUSED_PERIOD_S)

    def _keep(self, issued: Issued) -> None:
        now = self._clock.monotonic()
        self._issued, self._fetched_at = issued, now
        self._failure, self._failed_at = "", float("-inf")
        left_s = issued.remaining_s
        # Short-lived ones are renewed after nine tenths of their life, and never in a busy loop.
        self._renew_at = float("inf") if left_s is None else now + max(left_s - SKEW_S, left_s * 0.9, 1.0)
