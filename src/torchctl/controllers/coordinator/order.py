"""The order within a queue: higher priority first, then who waits longest."""

from collections.abc import Iterable
from operator import attrgetter

from torchctl.controllers.coordinator.values import Waiting

__all__ = ["by_queue"]


def by_queue(waiting: Iterable[Waiting]) -> dict[str, list[Waiting]]:
    """Returns the gangs of each queue in their order; the queues by name."""
    # Three stable sorts by one plain key each are faster than one by tuples.
    ranked = sorted(waiting, key=attrgetter("key"))
    ranked.sort(key=attrgetter("since_s"))
    ranked.sort(key=attrgetter("priority"), reverse=True)
    queues: dict[str, list[Waiting]] = {}
    for gang in ranked:
        there = queues.get(gang.queue)
        if there is None:
            there = queues[gang.queue] = []
        there.append(gang)
    return dict(sorted(queues.items()))
