"""Predicates of watches that several reconcilers have. Pure."""

from torchctl.api.volcano import VolcanoQueue
from torchctl.runtime.cache.change import Change
from torchctl.runtime.predicate import Predicate

__all__ = ["state_turned"]


def _state_turned(change: Change[VolcanoQueue]) -> bool:
    before, after = (one.status.state if one is not None and one.status else None for one in (change.old, change.new))
    return change.old is None or change.new is None or before != after


state_turned = Predicate(_state_turned)
"""The part of a Volcano Queue's status that matters to jobs and queues: its amounts change with every pod."""
