"""Which gangs lose their place because some of their pods find no node.

A gang that is late leaves at once, unless an autoscaler brings nodes for it, and it holds some or may have room. Of
those that hold some, which the others may lack, the last one leaves, once all gangs that such nodes come for are stuck
like it.

If all of them left at once, they would come back at once. While one is late, no further one is let in, so in the end
the first one has all the nodes that there are.
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
    """Returns the gangs of which some pods have had no node for long since they were let in, and that leave now.

    None that nodes come for leaves while there are free nodes for all that it lacks, since kube-scheduler needs a
    moment to place its pods there.
    """
    there = tuple(holdings)
    late = [
        held
        for held in there
        if _is_late(held, now_s, settings) and not _may_have_room(held, capacity, now_s, settings)
    ]
    found = [held for held in late if not (held.autoscaled and held.placed)]
    stuck = [held for held in late if held.autoscaled and held.placed]
    if stuck and len(stuck) == sum(held.autoscaled and _is_being_placed(held) for held in there):
        found.append(min(stuck, key=lambda held: (held.priority, -held.let_in_s, held.key)))
    return tuple(sorted(TakeBack(holding.key, holding.missing) for holding in found))


def nodes_are_late(holdings: Iterable[Holding], now_s: float, settings: CoordinatorSettings) -> bool:
    """Whether a gang has waited for long for nodes that an autoscaler should bring."""
    return any(holding.autoscaled and _is_late(holding, now_s, settings) for holding in holdings)


def _is_late(holding: Holding, now_s: float, settings: CoordinatorSettings) -> bool:
    if not _is_being_placed(holding) or holding.leaving_for:
        return False
    bound_s = settings.provision_within_s if holding.autoscaled else settings.place_within_s
    return abs(now_s - holding.let_in_s) >= bound_s  # that far ahead, it was a clock that was set wrong


def _may_have_room(holding: Holding, capacity: Capacity, now_s: float, settings: CoordinatorSettings) -> bool:
    """Whether free nodes take all pods that a gang lacks for which nodes come, as far as that can be computed."""
    patience_s = _PATIENCE * settings.provision_within_s
    if not holding.autoscaled or abs(now_s - holding.let_in_s) >= patience_s:
        return False
    return capacity.slots(holding.shape) - capacity.lost_to(holding) >= holding.missing


def _is_being_placed(holding: Holding) -> bool:
    """Whether the gang lacks nodes for its first pods, or has pods yet that leave theirs."""
    return bool(holding.leaving_for) or (holding.missing > 0 and not holding.has_run)
