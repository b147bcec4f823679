"""Smooth weighted round robin: each queue starts jobs in proportion to its weight, spread evenly over time.

The rule is nginx's: at each turn every queue with work gains its weight, the one with most is chosen and pays the sum
of all weights. Weights 5, 1, 1 give a a b a c a a.

What a queue has gained follows from two recorded numbers. The clock advances by 1/(sum of the weights) with each start;
a queue's position advances by 1/(its weight) with each of its own. What it has is weight * (clock - position). A queue
that had nothing to start is moved up to where the clock was when it got work, so idling earns nothing; what a queue has
had in advance it still owes after a pause.
"""

from collections.abc import Sequence

from torchctl.controllers.coordinator.policies.policy import Candidate, History
from torchctl.controllers.coordinator.values import Turn

__all__ = ["MOST_OWED", "SmoothWeightedRoundRobin"]

_UNIT = 10**11
"""Steps of the clock in one turn of a single queue of weight 1: whole numbers, because they are written to status.

Status takes numbers up to 2**62: 46 million such turns, which is 12 years of ten thousand starts a day.
"""

_ROUNDING = _UNIT // 10**5
"""Steps that may come from rounding: queues that are owed equally but for that are equal, and their names decide."""

MOST_OWED = 8
"""Turns that a queue can be owed: a queue that was held up for days does not hold up the others for days."""


class SmoothWeightedRoundRobin:
    """Chooses the queue to which most turns are owed."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._clock = history.clock
        self._positions: dict[str, int] = {}

    def pick(self, candidates: Sequence[Candidate]) -> Candidate:
        clock = self._clock + _UNIT // sum(candidate.weight for candidate in candidates)
        owed = [given.weight * (clock - self._position(given)) for given in candidates]
        enough = max(owed) - _ROUNDING
        equal = (given for given, steps in zip(candidates, owed, strict=True) if steps >= enough)
        return min(equal, key=lambda given: given.queue)

    def charge(self, chosen: Candidate, candidates: Sequence[Candidate]) -> Turn:
        position = self._position(chosen) + _UNIT // chosen.weight
        self._positions[chosen.queue] = position
        self._clock += _UNIT // sum(candidate.weight for candidate in candidates)
        return Turn(self._clock, position)

    def _position(self, candidate: Candidate) -> int:
        found = self._positions.get(candidate.queue)
        if found is None:
            found = self._positions[candidate.queue] = self._recorded(candidate)
        return found

    def _recorded(self, candidate: Candidate) -> int:
        earliest = self._clock - MOST_OWED * _UNIT // candidate.weight
        last = self._history.last(candidate.queue)
        if last is None:
            return max(earliest, self._history.clock_at(candidate.waits_since_s))
        if candidate.waits_since_s <= last.at_s:
            return max(earliest, last.turn.position)
        return max(earliest, last.turn.position, self._history.clock_at(candidate.waits_since_s))
