"""What queues, their cohorts and namespaces allow their gangs to hold together."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from torchctl.controllers.coordinator.matching import holds
from torchctl.controllers.coordinator.values import Demand, Holding, Limits, NamespaceQuota, Queue, Waiting

__all__ = ["RESOURCES", "Ledger", "QuotaShortage", "Scope"]

RESOURCES = Demand._fields


class Scope(StrEnum):
    """Whose bound it is, or why nothing of it is given away."""

    NODES_PER_JOB = "maxNodes"
    QUEUE = "queue"
    COHORT = "cohort"
    NAMESPACE = "namespace"
    KEPT = "kept"
    UNKNOWN = "unknown"
    UNNAMED = "unnamed"


class QuotaShortage(NamedTuple):
    """A bound that keeps a gang out.

    Args:
        scope: Whose bound it is, and `name` which one's.
        resource: What it counts.
        asked: What the gang takes of it.
        left: What there is.
        never: Whether the gang takes more than the bound itself, or cannot be counted.
        containers: Those that do not name the resource, which the bound demands.
    """

    scope: Scope
    name: str
    resource: str
    asked: int
    left: int
    never: bool = False
    containers: str = ""


class Ledger:
    """Books what gangs hold against every bound. It only ever gets fuller while gangs are let in.

    In a cohort, a queue may hold more than its own quota, up to `borrowing`, as long as all queues of the cohort
    together hold no more than their quotas together. A resource for which a queue has no quota is not bounded for it
    and not lent by it.
    """

    def __init__(
        self,
        queues: Iterable[Queue],
        quotas: Iterable[NamespaceQuota],
        holdings: Iterable[Holding],
        now_s: float = 0.0,
    ) -> None:
        self.queues: Mapping[str, Queue] = {queue.key: queue for queue in queues}
        self._used: dict[str, list[int]] = {key: [0] * len(RESOURCES) for key in self.queues}
        self._cohorts: dict[str, list[Queue]] = {}
        for queue in self.queues.values():
            if queue.cohort:
                self._cohorts.setdefault(queue.cohort, []).append(queue)
        self._owned = {name: _owned(members) for name, members in self._cohorts.items()}
        self._lent_to: dict[str, list[int]] = {name: [0] * len(RESOURCES) for name in self._cohorts}
        self._namespaces: dict[str, list[tuple[NamespaceQuota, dict[str, int]]]] = {}
        for quota in quotas:
            self._namespaces.setdefault(quota.namespace, []).append((quota, dict(quota.left)))
        self._kept: dict[str, str] = {}
        self._kept_namespaces: dict[str, str] = {}
        self._not_lending: dict[str, str] = {}
        self._promised: dict[str, tuple[Waiting, float | None]] = {}
        self._leaving: dict[str, list[Holding]] = {}
        self._now_s = now_s
        for holding in holdings:
            self.book(holding)
            self._leaving.setdefault(holding.leaving_for, []).append(holding)
            self._book_namespace(holding, holding.pending_namespace_demand)
        for queue in self.queues.values():
            if queue.unknown:
                self._book(queue, self._unknown(queue))

    def used(self, queue: str) -> Demand:
        """Returns what the gangs of a queue hold."""
        return Demand(*self._used[queue])

    def cohorts(self) -> Iterator[tuple[str, Demand, Limits]]:
        """Returns each cohort, what its queues hold together, and what they own; None where none has a quota."""
        for name, members in self._cohorts.items():
            bounds = zip(*(queue.quota for queue in members), strict=True)
            owned = (
                None if set(column) == {None} else of for column, of in zip(bounds, self._owned[name], strict=True)
            )
            yield name, Demand(*self._lent_to[name]), Limits(*owned)

    def book(self, gang: Holding | Waiting, sign: int = 1) -> None:
        """Books a gang in its queue and cohort; with sign -1 the other way round."""
        queue = self.queues.get(gang.queue)
        if queue is not None:
            self._book(queue, gang.demand, sign)

    def take(self, gang: Waiting) -> None:
        """Books a gang that is let in."""
        self._promised.pop(gang.key, None)
        self.book(gang)
        self._book_namespace(gang, gang.namespace_demand)

    def keep(self, gang: Waiting) -> None:
        """Keeps what a gang needs of its quotas: its queue lets nobody else in, and its cohort lends nothing more.

        Where the ResourceQuota of the namespace is short, no other gang of the namespace is let in. Nothing is kept
        for a gang that has to borrow what other queues use: its own queue would wait for them.
        """
        shortage = self._shortage(gang)
        if shortage is None or shortage.never:
            return
        if shortage.scope is Scope.NAMESPACE:
            self._kept_namespaces.setdefault(gang.namespace, gang.key)
        elif gang.queue not in self._kept and not self._waits_for_owners(gang):
            self._kept[gang.queue] = gang.key
            cohort = self.queues[gang.queue].cohort
            if cohort and self.within_own(gang):
                self._not_lending.setdefault(cohort, gang.key)

    def promise(self, gang: Waiting, until_s: float | None) -> None:
        """Lets nobody have the quota of a gang that lacks only room, and has that at the latest `until_s`.

        As with room, others may have it if they end before; None: nobody knows when that is. So may higher priorities
        of the same queue, and another queue may take back what it owns.
        """
        self._promised[gang.key] = gang, until_s

    def keepers(self) -> frozenset[str]:
        """Returns the gangs that quota is kept for."""
        return frozenset((*self._kept.values(), *self._kept_namespaces.values(), *self._not_lending.values()))

    def shortage(self, gang: Waiting) -> QuotaShortage | None:
        """Returns the bound that keeps a gang out now; None if no quota does."""
        found = self._shortage(gang)
        if found is not None or not self._promised:
            return found
        takes_back = self.within_own(gang)
        others = [
            (other, other.queue == gang.queue or not takes_back)
            for other, until_s in self._promised.values()
            if self._delays(gang, other, until_s)
        ]
        if not self._is_short_beside(gang, others):
            return None
        ends = (at for at in range(len(others)) if self._is_short_beside(gang, others[: at + 1]))
        return QuotaShortage(Scope.KEPT, others[next(ends)][0].key, "", 0, 0)

    def _is_short_beside(self, gang: Waiting, others: Sequence[tuple[Waiting, bool]]) -> bool:
        self._book_promised(others)
        short = self._shortage(gang)
        self._book_promised(others, -1)
        return short is not None

    def _delays(self, gang: Waiting, other: Waiting, until_s: float | None) -> bool:
        """Whether the gang may still hold quota when the room of another one is there, and does not go before it."""
        if other.key == gang.key or (other.queue == gang.queue and other.priority < gang.priority):
            return False
        ends_before = gang.lasts_s is not None and until_s is not None and self._now_s + gang.lasts_s <= until_s
        return not ends_before

    def _book_promised(self, others: Iterable[tuple[Waiting, bool]], sign: int = 1) -> None:
        """Books what is promised to others, instead of what leaves for them; in their queues only those with True."""
        for other, in_queue in others:
            if in_queue:
                self.book(other, sign)
                for leaving in self._leaving.get(other.key, ()):
                    self.book(leaving, -sign)
            self._book_namespace(other, other.namespace_demand, sign)

    def _shortage(self, gang: Waiting) -> QuotaShortage | None:
        never = self.never(gang)
        if never is not None:
            return never
        queue, used = self.queues[gang.queue], self._used[gang.queue]
        for keeper in (self._kept.get(gang.queue), self._kept_namespaces.get(gang.namespace)):
            if keeper is not None and keeper != gang.key and gang.key not in self._promised:
                return QuotaShortage(Scope.KEPT, keeper, "", 0, 0)
        for at, asked in enumerate(gang.demand):
            bound = queue.quota[at]
            if not asked or bound is None:
                continue
            limit = self._limit(queue, at)
            if limit is not None and used[at] + asked > limit:
                return QuotaShortage(Scope.QUEUE, queue.key, RESOURCES[at], asked, max(0, limit - used[at]))
            if not queue.cohort:
                continue
            owned, lent = self._owned[queue.cohort][at], self._lent_to[queue.cohort][at]
            if lent + asked > owned:
                return QuotaShortage(Scope.COHORT, queue.cohort, RESOURCES[at], asked, max(0, owned - lent))
            keeper = self._not_lending.get(queue.cohort)
            if used[at] + asked > bound and keeper is not None and keeper != gang.key:
                return QuotaShortage(Scope.KEPT, keeper, RESOURCES[at], asked, max(0, bound - used[at]))
        return self._namespace_shortage(gang)

    def never(self, gang: Waiting) -> QuotaShortage | None:
        """Returns the bound that keeps the gang out whoever else ends: one below the gang, or one of unknown use."""
        queue = self.queues[gang.queue]
        if queue.max_nodes is not None and gang.pods > queue.max_nodes:
            return QuotaShortage(Scope.NODES_PER_JOB, queue.key, "nodes", gang.pods, queue.max_nodes, never=True)
        for at, asked in enumerate(gang.demand):
            limit = self._limit(queue, at)
            if queue.unknown and asked and queue.quota[at] is not None and RESOURCES[at] != "jobs":
                return QuotaShortage(Scope.UNKNOWN, queue.unknown[0], RESOURCES[at], asked, 0)
            if limit is not None and asked > limit:
                return QuotaShortage(Scope.QUEUE, queue.key, RESOURCES[at], asked, limit, never=True)
            if queue.cohort and queue.quota[at] is not None and asked > self._owned[queue.cohort][at]:
                owned = self._owned[queue.cohort][at]
                return QuotaShortage(Scope.COHORT, queue.cohort, RESOURCES[at], asked, owned, never=True)
        for quota, _ in self._governing(gang):
            for resource, containers in gang.unnamed:
                if resource in quota.hard:
                    return QuotaShortage(Scope.UNNAMED, quota.name, resource, 0, 0, never=True, containers=containers)
            for resource, asked in gang.namespace_demand:
                if asked > quota.hard.get(resource, asked):
                    hard = quota.hard[resource]
                    return QuotaShortage(Scope.NAMESPACE, quota.name, resource, asked, hard, never=True)
        return None

    def within_own(self, gang: Waiting) -> bool:
        """Whether the gang would stay within what its queue owns. A queue without a quota owns nothing."""
        queue, used = self.queues[gang.queue], self._used[gang.queue]
        bounded = [(at, bound) for at, bound in enumerate(queue.quota) if bound is not None and gang.demand[at]]
        return bool(bounded) and all(used[at] + gang.demand[at] <= bound for at, bound in bounded)

    def _waits_for_owners(self, gang: Waiting) -> bool:
        """Whether the gang wants more than its queue owns, of which other queues hold so much that it is not there."""
        queue, used = self.queues[gang.queue], self._used[gang.queue]
        if not queue.cohort:
            return False
        owned, lent = self._owned[queue.cohort], self._lent_to[queue.cohort]
        return any(
            bound is not None and asked > bound and lent[at] - used[at] + asked > owned[at]
            for at, (asked, bound) in enumerate(zip(gang.demand, queue.quota, strict=True))
        )

    def borrows(self, queue: str) -> bool:
        """Whether the gangs of a queue hold more than it owns."""
        known = self.queues.get(queue)
        if known is None:
            return False
        return any(bound is not None and self._used[queue][at] > bound for at, bound in enumerate(known.quota))

    def _book(self, queue: Queue, demand: Demand, sign: int = 1) -> None:
        used = self._used[queue.key]
        for at, amount in enumerate(demand):
            used[at] += sign * amount
            if queue.cohort and queue.quota[at] is not None:
                self._lent_to[queue.cohort][at] += sign * amount

    def _unknown(self, queue: Queue) -> Demand:
        """Returns what the queue's gangs of unknown size may hold: the rest of what it owns."""
        rest = (max(0, (bound or 0) - used) for bound, used in zip(queue.quota, self._used[queue.key], strict=True))
        return Demand(*rest)._replace(jobs=len(queue.unknown))

    def _limit(self, queue: Queue, at: int) -> int | None:
        """Returns what the queue may hold by its own settings."""
        bound, more = queue.quota[at], queue.borrowing[at]
        if bound is None or not queue.cohort:
            return bound
        return None if more is None else bound + more

    def _namespace_shortage(self, gang: Waiting) -> QuotaShortage | None:
        for quota, left in self._governing(gang):
            for resource, asked in gang.namespace_demand:
                if resource in left and asked > left[resource]:
                    return QuotaShortage(Scope.NAMESPACE, quota.name, resource, asked, max(0, left[resource]))
        return None

    def _governing(self, gang: Waiting | Holding) -> Iterator[tuple[NamespaceQuota, dict[str, int]]]:
        """Yields the ResourceQuotas that count the gang's pods, with what is left of each."""
        for quota, left in self._namespaces.get(gang.namespace, ()):
            scopes = dict(gang.quota_scopes) if quota.scopes else {}
            if all(holds(needed, scopes.get(needed.key)) for needed in quota.scopes):
                yield quota, left

    def _book_namespace(self, gang: Waiting | Holding, demand: tuple[tuple[str, int], ...], sign: int = 1) -> None:
        for _, left in self._governing(gang):
            for resource, amount in demand:
                if resource in left:
                    left[resource] -= sign * amount


def _owned(members: Iterable[Queue]) -> tuple[int, ...]:
    """Returns what the queues of a cohort own together."""
    columns = zip(*(queue.quota for queue in members), strict=True)
    return tuple(sum(bound or 0 for bound in column) for column in columns)
