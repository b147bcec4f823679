"""Weighted round robin: in each round, a queue starts as many jobs in a row as its weight says.

The recorded clock is the round, the position the starts of the queue in it. Queues follow each other by name. One that
has nothing to start gives its turns away, and finds those of the running round when it is back.
"""

from collections.abc import Sequence

from torchctl.controllers.coordinator.policies.policy import Candidate, History
from torchctl.controllers.coordinator.values import Turn

__all__ = ["WeightedRoundRobin"]


class WeightedRoundRobin:
    """Chooses the first queue that has turns left in this round."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._round = history.clock
        self._used: dict[str, int] = {}

    def pick(self, candidates: Sequence[Candidate]) -> Candidate:
        left = [given for given in candidates if self._in_round(given.queue) < given.weight]
        return min(left or candidates, key=lambda given: given.queue)

    def charge(self, chosen: Candidate, candidates: Sequence[Candidate]) -> Turn:
        if all(self._in_round(given.queue) >= given.weight for given in candidates):
            self._round += 1
            self._used = {}
        used = self._used[chosen.queue] = self._in_round(chosen.queue) + 1
        return Turn(self._round, used)

    def _in_round(self, queue: str) -> int:
        if queue in self._used:
            return self._used[queue]
        last = self._history.last(queue)
        return last.turn.position if last is not None and last.turn.clock == self._round else 0
