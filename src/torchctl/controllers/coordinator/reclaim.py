"""Which gangs have to leave so that another one can start: whole gangs, and no more than needed."""

from collections.abc import Iterable, Iterator

from torchctl.controllers.coordinator.future import Future
from torchctl.controllers.coordinator.quota import Ledger
from torchctl.controllers.coordinator.room import Room
from torchctl.controllers.coordinator.shortage import QuotaShortage, Scope
from torchctl.controllers.coordinator.values import Holding, Preemption, Waiting

__all__ = ["victims"]


def victims(gang: Waiting, holdings: Iterable[Holding], room: Room, ledger: Ledger) -> tuple[Holding, ...]:
    """Returns the gangs to preempt for a gang; none if that would not help, or if its queue does not preempt.

    WithinQueue: gangs of the same queue with a lower priority. Reclaim: those too, and gangs of queues of the cohort
    that hold more than their own, if the gang stays within what its queue owns. Those of the lowest priority go first,
    of equal ones those that were let in last. Gangs that leave already are counted as gone.
    """
    queue = ledger.queues[gang.queue]
    if queue.preemption is Preemption.NEVER:
        return ()
    trial = _Trial(gang, room, ledger)
    there = tuple(holdings)
    for holding in there:
        if holding.leaving_for:
            trial.leave(holding)
    chosen = list(_needed(trial, _candidates(gang, there, ledger), gang, ledger))
    enough = bool(chosen) and trial.is_enough()
    if enough:
        # Whom one would rather keep is asked first whether he can stay.
        for holding in reversed(tuple(chosen)):
            trial.come_back(holding)
            if trial.is_enough():
                chosen.remove(holding)
            else:
                trial.leave(holding)
    trial.undo()
    return tuple(chosen) if enough else ()


class _Trial:
    """Books gangs out and in again, in the quotas and on the nodes, as if they were gone."""

    def __init__(self, gang: Waiting, room: Room, ledger: Ledger) -> None:
        self._gang, self._ledger = gang, ledger
        self.future = Future(room.capacity, gang.shape)
        self._needed = gang.pods + room.load(gang.shape)
        self._gone: dict[str, Holding] = {}

    def leave(self, holding: Holding) -> None:
        self._gone[holding.key] = holding
        self.future.leave(holding)
        self._ledger.book(holding, -1)

    def come_back(self, holding: Holding) -> None:
        del self._gone[holding.key]
        self.future.come_back(holding)
        self._ledger.book(holding)

    def is_enough(self) -> bool:
        return self.has_room() and self.shortage() is None

    def has_room(self) -> bool:
        return self._gang.autoscaled or self.future.slots >= self._needed

    def shortage(self) -> QuotaShortage | None:
        return self._ledger.shortage(self._gang)

    def undo(self) -> None:
        for holding in tuple(self._gone.values()):
            self.come_back(holding)


def _needed(trial: _Trial, candidates: Iterable[Holding], gang: Waiting, ledger: Ledger) -> Iterator[Holding]:
    """Takes candidates until it is enough; those that free nothing that is short stay."""
    for holding in candidates:
        shortage = trial.shortage()
        if shortage is not None and (shortage.never or shortage.scope in (Scope.NAMESPACE, Scope.KEPT)):
            return
        if trial.has_room() and shortage is None:
            return
        helps = not trial.has_room() and trial.future.concerns(holding)
        helps = helps or (shortage is not None and _frees(holding, gang, shortage))
        if helps and (holding.queue == gang.queue or ledger.borrows(holding.queue)):
            trial.leave(holding)
            yield holding


def _frees(holding: Holding, gang: Waiting, shortage: QuotaShortage) -> bool:
    """Whether the gang holds some of what a quota is short of."""
    if shortage.scope is Scope.QUEUE and holding.queue != gang.queue:
        return False
    return int(getattr(holding.demand, shortage.resource)) > 0


def _candidates(gang: Waiting, holdings: Iterable[Holding], ledger: Ledger) -> list[Holding]:
    queue = ledger.queues[gang.queue]
    reclaims = queue.preemption is Preemption.RECLAIM and bool(queue.cohort) and ledger.within_own(gang)
    found = []
    for holding in holdings:
        if holding.leaving_for:
            continue
        if holding.queue == gang.queue:
            wanted = holding.priority < gang.priority
        else:
            other = ledger.queues.get(holding.queue)
            wanted = reclaims and other is not None and other.cohort == queue.cohort and ledger.borrows(holding.queue)
        if wanted:
            found.append(holding)
    return sorted(found, key=lambda holding: (holding.priority, -holding.let_in_s, holding.key))
