"""FIFO: the queue whose first gang waits longest."""

from collections.abc import Sequence

from torchctl.controllers.coordinator.policies.policy import Candidate
from torchctl.controllers.coordinator.values import Turn

__all__ = ["Fifo"]


class Fifo:
    """Chooses by the first gangs alone; nothing is recorded."""

    def pick(self, candidates: Sequence[Candidate]) -> Candidate:
        return min(candidates, key=lambda given: (given.first_since_s, given.queue))

    def charge(self, chosen: Candidate, candidates: Sequence[Candidate]) -> Turn:
        return Turn()
