"""A story: a queue and jobs in it, what the user does because of what he sees, and how the job ends."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jobs import a_job, a_queue
from users import Act

from torchctl.api.phases import Phase
from torchctl.controllers.settings import CoordinatorSettings

__all__ = ["Story"]

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Story:
    """A queue, a job in it, what the user does, and how the job ends.

    Args:
        queue_spec: The queue's, given the name of the namespace; a cluster-scoped name needs it.
        job_spec: What the job says besides its queue, its two nodes and its command.
        end: None: the job goes.
        acts: What the user does, in this order.
        others: Jobs that are there as well: their specs by name.
        edit: What the user does to the queue's spec while there is no operator, and in any case before the end.
        workers: How many pods the Job controller creates; None where that is a matter of time.
        races: Whether what the user does races with the operator, so that it is a matter of time what was created by
            then. Nothing is created twice all the same.
        masked: Paths that differ between two undisturbed runs of this story.
        coordinator: The settings of the operator's coordinator; None: it has none.
    """

    name: str
    queue_spec: Callable[[str], Json] = lambda namespace: {}
    job_spec: Json = field(default_factory=dict)
    end: Phase | None = Phase.SUCCEEDED
    acts: tuple[Act, ...] = ()
    others: Mapping[str, Json] = field(default_factory=dict)
    edit: Json = field(default_factory=dict)
    workers: int | None = 2
    races: bool = False
    masked: frozenset[str] = frozenset()
    coordinator: CoordinatorSettings | None = None

    def queue(self, namespace: str) -> Json:
        return a_queue(namespace, **self.queue_spec(namespace))

    def jobs(self, namespace: str) -> list[Json]:
        """The story's own first."""
        specs = {self.name: self.job_spec, **self.others}
        return [a_job(namespace, name, **spec) for name, spec in specs.items()]
