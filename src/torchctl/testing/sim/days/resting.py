"""Tells when a cluster that should come to rest never will. Pure."""

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.phases import TERMINAL
from torchctl.runtime.clock import Clock
from torchctl.runtime.kinds import EVENT, LEASE
from torchctl.testing.fake.objects import Changed

__all__ = ["ENDLESS_S", "STILL_S", "Motion"]

STILL_S = 2 * 3600.0
"""Seconds without any change after which none is to come: all that waits looks again each hour at least."""
ENDLESS_S = 8 * 3600.0
"""Seconds without the end of a job after which none is to come: the longest job takes half of that, with restarts."""


class Motion:
    """Follows all changes but those of Leases and Events."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed_s = self._ended_s = clock.monotonic()

    @property
    def is_in_vain(self) -> bool:
        """Whether nothing happens any more, or for ever the same."""
        now_s = self._clock.monotonic()
        return now_s - self._changed_s > STILL_S or now_s - self._ended_s > ENDLESS_S

    def on_change(self, changed: Changed) -> None:
        if changed.served.kind in (EVENT, LEASE):
            return
        self._changed_s = self._clock.monotonic()
        before, after = ((body or {}).get("status", {}).get("phase") for body in (changed.old, changed.new))
        if changed.served.kind == TORCHRUN_JOB and after in TERMINAL and before != after:
            self._ended_s = self._changed_s
