"""The priority of a job: its own, else that of the PriorityClass of its pods, else the cluster's default. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from torchctl.api.capacity import PriorityClass
from torchctl.api.job import TorchrunJob

__all__ = ["Priorities"]


class Priorities:
    """The values of PriorityClasses, looked up as the API server does for a pod.

    Of several default classes the lowest counts. A class that does not exist, with which no pod could be made, is 0.

    Attributes:
        default_class: The name of the default class; empty if there is none.
    """

    def __init__(self, known: Iterable[PriorityClass]) -> None:
        classes = tuple(known)
        self._values = {one.metadata.name: one.value for one in classes}
        ranked = sorted((one.value, one.metadata.name) for one in classes if one.global_default)
        self._default, self.default_class = ranked[0] if ranked else (0, "")

    def of(self, job: TorchrunJob, template: Mapping[str, Any]) -> int:
        """Returns the priority of a job with this frozen template."""
        if job.spec.priority is not None:
            return job.spec.priority
        name = template["pod"]["spec"].get("priorityClassName", "")
        return self._values.get(name, 0) if name else self._default
