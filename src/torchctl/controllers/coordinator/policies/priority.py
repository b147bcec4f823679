"""Priority: the queue whose first gang has the highest priority, of equal ones the gang that waits longest."""

from collections.abc import Sequence

from torchctl.controllers.coordinator.policies.policy import Candidate
from torchctl.controllers.coordinator.values import Turn

__all__ = ["Priority"]


class Priority:
    """Chooses by the first gangs alone; nothing is recorded."""

    def pick(self, candidates: Sequence[Candidate]) -> Candidate:
        return min(candidates, key=lambda given: (-given.priority, given.first_since_s, given.queue))

    def charge(self, chosen: Candidate, candidates: Sequence[Candidate]) -> Turn:
        return Turn()
