"""No gang scheduler: the pods are placed one by one, by the cluster's default scheduler or another."""

from dataclasses import dataclass

from torchctl.controllers.gangs.scheduler import Gang, Marks

__all__ = ["NoGangScheduler"]


@dataclass(frozen=True, slots=True)
class NoGangScheduler:
    """Needs nothing, so nothing can be missing."""

    name: str = ""
    needs: None = None
    admits_jobs: bool = False
    place: str = ""

    def marks(self, gang: Gang) -> Marks:
        return Marks()
