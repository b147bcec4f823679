"""Leader election without I/O: keeps one replica's view of the Lease and decides its next action.

Two promises, each held by property tests against a model of several replicas, one store and a bad network:

**Never two.** A leader leads for `renew_deadline_s` from the moment it *sent* its last good renewal. Any other
replica leaves it alone for `lease_duration_s` from the moment it *learned* of that renewal, which is later.
Each measures on its own monotonic clock, so the offset between clocks is irrelevant, and their rates may
differ by less than `lease_duration_s / renew_deadline_s` (1.5 with the defaults). A replica's view may
be arbitrarily stale: every write of the Lease carries the resourceVersion that it was decided on, so the server
refuses a take-over based on an old reading. A request that commits long after its sender gave up is refused for
the same reason, or it sets a holder that does not lead, which only causes a delay.

**Never none for long.** A replica that watches takes over a dead leader's Lease when it expires, and a released
one as soon as the watch says so. A replica without a working watch polls every `retry_period_s`, jittered.

Time is always an argument: `now` in seconds of a monotonic clock, `wall` as the text that people read in the
Lease. `jitter` is a random number from 0 to 1.
"""

import math
from dataclasses import dataclass

from torchctl.runtime.kinds import Lease, LeaseSpec
from torchctl.runtime.settings import ELECTION_JITTER, ElectionSettings

__all__ = ["Action", "Elector", "Read", "Wait", "Write"]


@dataclass(frozen=True, slots=True)
class Read:
    """Get the Lease; report the result with `saw`, `missing` or `failed`."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write `spec` to the Lease, or create the Lease if `resource_version` is "".

    Report the result with `wrote`, `conflicted` (somebody else changed, created or deleted it) or `failed`.
    """

    spec: LeaseSpec
    resource_version: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing until `until`, or until the watch reports a change."""

    until: float


Action = Read | Write | Wait


class Elector:
    """One replica's view of one Lease. Not thread-safe."""

    def __init__(self, identity: str, settings: ElectionSettings) -> None:
        if not identity:
            raise ValueError("an elector needs an identity that no other process has")
        self.identity = identity
        self._settings = settings
        self._lease: Lease | None = None
        self._version = ""
        self._reserved_until = -math.inf
        self._leads_until = -math.inf
        self._renew_at = -math.inf
        self._try_at = -math.inf
        self._poll_at = -math.inf
        self._conflicts = 0
        self._read_first = True

    def __repr__(self) -> str:
        return f"<Elector {self.identity} sees {self.holder or 'nobody'}>"

    @property
    def holder(self) -> str:
        """The identity in the Lease as last seen, "" if there is none."""
        return (self._lease.spec.holder_identity or "") if self._lease else ""

    @property
    def leads_until(self) -> float:
        """The time at which the current leadership ends unless renewed; -inf if this replica does not lead."""
        return self._leads_until

    def leads(self, now: float) -> bool:
        return now < self._leads_until

    def next(self, now: float, wall: str, *, watching: bool) -> Action:
        """Returns the next action.

        Args:
            watching: A watch reports changes of the Lease. If False, the Lease is polled.
        """
        if self.leads(now):
            return self._keep(now, wall)
        wanted = self._read_first or self._may_claim(now)
        if wanted and now < self._try_at:
            return Wait(self._try_at)
        if self._read_first:
            return Read()
        if wanted:
            return self._claim(wall)
        if watching:
            return Wait(self._reserved_until)
        look_at = max(self._poll_at, self._try_at)
        return Read() if now >= look_at else Wait(min(look_at, self._reserved_until))

    def saw(self, lease: Lease, now: float, *, live: bool) -> None:
        """Notes the Lease as a read or the watch returned it.

        Args:
            live: It comes from a read and not from a watch, which may lag behind. Only a read may go back in
                versions, as happens after etcd was restored from a backup.
        """
        version = lease.metadata.resource_version
        if live:
            self._read_first = False
        if version == self._version or (not live and not _newer(version, self._version)):
            return
        self._lease, self._version = lease, version
        self._try_at = -math.inf
        self._reserved_until = now + self._duration(lease.spec) if self.holder else -math.inf
        if self.holder != self.identity:
            self._leads_until = -math.inf

    def missing(self, resource_version: str = "") -> None:
        """Notes that there is no Lease.

        Its last known holder may still believe that it leads, so the Lease stays reserved until it would have expired.
        The holder itself makes it anew at once: who has never seen it may take it.

        Args:
            resource_version: The version of the deletion if a watch reported it; "" if a read found nothing.
        """
        if resource_version:
            if not _newer(resource_version, self._version):
                return
            self._version = resource_version
        else:
            self._read_first = False
        self._lease = None
        self._renew_at = -math.inf

    def polled(self, now: float, jitter: float) -> None:
        """Notes that a read was answered: without a watch the next poll comes after the retry period."""
        self._poll_at = now + self._retry_s(jitter)

    def wrote(self, lease: Lease, sent_at: float, now: float) -> None:
        """Notes the answer to a `Write` that was sent at `sent_at`."""
        self._conflicts = 0
        self.saw(lease, now, live=False)
        if self.holder == self.identity:
            self._leads_until = sent_at + self._settings.renew_deadline_s
            self._renew_at = sent_at + self._settings.retry_period_s

    def conflicted(self, sent_at: float, jitter: float) -> None:
        """Notes that a `Write` was refused because the Lease has changed since it was read."""
        self._read_first = True
        self._try_at = sent_at + self._retry_s(jitter) if self._conflicts else -math.inf
        self._conflicts += 1

    def failed(self, sent_at: float, jitter: float) -> None:
        """Notes that a `Read` or `Write` failed without an answer about the Lease."""
        retry_s = self._settings.retry_period_s
        self._try_at = sent_at + (retry_s if self.leads(sent_at) else self._retry_s(jitter))

    def resign(self) -> None:
        """Ends the leadership locally. The Lease stays unchanged, and is read before it is written again."""
        self._leads_until = -math.inf
        self._read_first = True

    def release(self, wall: str) -> Write | None:
        """Ends the leadership and returns the write that frees the Lease; None if we do not hold it."""
        self.resign()
        if self._lease is None or self.holder != self.identity:
            return None
        # The same form as client-go: no holder, a duration of one second.
        spec = self._spec(wall, holder="", duration_s=1, acquired=wall)
        return Write(spec, self._lease.metadata.resource_version)

    def _keep(self, now: float, wall: str) -> Action:
        act_at = self._try_at if self._read_first else max(self._renew_at, self._try_at)
        if now < act_at:
            return Wait(min(act_at, self._leads_until))
        return Read() if self._read_first else self._renewal(wall)

    def _may_claim(self, now: float) -> bool:
        return self.holder == self.identity or now >= self._reserved_until

    def _claim(self, wall: str) -> Write:
        if self._lease is None:
            return Write(self._spec(wall, acquired=wall), "")
        if self.holder == self.identity:
            return self._renewal(wall)
        spec = self._spec(wall, acquired=wall, transitions=(self._lease.spec.lease_transitions or 0) + 1)
        return Write(spec, self._lease.metadata.resource_version)

    def _renewal(self, wall: str) -> Write:
        if self._lease is None:
            return self._claim(wall)
        spec = self._spec(wall, acquired=self._lease.spec.acquire_time or wall)
        return Write(spec, self._lease.metadata.resource_version)

    def _spec(
        self,
        wall: str,
        *,
        acquired: str,
        holder: str | None = None,
        duration_s: int | None = None,
        transitions: int | None = None,
    ) -> LeaseSpec:
        known = self._lease.spec.lease_transitions if self._lease else 0
        return LeaseSpec(
            holder_identity=self.identity if holder is None else holder,
            lease_duration_seconds=duration_s or math.ceil(self._settings.lease_duration_s),
            acquire_time=acquired,
            renew_time=wall,
            lease_transitions=transitions if transitions is not None else (known or 0),
        )

    def _duration(self, spec: LeaseSpec) -> float:
        """Returns the duration in the Lease, not in our settings: the holder's own deadline is shorter than it."""
        return float(spec.lease_duration_seconds or self._settings.lease_duration_s)

    def _retry_s(self, jitter: float) -> float:
        return self._settings.retry_period_s * (1 + ELECTION_JITTER * jitter)


def _newer(version: str, known: str) -> bool:
    """Tells if `version` is newer than `known`. Versions that are no numbers count in the order of arrival."""
    if version.isdecimal() and known.isdecimal():
        return int(version) > int(known)
    return version != known
