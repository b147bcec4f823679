"""What each gang that waits is told: its place, what is short, for whom it waits, and an estimate."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

from torchctl.controllers.coordinator import words
from torchctl.controllers.coordinator.decision import Answer, Preempt, Told, Why
from torchctl.controllers.coordinator.nodenames import MOST_NODES, node_names
from torchctl.controllers.coordinator.quota import Ledger, Scope
from torchctl.controllers.coordinator.room import Hold, Room
from torchctl.controllers.coordinator.values import Start, State, Waiting

__all__ = ["pace", "tell"]

_STARTS = 20
"""The last starts of a queue that say how often it starts a job."""

_FEWEST = 3
"""Below that, nothing is estimated."""


def tell(
    state: State,
    queues: Mapping[str, Sequence[Waiting]],
    let_in: Collection[str],
    room: Room,
    ledger: Ledger,
    preempt: Iterable[Preempt],
) -> tuple[Told, ...]:
    """Returns what everybody is told who is not let in, in the order of the queues; then those that have no place."""
    by_size: dict[tuple[int, int], Answer] = {}
    keepers = ledger.keepers() | room.holds.keys()
    starts = _by_queue(state.starts)
    leaving = _leaving(state, preempt)
    until = {key: hold.until_s for key, hold in room.holds.items()}
    told = []
    for name, gangs in queues.items():
        interval_s, place = pace(starts.get(name, []), state.now_s), 0
        by_kind: dict[object, Answer] = {}
        for gang in gangs:
            if gang.key in let_in:
                continue
            place += 1
            answer = _own(gang, state.now_s, leaving) if leaving or gang.not_before_s else None
            if answer is None:
                # Gangs of one queue that ask for the same are told the same, but for place and estimate. One that quota
                # or room is kept for does not wait for itself.
                keeper = gang.key if gang.key in keepers else ""
                kind = (gang.pods, id(gang.shape), id(gang.demand), id(gang.namespace_demand), keeper)
                answer = by_kind.get(kind)
                if answer is None:
                    answer = by_kind[kind] = _quota(gang, ledger, room) or _nodes(gang, room, by_size)
            estimate_s = until.get(gang.key) if until else None
            if estimate_s is None and interval_s is not None and answer.why is not Why.NEVER_FITS:
                estimate_s = state.now_s + place * interval_s
            told.append(Told(gang.key, place, answer, estimate_s))
    told += [Told(key, 0, Answer(Why.UNREADABLE, partial(words.unreadable, why))) for key, why in state.unreadable]
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


def _own(gang: Waiting, now_s: float, leaving: Mapping[str, int]) -> Answer | None:
    """Returns what is so for this gang alone."""
    if gang.key in leaving:
        return Answer(Why.PREEMPTING, partial(words.preempting, leaving[gang.key]))
    if gang.backs_off(now_s):
        return Answer(Why.BACK_OFF, partial(words.back_off, gang.not_before_s))
    return None


def _quota(gang: Waiting, ledger: Ledger, room: Room) -> Answer | None:
    """Returns which quota keeps a gang out, if one does that would fit on the nodes."""
    if gang.queue not in ledger.queues:
        return Answer(Why.NO_QUEUE, partial(words.no_queue, gang.queue))
    short = ledger.shortage(gang)
    if short is None or (not short.never and not gang.autoscaled and room.capacity.most(gang.shape) < gang.pods):
        return None
    waits_for = short.name if short.scope is Scope.KEPT else ""
    return Answer(Why.NEVER_FITS if short.never else Why.QUOTA, partial(words.quota_short, short), waits_for)


def _nodes(gang: Waiting, room: Room, known: dict[tuple[int, int], Answer]) -> Answer:
    """Returns what the nodes are short of, or for whom they are kept."""
    hold = _too_many_to_name(gang, room)
    if hold is not None and hold.key != gang.key:
        return Answer(Why.BEHIND, partial(words.too_many_nodes, hold.key), hold.key)
    if gang.autoscaled or hold is not None:
        return Answer(Why.NEXT, words.after_others)
    size = (gang.pods, id(gang.shape))
    found = known.get(size)
    if found is not None and found.waits_for != gang.key:
        return found
    if room.capacity.most(gang.shape) < gang.pods:
        found = Answer(Why.NEVER_FITS, partial(words.never_fits, gang, room.capacity))
    elif not room.fits(gang.shape, gang.pods):
        left = min(room.left(gang.shape), gang.pods - 1)
        found = Answer(Why.NODES, partial(words.nodes_short, gang, left))
    else:
        hold = room.keeper(gang)
        if hold is None:
            return Answer(Why.NEXT, words.next_decision)
        return Answer(Why.BEHIND, partial(words.room_kept, hold.key), hold.key)
    known[size] = found
    return found


def _too_many_to_name(gang: Waiting, room: Room) -> Hold | None:
    """Returns the hold whose nodes a gang with room would have to be told, if a record cannot name so many."""
    if len(room.capacity.held) <= MOST_NODES:
        return None
    limited = room.way_in(gang)
    if limited is None or limited is gang.shape or node_names(gang, limited, room.capacity) is not None:
        return None
    shared = (hold for hold in room.holds.values() if room.capacity.share_nodes(gang.shape, hold.shape))
    return room.holds.get(gang.key) or next(shared, None)
