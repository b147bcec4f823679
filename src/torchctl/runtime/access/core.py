"""Remembers the answers on bearer tokens and decides when to ask the API server again. Pure.

Tokens are stored as hashes. `Ledger.ask` returns an answer that is still valid, or the next step:

    REVIEW  ask the API server, and pass the result to `settle`
    WAIT    a review of this token is under way; ask again when it is settled

A client that was let in before is a reader, all others are strangers. Strangers share a small number of concurrent
reviews and of reviews per second, because reviews use the request budget of the operator's own account. Readers are
exempt from these limits, so that neither a flood of wrong tokens nor an outage that strangers cause shuts them out.
"""

import hashlib
import re
from collections import OrderedDict, deque
from enum import Enum, auto

__all__ = ["Access", "Ledger", "Step", "bearer", "digest"]

ALLOWED_S = 60.0
"""Seconds that ALLOWED stays valid. A right that is revoked ends within this time."""

REFUSED_S = 10.0
"""Seconds that a refusal stays valid. A right that is granted takes effect within this time."""

UNAVAILABLE_S = 1.0
"""Seconds without reviews of strangers after a review failed."""

READERS = 128
REFUSED = 1024
"""The number of answers of each kind that are kept. Beyond it, the oldest one is dropped."""

STRANGERS_AT_ONCE = 4
STRANGERS_PER_S = 10

_BEARER = re.compile(r"\s*bearer +([\x21-\x7e]+)\s*", re.IGNORECASE)


class Access(Enum):
    """The decision about a request; the value is the HTTP status."""

    ALLOWED = 200
    UNAUTHENTICATED = 401
    FORBIDDEN = 403
    BUSY = 429
    UNAVAILABLE = 503


class Step(Enum):
    """The step that must come before an answer."""

    REVIEW = auto()
    WAIT = auto()


def bearer(authorization: str) -> str:
    """Returns the token of an Authorization header, empty if it has none."""
    found = _BEARER.fullmatch(authorization)
    return found[1] if found else ""


def digest(token: str) -> bytes:
    """Returns the hash by which a token is stored; the token cannot be recovered from it."""
    return hashlib.sha256(token.encode()).digest()


class Ledger:
    """Recent answers and the reviews under way. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._readers: OrderedDict[bytes, float] = OrderedDict()
        self._refused: OrderedDict[bytes, tuple[Access, float]] = OrderedDict()
        self._under_review: set[bytes] = set()
        self._strangers: set[bytes] = set()
        self._begun: deque[float] = deque(maxlen=STRANGERS_PER_S)
        self._unavailable_until = float("-inf")

    def __repr__(self) -> str:
        return f"<Ledger of {len(self._readers)} readers, {len(self._refused)} refused>"

    def ask(self, token: bytes, now: float) -> Access | Step:
        """Returns the answer about a token, or the step that leads to one."""
        if now < self._readers.get(token, now):
            return Access.ALLOWED
        access, until = self._refused.get(token, (Access.UNAUTHENTICATED, now))
        if now < until:
            return access
        if token in self._under_review:
            return Step.WAIT
        return self._begin(token, now)

    def settle(self, token: bytes, access: Access, now: float) -> None:
        """Records the result of the review that `ask` demanded. UNAVAILABLE: the review failed."""
        self._under_review.discard(token)
        self._strangers.discard(token)
        if access is Access.UNAVAILABLE:
            self._unavailable_until = now + UNAVAILABLE_S
            return
        self._readers.pop(token, None)
        self._refused.pop(token, None)
        if access is Access.ALLOWED:
            self._readers[token] = now + ALLOWED_S
        else:
            self._refused[token] = access, now + REFUSED_S
        if len(self._readers) > READERS:
            self._readers.popitem(last=False)
        if len(self._refused) > REFUSED:
            self._refused.popitem(last=False)

    def _begin(self, token: bytes, now: float) -> Access | Step:
        if token not in self._readers:
            if now < self._unavailable_until:
                return Access.UNAVAILABLE
            if not self._has_room(now):
                return Access.BUSY
            self._strangers.add(token)
            self._begun.append(now)
        self._under_review.add(token)
        return Step.REVIEW

    def _has_room(self, now: float) -> bool:
        hurried = len(self._begun) == STRANGERS_PER_S and now - self._begun[0] < 1.0
        return len(self._strangers) < STRANGERS_AT_ONCE and not hurried
