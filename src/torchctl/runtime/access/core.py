"""What is known of who asks, and when to ask the API server. Pure.

A token is known by its hash. `Ledger.ask` gives a verdict that is still good, or says what to do:

    REVIEW  ask the API server, and `settle` what came of it
    WAIT    somebody asks about this token right now; ask again once that is settled

Whoever was let in before is a reader, the others are strangers. Strangers share a few reviews at once and a few in
each second, however many knock: the reviews are requests of the operator's own account, which has its work to do.
Readers share nothing with them, so that a flood of wrong tokens does not shut them out, nor does an outage that
strangers bring about.
"""

import hashlib
import re
from collections import OrderedDict, deque
from enum import Enum, auto

__all__ = ["Ledger", "Step", "Verdict", "bearer", "digest"]

ALLOWED_S = 60.0
"""How long somebody is let in without being asked about again: a right or an account that is gone ends within it."""

REFUSED_S = 10.0
"""How long a refusal stands: a right that was just given helps within it."""

UNAVAILABLE_S = 1.0
"""How long no stranger is asked about after a review that failed."""

READERS = 128
REFUSED = 1024
"""How many of each are remembered. Beyond, the one that was judged longest ago is forgotten."""

STRANGERS_AT_ONCE = 4
STRANGERS_PER_S = 10

_BEARER = re.compile(r"\s*bearer +([\x21-\x7e]+)\s*", re.IGNORECASE)


class Verdict(Enum):
    """What becomes of a request; the value is the HTTP status."""

    ALLOWED = 200
    UNAUTHENTICATED = 401
    FORBIDDEN = 403
    BUSY = 429
    UNAVAILABLE = 503


class Step(Enum):
    """What has to happen before there is a verdict."""

    REVIEW = auto()
    WAIT = auto()


def bearer(authorization: str) -> str:
    """The token of an Authorization header, empty where there is none."""
    found = _BEARER.fullmatch(authorization)
    return found[1] if found else ""


def digest(token: str) -> bytes:
    """By what a token is known here; it leads to no token."""
    return hashlib.sha256(token.encode()).digest()


class Ledger:
    """The verdicts of a short while, and the reviews under way. Times are of one monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._readers: OrderedDict[bytes, float] = OrderedDict()
        self._refused: OrderedDict[bytes, tuple[Verdict, float]] = OrderedDict()
        self._under_review: set[bytes] = set()
        self._strangers: set[bytes] = set()
        self._begun: deque[float] = deque(maxlen=STRANGERS_PER_S)
        self._unavailable_until = float("-inf")

    def __repr__(self) -> str:
        return f"<Ledger of {len(self._readers)} readers, {len(self._refused)} refused>"

    def ask(self, token: bytes, now: float) -> Verdict | Step:
        """The verdict on a token, or what to do for one."""
        if now < self._readers.get(token, now):
            return Verdict.ALLOWED
        verdict, until = self._refused.get(token, (Verdict.UNAUTHENTICATED, now))
        if now < until:
            return verdict
        if token in self._under_review:
            return Step.WAIT
        return self._begin(token, now)

    def settle(self, token: bytes, verdict: Verdict, now: float) -> None:
        """Ends the review that `ask` demanded. UNAVAILABLE: nothing was learnt."""
        self._under_review.discard(token)
        self._strangers.discard(token)
        if verdict is Verdict.UNAVAILABLE:
            self._unavailable_until = now + UNAVAILABLE_S
            return
        self._readers.pop(token, None)
        self._refused.pop(token, None)
        if verdict is Verdict.ALLOWED:
            self._readers[token] = now + ALLOWED_S
        else:
            self._refused[token] = verdict, now + REFUSED_S
        if len(self._readers) > READERS:
            self._readers.popitem(last=False)
        if len(self._refused) > REFUSED:
            self._refused.popitem(last=False)

    def _begin(self, token: bytes, now: float) -> Verdict | Step:
        if token not in self._readers:
            if now < self._unavailable_until:
                return Verdict.UNAVAILABLE
            if not self._has_room(now):
                return Verdict.BUSY
            self._strangers.add(token)
            self._begun.append(now)
        self._under_review.add(token)
        return Step.REVIEW

    def _has_room(self, now: float) -> bool:
        hurried = len(self._begun) == STRANGERS_PER_S and now - self._begun[0] < 1.0
        return len(self._strangers) < STRANGERS_AT_ONCE and not hurried
