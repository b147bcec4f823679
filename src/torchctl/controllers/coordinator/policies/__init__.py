"""The orders in which queues take their turns, one file each."""

from collections.abc import Iterable

from torchctl.controllers.coordinator.policies.fifo import Fifo
from torchctl.controllers.coordinator.policies.policy import Candidate, History, Policy
from torchctl.controllers.coordinator.policies.priority import Priority
from torchctl.controllers.coordinator.policies.smooth import SmoothWeightedRoundRobin
from torchctl.controllers.coordinator.policies.weighted import WeightedRoundRobin
from torchctl.controllers.coordinator.values import Start
from torchctl.controllers.settings import PolicyName

__all__ = ["Candidate", "Policy", "policy"]


def policy(name: PolicyName, starts: Iterable[Start]) -> Policy:
    """Returns a policy as the recorded starts left it."""
    match name:
        case PolicyName.SMOOTH_WEIGHTED_ROUND_ROBIN:
            return SmoothWeightedRoundRobin(History(starts))
        case PolicyName.WEIGHTED_ROUND_ROBIN:
            return WeightedRoundRobin(History(starts))
        case PolicyName.PRIORITY:
            return Priority()
        case PolicyName.FIFO:
            return Fifo()
