"""The order within a queue: higher priority first, then who waits longest."""

from collections.abc import Iterable
from operator import attrgetter

from torchctl.controllers.coordinator.values import Waiting

__all__ = ["by_queue"]


def by_queue(waiting: Iterable[Waiting]) -> dict[str, list[Waiting]]:
    """Returns the gangs of each queue in their order; the queues by name."""
    queues: dict[str, list[Waiting]] = {}
    for gang in waiting:
        there = queues.get(gang.queue)
        if there is None:
            there = queues[gang.queue] = []
        there.append(gang)
    for gangs in queues.values():
        # Three stable sorts by one plain key each are faster than one by tuples.
        gangs.sort(key=attrgetter("key"))
        gangs.sort(key=attrgetter("since_s"))
        gangs.sort(key=attrgetter("priority"), reverse=True)
    return dict(sorted(queues.items()))
