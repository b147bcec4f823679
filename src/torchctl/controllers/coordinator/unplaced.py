"""Which gangs lose their place because some of their pods find no node.

An autoscaler brings nodes pod by pod, so gangs that it brings nodes for may hold nodes that the others lack. If all of
them left at once, they would come back at once. So they leave one by one, the next one only if the nodes that are free
then are not enough for one that stays; and while one of them is late, no further one is let in. In the end the first
one has all the nodes that there are.
"""

from collections.abc import Iterable

from torchctl.controllers.coordinator.capacity import Capacity
from torchctl.controllers.coordinator.decision import TakeBack
from torchctl.controllers.coordinator.values import Holding
from torchctl.controllers.settings import CoordinatorSettings

__all__ = ["nodes_are_late", "unplaced"]

_PATIENCE = 3
"""Times `provision_within_s` after which free nodes say nothing: something else keeps the pods away. All others that
were let in before a gang was late are late within two, and leave."""


def unplaced(
    holdings: Iterable[Holding], capacity: Capacity, now_s: float, settings: CoordinatorSettings
) -> tuple[TakeBack, ...]:
    """Returns the gangs of which some pods have had no node for long since they were let in.

    Of those that an autoscaler brings nodes for and that hold some, that is one: of the lowest priority, the last that
    was let in. The next one follows once its pods are gone, and the last one once no other is being placed. None leaves
    while there are free nodes for all that one of them lacks, since kube-scheduler needs a moment to place them there.
    """
    there = tuple(holdings)
    late = [holding for holding in there if _is_late(holding, now_s, settings)]
    patience_s = _PATIENCE * settings.provision_within_s
    soon = [held for held in late if _has_room(held, capacity) and abs(now_s - held.let_in_s) < patience_s]
    found = [held for held in late if not held.autoscaled or not (held.placed or held in soon)]
    half = [held for held in late if held.autoscaled and held.placed]
    others = [held for held in there if held.autoscaled and held.leaving_for]
    if len(half) == 1:
        others = [held for held in there if held.autoscaled and held is not half[0] and _is_being_placed(held)]
    if half and not others and not any(held.autoscaled for held in soon):
        found.append(min(half, key=lambda held: (held.priority, -held.let_in_s, held.key)))
    return tuple(sorted(TakeBack(holding.key, holding.missing) for holding in found))


def nodes_are_late(holdings: Iterable[Holding], now_s: float, settings: CoordinatorSettings) -> bool:
    """Whether a gang has waited for long for nodes that an autoscaler should bring."""
    return any(holding.autoscaled and _is_late(holding, now_s, settings) for holding in holdings)


def _is_late(holding: Holding, now_s: float, settings: CoordinatorSettings) -> bool:
    if not _is_being_placed(holding) or holding.leaving_for:
        return False
    bound_s = settings.provision_within_s if holding.autoscaled else settings.place_within_s
    return abs(now_s - holding.let_in_s) >= bound_s  # that far ahead, it was a clock that was set wrong


def _has_room(holding: Holding, capacity: Capacity) -> bool:
    """Whether all pods that it lacks find nodes now; of one that is unmodelled, nobody knows."""
    places = capacity.slots(holding.shape) - capacity.lost_to(holding)
    return not holding.shape.unmodelled and places >= holding.missing


def _is_being_placed(holding: Holding) -> bool:
    """Whether the gang lacks nodes for its first pods, or has pods yet that leave theirs."""
    return bool(holding.leaving_for) or (holding.missing > 0 and not holding.settled)
