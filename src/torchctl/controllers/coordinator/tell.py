"""What each gang that waits is told: its place, what is short, for whom it waits, and an estimate."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial

from torchctl.controllers.coordinator import words
from torchctl.controllers.coordinator.alike import Kind
from torchctl.controllers.coordinator.decision import Answer, LetIn, Preempt, Told, Why
from torchctl.controllers.coordinator.nodenames import MOST_NODES, node_names
from torchctl.controllers.coordinator.quota import Ledger
from torchctl.controllers.coordinator.room import Hold, Room
from torchctl.controllers.coordinator.shortage import QuotaShortage
from torchctl.controllers.coordinator.values import Start, State, Waiting

__all__ = ["pace", "tell"]

_STARTS = 20
"""The last starts of a queue that say how often it starts a job."""

_FEWEST = 3
"""Below that, nothing is estimated."""

_BY_DEADLINE = (Why.BEHIND, Why.NEXT)
_NEVER_FITS = Why.NEVER_FITS


def tell(
    state: State,
    queues: Mapping[str, Sequence[Waiting]],
    let_in: Iterable[LetIn],
    alone: Mapping[str, Collection[str]],
    room: Room,
    ledger: Ledger,
    preempt: Iterable[Preempt],
) -> tuple[Told, ...]:
    """Returns what everybody is told who is not let in, in the order of the queues; then those that have no place.

    Args:
        alone: Gangs for which room or quota may be kept or others leave, by queue: none is told what its kind is told.
    """
    starts, leaving = _by_queue(state.starts), _leaving(state, preempt)
    answers = _Answers(room, ledger, state.now_s, leaving)
    until = {key: hold.until_s for key, hold in room.holds.items()}
    out: dict[str, set[str]] = {}
    for given in let_in:
        out.setdefault(given.queue, set()).add(given.key)
    told = []
    for name, gangs in queues.items():
        interval_s, place, started, by_itself = (
            pace(starts.get(name, []), state.now_s),
            0,
            out.get(name),
            alone.get(name),
        )
        by_kind: dict[Kind, Answer] = {}
        for gang in gangs:
            if started and gang.key in started:
                continue
            place += 1
            answer, estimate_s = by_kind.get(gang.kind), None
            if by_itself and gang.key in by_itself:
                answer, estimate_s = answers.of(gang), until.get(gang.key)
            elif answer is None:
                # Gangs of one queue that ask for the same are told the same, but for place and estimate.
                answer = answers.for_kind(gang, by_kind)
            if estimate_s is None and interval_s is not None and answer.why is not _NEVER_FITS:
                estimate_s = state.now_s + place * interval_s
            told.append(Told(gang.key, place, answer, estimate_s))
    unreadable = (gang for gang in state.unreadable if not gang.holds)
    told += [Told(gang.key, 0, Answer(Why.UNREADABLE, partial(words.unreadable, gang.why))) for gang in unreadable]
    return tuple(told)


def pace(starts_s: Iterable[float], now_s: float) -> float | None:
    """Returns the seconds between two starts of a queue, of late; None if there are too few to tell."""
    times = sorted(at_s for at_s in starts_s if at_s <= now_s)[-_STARTS:]
    return (now_s - times[0]) / len(times) if len(times) >= _FEWEST else None


def _by_queue(starts: Iterable[Start]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for start in starts:
        found.setdefault(start.queue, []).append(start.at_s)
    return found


def _leaving(state: State, preempt: Iterable[Preempt]) -> dict[str, int]:
    found: dict[str, int] = {}
    for key in (*(holding.leaving_for for holding in state.holdings), *(given.leaving_for for given in preempt)):
        if key:
            found[key] = found.get(key, 0) + 1
    return found


class _Answers:
    """Finds out why gangs wait, once for those that ask for the same."""

    def __init__(self, room: Room, ledger: Ledger, now_s: float, leaving: Mapping[str, int]) -> None:
        self._room, self._ledger, self._now_s, self._leaving = room, ledger, now_s, leaving
        self._short: dict[Hashable, QuotaShortage | None] = {}
        self._on_nodes: dict[Hashable, Answer] = {}
        self._shared: dict[Hashable, Answer] = {}

    def for_kind(self, gang: Waiting, by_kind: dict[Kind, Answer]) -> Answer:
        """Returns why a gang waits that nothing is kept for; notes it if all of its queue and kind hear the same."""
        same = (gang.queue, gang.kind, gang.lasts_s, gang.priority)
        found = self._shared.get(same)
        if found is None:
            found = self._of(gang, self._shortage, self._nodes_shared)
            # Deadline and priority decide only whether a gang goes before one that something is kept for.
            if found.why in _BY_DEADLINE or self._ledger.has_promised(gang):
                self._shared[same] = found
            else:
                by_kind[gang.kind] = found
        return found

    def of(self, gang: Waiting) -> Answer:
        """Returns why a gang waits for which something may be kept."""
        if gang.key in self._leaving:
            return Answer(Why.PREEMPTING, partial(words.preempting, self._leaving[gang.key]))
        return self._of(gang, self._ledger.shortage, self._nodes)

    def _of(
        self, gang: Waiting, shortage: Callable[[Waiting], QuotaShortage | None], nodes: Callable[[Waiting], Answer]
    ) -> Answer:
        if gang.backs_off(self._now_s):
            return Answer(Why.BACK_OFF, partial(words.back_off, gang.not_before_s))
        if gang.queue not in self._ledger.queues:
            return Answer(Why.NO_QUEUE, partial(words.no_queue, gang.queue))
        return self._quota(gang, shortage(gang)) or nodes(gang)

    def _quota(self, gang: Waiting, short: QuotaShortage | None) -> Answer | None:
        """Returns which quota keeps a gang out, if one does that would fit on the nodes."""
        if short is None or not (short.never or gang.autoscaled or self._may_fit(gang)):
            return None
        return Answer(_NEVER_FITS if short.never else Why.QUOTA, partial(words.quota_short, short), short.kept_for)

    def _shortage(self, gang: Waiting) -> QuotaShortage | None:
        asked = self._ledger.decides(gang)
        if asked not in self._short:
            self._short[asked] = self._ledger.shortage(gang)
        return self._short[asked]

    def _may_fit(self, gang: Waiting) -> bool:
        return self._room.capacity.most(gang.shape) >= gang.pods

    def _nodes_shared(self, gang: Waiting) -> Answer:
        same = (gang.kind, gang.lasts_s)
        found = self._on_nodes.get(gang.kind) or self._on_nodes.get(same)
        if found is None:
            found = self._nodes(gang)
            self._on_nodes[same if found.why in _BY_DEADLINE else gang.kind] = found
        return found

    def _nodes(self, gang: Waiting) -> Answer:
        """Returns what the nodes are short of, or for whom they are kept."""
        room = self._room
        hold = _too_many_to_name(gang, room)
        if hold is not None and hold.key != gang.key:
            return Answer(Why.BEHIND, partial(words.too_many_nodes, hold.key), hold.key)
        if gang.autoscaled or hold is not None:
            return Answer(Why.NEXT, words.after_others)
        if not self._may_fit(gang):
            return Answer(_NEVER_FITS, partial(words.never_fits, gang, room.capacity))
        if not room.fits(gang.shape, gang.pods):
            return Answer(Why.NODES, partial(words.nodes_short, gang, room))
        hold = room.keeper(gang)
        if hold is None:
            return Answer(Why.NEXT, words.next_decision)
        return Answer(Why.BEHIND, partial(words.room_kept, hold.key), hold.key)


def _too_many_to_name(gang: Waiting, room: Room) -> Hold | None:
    """Returns the hold whose nodes a gang with room would have to be told, if a record cannot name so many."""
    if len(room.capacity.held) <= MOST_NODES:
        return None
    limited = room.way_in(gang)
    if limited is None or limited is gang.shape or node_names(gang, limited, room.capacity) is not None:
        return None
    shared = (hold for hold in room.holds.values() if room.capacity.share_nodes(gang.shape, hold.shape))
    return room.holds.get(gang.key) or next(shared, None)
