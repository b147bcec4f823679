"""Runs one decision from the observed objects to the records. Blocking and pure: the reconciler has a thread for it."""

from dataclasses import dataclass
from datetime import datetime
from threading import Lock

from torchctl.api.job import TorchrunJob
from torchctl.api.jobstatus import Admission
from torchctl.controllers.coordinator.core import decide
from torchctl.controllers.coordinator.decision import Decision
from torchctl.controllers.coordinator.observed import Observed
from torchctl.controllers.coordinator.plan import state_of
from torchctl.controllers.coordinator.readings import Readings
from torchctl.controllers.coordinator.records import records
from torchctl.controllers.coordinator.standing import Loss, Standing, losses, standing
from torchctl.controllers.coordinator.values import Unreadable
from torchctl.controllers.settings import CoordinatorSettings

__all__ = ["Decided", "Deciding"]


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision, what to write of it, which jobs lose their place by it, and how the queues stood before.

    Args:
        newly_unreadable: Jobs whose templates cannot be read, and that were not among these in the last decision.
        pending: Whether a job waits, or one that was let in is not placed yet: time alone may change the next decision.
    """

    decision: Decision
    records: list[tuple[TorchrunJob, Admission]]
    losses: dict[str, Loss]
    standing: Standing
    newly_unreadable: tuple[Unreadable, ...]
    pending: bool


class Deciding:
    """Decides, and remembers between decisions only what it has read of objects that are still there, and logged."""

    def __init__(self, settings: CoordinatorSettings) -> None:
        self._settings = settings
        self._readings = Readings()
        self._unreadable: frozenset[Unreadable] = frozenset()
        # A reconcile that is cancelled leaves its thread behind for a moment, and the next one may begin meanwhile.
        self._lock = Lock()

    def decide(self, observed: Observed, now: datetime, *, words: bool) -> Decided:
        """Decides from immutable objects, so that the event loop may go on with newer ones.

        Args:
            words: Whether place and estimate are due to be written, too.
        """
        with self._lock:
            state = state_of(observed, self._settings, now, self._readings)
            known, self._unreadable = self._unreadable, frozenset(state.unreadable)
        decision = decide(state)
        written = records(decision, observed.jobs, now, self._settings, words=words)
        pending = bool(decision.told) or not all(held.has_run for held in state.holdings)
        newly = tuple(gang for gang in state.unreadable if gang not in known)
        return Decided(decision, written, losses(state, decision), standing(state), newly, pending)
