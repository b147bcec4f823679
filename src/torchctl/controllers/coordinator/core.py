"""The coordinator's decision: a function of what is recorded and of the cluster as it is.

One decision goes through the queues by their turns. If the next gang of the queue whose turn it is does not fit, its
first one that fits takes its place, and it is asked again whose turn it is, because policies may go by these gangs. A
queue none of whose gangs fits is out until the next decision. While gangs are let in there is ever less room, so no
gang that did not fit is looked at twice.

A small gang nearly always fits before a large one. So the first gang of a queue that has waited for `reserve_after_s`
gets a reservation: from then on, others that want the same nodes go first only if they do not delay it. There is one
reservation for each set of nodes that overlap, and it is recorded: it stays with its gang until that is let in.
"""

from dataclasses import replace
from typing import NamedTuple

from torchctl.controllers.coordinator.alike import Kind
from torchctl.controllers.coordinator.capacity import Capacity
from torchctl.controllers.coordinator.decision import Decision, LetIn, Preempt
from torchctl.controllers.coordinator.future import by_end, reserve
from torchctl.controllers.coordinator.nodenames import NodeNames, node_names
from torchctl.controllers.coordinator.order import by_queue
from torchctl.controllers.coordinator.policies import Candidate
from torchctl.controllers.coordinator.quota import Ledger
from torchctl.controllers.coordinator.reclaim import victims
from torchctl.controllers.coordinator.room import Room
from torchctl.controllers.coordinator.tell import tell
from torchctl.controllers.coordinator.turns import Turns
from torchctl.controllers.coordinator.unplaced import nodes_are_late, unplaced
from torchctl.controllers.coordinator.values import NOBODY, Holding, PodShape, Queue, State, Waiting

__all__ = ["decide"]


def decide(state: State) -> Decision:
    """Decides who is let in, who has to leave, and what everybody else is told."""
    return _Pass(state).decide()


class _WayIn(NamedTuple):
    """The shape with which a gang may be let in now, and its nodes."""

    shape: PodShape
    names: NodeNames


class _Pass:
    """One decision while it is being made."""

    def __init__(self, state: State) -> None:
        self._state, self._settings = state, state.settings
        self._queues = by_queue(state.waiting)
        self._by_end = by_end(state.holdings)
        # By identity first: there are few shapes, and many gangs share each.
        shapes = {id(gang.shape): gang.shape for gang in state.waiting}
        shapes |= {id(holding.shape): holding.shape for holding in state.holdings}
        self._ledger = Ledger(state.queues, state.namespace_quotas, state.holdings, state.now_s)
        self._room = Room(Capacity(state.nodes, shapes.values()), state.holdings, state.now_s)
        self._turns = Turns(state.settings, self._ledger.queues, state.starts)
        self._left_for = {holding.leaving_for for holding in state.holdings} - {""}
        self._next = dict.fromkeys(self._queues, 0)
        self._alone: dict[str, set[str]] = {}
        """Gangs for which something may be kept, by queue: what is so for others of their kind is not so for them."""
        self._hopeless: dict[PodShape, int] = {}
        """Pods for which there is no room even when all gangs have ended, by shape."""
        self._names: dict[PodShape, NodeNames | None] = {}
        self._nodes_are_late = nodes_are_late(state.holdings, state.now_s, state.settings)
        self._take_back = unplaced(state.holdings, self._room.capacity, state.now_s, state.settings)
        self._let_in: list[LetIn] = []
        self._preempt: list[Preempt] = []
        self._passed: list[Waiting] = []
        """The first gangs of queues that were asked and found no way in."""

    def decide(self) -> Decision:
        firsts = self._firsts()
        self._keep_quota(firsts)
        self._keep_recorded(firsts)
        more = self._go_round(firsts)
        told = tell(self._state, self._queues, self._let_in, self._alone, self._room, self._ledger, self._preempt)
        return Decision(
            let_in=tuple(self._let_in),
            preempt=tuple(self._preempt),
            take_back=self._take_back,
            reserved=tuple(sorted(self._room.holds)),
            told=told,
            more=more,
        )

    def _firsts(self) -> dict[str, Waiting]:
        """Returns the first gang of each queue that can start at all, at this time."""
        found = {}
        for name, gangs in self._queues.items():
            if name in self._ledger.queues:
                at = next((at for at, gang in enumerate(gangs) if self._may_ever(gang)), None)
                if at is not None:
                    found[name], self._next[name] = gangs[at], at
        return found

    def _may_ever(self, gang: Waiting) -> bool:
        if gang.backs_off(self._state.now_s):
            return False
        fits = gang.autoscaled or self._room.capacity.most(gang.shape) >= gang.pods
        return fits and self._ledger.never(gang) is None

    def _keep_quota(self, firsts: dict[str, Waiting]) -> None:
        for gang in sorted(firsts.values(), key=lambda gang: (gang.since_s, gang.key)):
            if self._is_overdue(gang):
                self._keep_quota_for(gang)

    def _keep_quota_for(self, gang: Waiting) -> None:
        self._see_alone(gang)
        self._ledger.keep(gang)

    def _see_alone(self, gang: Waiting) -> None:
        self._alone.setdefault(gang.queue, set()).add(gang.key)

    def _keep_recorded(self, firsts: dict[str, Waiting]) -> None:
        """Keeps quota and room for the gangs that others leave for, and for those with a recorded reservation.

        Gangs that have to borrow come last: what owners are promised is not there for them, nor room without quota.
        """
        known = [gang for gang in self._state.waiting if gang.reserved or gang.key in self._left_for]
        for gang in sorted(known, key=self._rank):
            self._see_alone(gang)
            if gang.queue not in self._ledger.queues or not self._may_ever(gang):
                continue
            self._keep_quota_for(gang)
            # Some of those that were to leave may not have been told, or others have taken what they left.
            may_preempt = gang.key in self._left_for or firsts.get(gang.queue) is gang
            more = may_preempt and self._way_in(gang) is None and self._preempts_for(gang)
            if more or gang.key in self._left_for or self._ledger.shortage(gang) is None:
                self._reserve(gang)

    def _rank(self, gang: Waiting) -> tuple[bool, bool, float, str]:
        queue = self._ledger.queues.get(gang.queue)
        borrows = queue is not None and bool(queue.cohort) and not self._ledger.within_own(gang)
        return gang.key not in self._left_for, borrows, gang.since_s, gang.key

    def _go_round(self, firsts: dict[str, Waiting]) -> bool:
        """Lets gangs in, queue after queue; returns whether it stopped before all queues were through."""
        since = {name: self._works_since(name, first) for name, first in firsts.items()}
        active = {name: self._candidate(self._ledger.queues[name], first, since) for name, first in firsts.items()}
        while active:
            if len(self._let_in) >= self._settings.max_starts:
                return True
            candidates = list(active.values())
            chosen = self._turns.pick(candidates)
            queue = chosen.queue
            gang = self._queues[queue][self._next[queue]]
            way = self._way_in(gang)
            if way is not None:
                turn, cohort_turn = self._turns.charge(chosen, candidates)
                self._let_in.append(LetIn(gang.key, gang.queue, turn, cohort_turn, *way.names))
                self._ledger.take(gang)
                self._room.take(gang, way.shape)
                self._next[queue] += 1
                if gang.reserved or gang.key in self._left_for:
                    self._insist_again()
            else:
                if gang is firsts[queue]:
                    self._passed.append(gang)
                    self._insist(gang)
                self._next[queue] = self._next_that_fits(queue)
            if self._next[queue] < len(self._queues[queue]):
                following = self._queues[queue][self._next[queue]]
                active[queue] = chosen._replace(priority=following.priority, first_since_s=following.since_s)
            else:
                del active[queue]
        return False

    def _insist_again(self) -> None:
        """Keeps room for a gang that was passed because it was kept for one that has it now: younger ones come next."""
        for gang in sorted(self._passed, key=lambda gang: (gang.since_s, gang.key)):
            if gang.key not in self._room.holds:
                self._insist(gang)

    def _works_since(self, queue: str, first: Waiting) -> float:
        """Returns since when the queue has had a gang that can start at all: others earn it no turns."""
        since_s = first.since_s
        for gang in self._queues[queue]:
            if gang.since_s < since_s and self._may_ever(gang):
                since_s = gang.since_s
        return since_s

    def _candidate(self, queue: Queue, first: Waiting, since: dict[str, float]) -> Candidate:
        # The API allows no weight below 1; a queue that has one all the same must not stop the others.
        return Candidate(queue.key, max(1, queue.weight), since[queue.key], first.priority, first.since_s)

    def _next_that_fits(self, queue: str) -> int:
        """Returns the place in its queue of the next gang that fits now; behind the last one if none does."""
        gangs, alone, full = self._queues[queue], self._alone.get(queue, ()), self._room.full
        out: set[Kind | tuple[Kind, float | None, int]] = set()
        for at in range(self._next[queue] + 1, len(gangs)):
            gang, kind = gangs[at], gangs[at].kind
            if gang.key in alone:
                if self._way_in(gang):
                    return at
            elif kind not in full and not (out and (kind in out or (kind, gang.lasts_s, gang.priority) in out)):
                if self._way_in(gang):
                    return at
                if kind not in full:
                    # Deadline and priority decide only whether a gang goes before one that something is kept for.
                    out.add(kind if self._ledger.is_short(gang) else (kind, gang.lasts_s, gang.priority))
        return len(gangs)

    def _way_in(self, gang: Waiting) -> _WayIn | None:
        way = self._on_nodes(gang)  # before the quotas, because it is known at once for most
        return way if way is not None and self._ledger.shortage(gang) is None else None

    def _on_nodes(self, gang: Waiting) -> _WayIn | None:
        """Returns the way in for a gang as far as nodes are concerned."""
        if gang.backs_off(self._state.now_s) or (gang.autoscaled and self._nodes_are_late):
            return None
        shape = self._room.way_in(gang)
        if shape is None:
            return None
        if shape is gang.shape:
            return _WayIn(shape, NodeNames())
        if shape not in self._names:
            self._names[shape] = node_names(gang, shape, self._room.capacity)
        names = self._names[shape]
        return None if names is None else _WayIn(shape, names)

    def _insist(self, gang: Waiting) -> None:
        """Makes others leave for the first gang of a queue, or keeps room for it once it has waited long."""
        if self._is_kept_for_another(gang):
            return
        if self._preempts_for(gang):
            self._keep_quota_for(gang)
            self._reserve(gang)
        elif self._is_overdue(gang) and self._ledger.shortage(gang) is None:
            self._reserve(gang)

    def _preempts_for(self, gang: Waiting) -> bool:
        """Makes others leave for a gang, if that is enough for it to start."""
        if self._others_leave(gang) or self._is_kept_for_another(gang):
            return False
        if gang.autoscaled and self._on_nodes(gang) is None:
            return False  # nodes come for it, so others leave only for a quota, and once that is all it lacks
        found = victims(gang, self._staying(), self._room, self._ledger)
        if not found:
            return False
        self._preempt += [Preempt(holding.key, gang.key) for holding in found]
        self._leave(found)
        return True

    def _staying(self) -> list[Holding]:
        """Returns the gangs that hold room, but for those that lose their place with this decision anyway."""
        stuck = {given.key for given in self._take_back}
        return [holding for holding in self._state.holdings if holding.key not in stuck]

    def _others_leave(self, gang: Waiting) -> bool:
        """Whether gangs of the same queue or cohort leave for another one, or were just told to leave for this one.

        What they free is not counted twice.
        """
        queues = self._ledger.queues
        if any(given.leaving_for == gang.key for given in self._preempt):
            return True
        group = queues[gang.queue].cohort or gang.queue
        leaving = {holding.key: holding.leaving_for for holding in self._state.holdings if holding.leaving_for}
        leaving |= {given.key: given.leaving_for for given in self._preempt}
        if not leaving:
            return False
        return any(
            leaving.get(holding.key, gang.key) != gang.key
            and holding.queue in queues
            and (queues[holding.queue].cohort or holding.queue) == group
            for holding in self._state.holdings
        )

    def _leave(self, found: tuple[Holding, ...]) -> None:
        leaving = {holding.key for holding in found}
        gone = [replace(holding, leaving_for=NOBODY) for holding in self._by_end if holding.key in leaving]
        self._by_end = gone + [holding for holding in self._by_end if holding.key not in leaving]

    def _is_kept_for_another(self, gang: Waiting) -> bool:
        """Whether room on nodes that the gang might run on is kept for another one, or for it already."""
        if gang.autoscaled:
            return False  # it needs none, and runs beside it
        return any(self._room.capacity.share_nodes(gang.shape, hold.gang.shape) for hold in self._room.holds.values())

    def _reserve(self, gang: Waiting) -> None:
        if gang.autoscaled or self._is_kept_for_another(gang):
            return
        if gang.pods >= self._hopeless.get(gang.shape, gang.pods + 1):
            return
        hold = reserve(gang, self._by_end, self._room, self._state.now_s)
        if hold is not None:
            self._see_alone(gang)
            self._room.keep(hold)
            if self._ledger.shortage(gang) is None:
                self._ledger.promise(gang, hold.until_s)
        else:
            self._hopeless[gang.shape] = gang.pods

    def _is_overdue(self, gang: Waiting) -> bool:
        return self._state.now_s - gang.since_s >= self._settings.reserve_after_s
