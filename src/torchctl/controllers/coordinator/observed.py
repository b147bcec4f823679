"""The objects that a decision is made from, as the cache has them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchctl.api.capacity import BoundPod, LimitRange, Node, PriorityClass, ResourceQuota, RuntimeClass
from torchctl.api.job import TorchrunJob
from torchctl.api.queue import TorchrunQueue
from torchctl.runtime.kinds import Key

__all__ = ["Observed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What is in the cluster.

    Args:
        templates: What jobs run with, as it was frozen, by the key of the ControllerRevision.
        pods: All pods that take room on a node, whosever they are.
    """

    jobs: tuple[TorchrunJob, ...] = ()
    templates: Mapping[Key, Mapping[str, Any]]
    queues: tuple[TorchrunQueue, ...] = ()
    nodes: tuple[Node, ...] = ()
    pods: tuple[BoundPod, ...] = ()
    quotas: tuple[ResourceQuota, ...] = ()
    priorities: tuple[PriorityClass, ...] = ()
    limit_ranges: tuple[LimitRange, ...] = ()
    runtimes: tuple[RuntimeClass, ...] = ()
