"""What queues, their cohorts and namespaces allow their gangs to hold together."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from torchctl.controllers.coordinator.namespaces import Namespaces
from torchctl.controllers.coordinator.shortage import QuotaShortage, Scope
from torchctl.controllers.coordinator.values import Demand, Holding, Limits, NamespaceQuota, Queue, Waiting

__all__ = ["RESOURCES", "Ledger"]

RESOURCES = Demand._fields


class Bound(NamedTuple):
    """A quota of a queue.

    Args:
        at: The place of its resource among `RESOURCES`.
        own: How much it is.
        limit: What the queue may hold by its own settings; None: no less than its cohort owns.
        owned: What the queues of its cohort own together; None: it has no cohort.
    """

    at: int
    own: int
    limit: int | None
    owned: int | None


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
        self._bounds = {queue.key: tuple(self._bounds_of(queue)) for queue in self.queues.values()}
        self._namespaces = Namespaces(quotas)
        self._limited = self._namespaces.names
        self._kept: dict[str, str] = {}
        self._kept_namespaces: dict[str, str] = {}
        self._not_lending: dict[str, str] = {}
        self._promised: dict[str, tuple[Waiting, float | None]] = {}
        self._promising: frozenset[str] = frozenset()
        """Queues of which quota is promised, their own or their cohorts', and namespaces of which it is."""
        self._promising_namespaces: frozenset[str] = frozenset()
        self._leaving: dict[str, list[Holding]] = {}
        self._now_s = now_s
        for holding in holdings:
            self.book(holding)
            self._leaving.setdefault(holding.leaving_for, []).append(holding)
            self._namespaces.book(holding, holding.pending_namespace_demand)
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
        if self._promised.pop(gang.key, None) is not None:
            self._note_promises()
        self.book(gang)
        self._namespaces.book(gang, gang.namespace_demand)

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
        self._note_promises()

    def is_short(self, gang: Waiting) -> bool:
        """Whether a quota keeps out all that ask for the same, whatever their deadlines and priorities."""
        return self._shortage(gang) is not None

    def decides(self, gang: Waiting) -> Hashable:
        """Returns all on which the shortage of a gang depends that no quota is kept for."""
        asked: tuple[Hashable, ...] = (gang.queue, gang.pods, gang.demand)
        if gang.namespace in self._limited:
            asked = (*asked, gang.namespace, gang.namespace_demand, gang.quota_scopes, gang.unnamed)
        return (*asked, gang.lasts_s, gang.priority) if self.has_promised(gang) else asked

    def has_promised(self, gang: Waiting) -> bool:
        """Whether quota is promised to others that the gang would take, too."""
        return gang.queue in self._promising or gang.namespace in self._promising_namespaces

    def shortage(self, gang: Waiting) -> QuotaShortage | None:
        """Returns the bound that keeps a gang out now; None if no quota does."""
        found = self._shortage(gang)
        if found is not None or not self.has_promised(gang):
            return found
        takes_back = self.within_own(gang)
        others = [
            (other, other.queue == gang.queue or not takes_back)
            for other, until_s in self._promised.values()
            if self._delays(gang, other, until_s)
        ]
        short = self._shortage_beside(gang, others) if others else None
        if short is None:
            return None
        ends = (at for at in range(len(others)) if self._shortage_beside(gang, others[: at + 1]) is not None)
        return short._replace(kept_for=others[next(ends)][0].key)

    def _note_promises(self) -> None:
        others = [other for other, _ in self._promised.values()]
        cohorts = {self.queues[other.queue].cohort for other in others} - {""}
        members = {queue.key for cohort in cohorts for queue in self._cohorts[cohort]}
        self._promising = frozenset(members.union(other.queue for other in others))
        self._promising_namespaces = frozenset(other.namespace for other in others if other.namespace in self._limited)

    def _shortage_beside(self, gang: Waiting, others: Sequence[tuple[Waiting, bool]]) -> QuotaShortage | None:
        self._book_promised(others)
        short = self._shortage(gang)
        self._book_promised(others, -1)
        return short

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
            self._namespaces.book(other, other.namespace_demand, sign)

    def _shortage(self, gang: Waiting) -> QuotaShortage | None:
        never = self.never(gang)
        if never is not None:
            return never
        for keeper in (self._kept.get(gang.queue), self._kept_namespaces.get(gang.namespace)):
            if keeper is not None and keeper != gang.key and gang.key not in self._promised:
                return QuotaShortage(Scope.KEPT, "", "", 0, 0, kept_for=keeper)
        queue, used = self.queues[gang.queue], self._used[gang.queue]
        for at, own, limit, owned in self._bounds[gang.queue]:
            asked = gang.demand[at]
            if not asked:
                continue
            if limit is not None and used[at] + asked > limit:
                return QuotaShortage(Scope.QUEUE, queue.key, RESOURCES[at], asked, max(0, limit - used[at]))
            if owned is None:
                continue
            lent = self._lent_to[queue.cohort][at]
            if lent + asked > owned:
                return QuotaShortage(Scope.COHORT, queue.cohort, RESOURCES[at], asked, max(0, owned - lent))
            keeper = self._not_lending.get(queue.cohort)
            if used[at] + asked > own and keeper is not None and keeper != gang.key:
                left = max(0, own - used[at])
                return QuotaShortage(Scope.QUEUE, queue.key, RESOURCES[at], asked, left, kept_for=keeper)
        return self._namespaces.shortage(gang) if gang.namespace in self._limited else None

    def never(self, gang: Waiting) -> QuotaShortage | None:
        """Returns the bound that keeps the gang out whoever else ends: one below the gang, or one of unknown use."""
        queue = self.queues[gang.queue]
        if queue.max_nodes is not None and gang.pods > queue.max_nodes:
            return QuotaShortage(Scope.NODES_PER_JOB, queue.key, "nodes", gang.pods, queue.max_nodes, never=True)
        for at, _, limit, owned in self._bounds[gang.queue]:
            asked = gang.demand[at]
            if queue.unknown and asked and RESOURCES[at] != "jobs":
                return QuotaShortage(Scope.UNKNOWN, queue.unknown[0], RESOURCES[at], asked, 0)
            if limit is not None and asked > limit:
                return QuotaShortage(Scope.QUEUE, queue.key, RESOURCES[at], asked, limit, never=True)
            if owned is not None and asked > owned:
                return QuotaShortage(Scope.COHORT, queue.cohort, RESOURCES[at], asked, owned, never=True)
        return self._namespaces.never(gang) if gang.namespace in self._limited else None

    def within_own(self, gang: Waiting) -> bool:
        """Whether the gang would stay within what its queue owns. A queue without a quota owns nothing."""
        used, asked = self._used[gang.queue], gang.demand
        bounded = [(at, own) for at, own, _, _ in self._bounds[gang.queue] if asked[at]]
        return bool(bounded) and all(used[at] + asked[at] <= own for at, own in bounded)

    def _waits_for_owners(self, gang: Waiting) -> bool:
        """Whether the gang wants more than its queue owns, of which other queues hold so much that it is not there."""
        used, asked = self._used[gang.queue], gang.demand
        lent = self._lent_to.get(self.queues[gang.queue].cohort, ())
        return any(
            owned is not None and asked[at] > own and lent[at] - used[at] + asked[at] > owned
            for at, own, _, owned in self._bounds[gang.queue]
        )

    def borrows(self, queue: str) -> bool:
        """Whether the gangs of a queue hold more than it owns."""
        return any(self._used[queue][at] > own for at, own, _, _ in self._bounds.get(queue, ()))

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

    def _bounds_of(self, queue: Queue) -> Iterator[Bound]:
        for at, (own, more) in enumerate(zip(queue.quota, queue.borrowing, strict=True)):
            if own is not None and queue.cohort:
                yield Bound(at, own, None if more is None else own + more, self._owned[queue.cohort][at])
            elif own is not None:
                yield Bound(at, own, own, None)


def _owned(members: Iterable[Queue]) -> tuple[int, ...]:
    """Returns what the queues of a cohort own together."""
    columns = zip(*(queue.quota for queue in members), strict=True)
    return tuple(sum(bound or 0 for bound in column) for column in columns)
