"""Whose turn it is, of all queues: a cohort with a policy of its own takes its turns as one queue."""

from collections.abc import Iterable, Mapping, Sequence

from torchctl.controllers.coordinator.policies import Candidate, Policy, policy
from torchctl.controllers.coordinator.values import Queue, Start, Turn
from torchctl.controllers.settings import CoordinatorSettings

__all__ = ["Turns"]


class Turns:
    """Chooses the next queue by the policies, of the cluster and of single cohorts.

    The weight of a cohort with its own policy is that of its queues that have something to start.
    """

    def __init__(self, settings: CoordinatorSettings, queues: Mapping[str, Queue], starts: Iterable[Start]) -> None:
        own = settings.cohort_policies
        self._group = {key: queue.cohort for key, queue in queues.items() if queue.cohort in own}
        known = tuple(starts)
        grouped = (start._replace(queue=self._named(start.queue)) for start in known) if self._group else known
        self._all: Policy = policy(settings.policy, grouped)
        inner = tuple(start._replace(turn=start.cohort_turn) for start in known if start.queue in self._group)
        self._own: dict[str, Policy] = {
            cohort: policy(own[cohort], (start for start in inner if self._group[start.queue] == cohort))
            for cohort in set(self._group.values())
        }

    def pick(self, candidates: Sequence[Candidate]) -> Candidate:
        """Returns the queue whose turn it is, of at least one."""
        if not self._own:
            return self._all.pick(candidates)
        chosen = self._all.pick(self._grouped(candidates))
        members = self._members(candidates, chosen.queue)
        cohort = self._group.get(members[0].queue)
        return members[0] if cohort is None else self._own[cohort].pick(members)

    def charge(self, chosen: Candidate, candidates: Sequence[Candidate]) -> tuple[Turn, Turn]:
        """Counts a start; returns the turns to record: among all, and within the cohort."""
        cohort = self._group.get(chosen.queue)
        if not self._own:
            return self._all.charge(chosen, candidates), Turn()
        grouped = self._grouped(candidates)
        name = self._named(chosen.queue)
        turn = self._all.charge(next(given for given in grouped if given.queue == name), grouped)
        if cohort is None:
            return turn, Turn()
        return turn, self._own[cohort].charge(chosen, self._members(candidates, name))

    def _named(self, queue: str) -> str:
        """Returns the name under which a queue takes its turns. No key of a queue begins with a colon."""
        cohort = self._group.get(queue)
        return queue if cohort is None else f":{cohort}"

    def _members(self, candidates: Sequence[Candidate], name: str) -> list[Candidate]:
        return [given for given in candidates if self._named(given.queue) == name]

    def _grouped(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        found: dict[str, Candidate] = {}
        for given in candidates:
            name = self._named(given.queue)
            there = found.get(name)
            found[name] = given._replace(queue=name) if there is None else _merged(there, given)
        return list(found.values())


def _merged(one: Candidate, other: Candidate) -> Candidate:
    return Candidate(
        one.queue,
        one.weight + other.weight,
        min(one.waits_since_s, other.waits_since_s),
        max(one.priority, other.priority),
        min(one.first_since_s, other.first_since_s),
    )
