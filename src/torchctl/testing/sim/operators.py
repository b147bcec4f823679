"""The operator as the simulator runs it: its reconcilers, with the settings of an installation."""

from functools import partial

from torchctl.controllers.coordinator.reconciler import setup as setup_coordinator
from torchctl.controllers.job.reconciler import setup as setup_jobs
from torchctl.controllers.queue.reconciler import setup as setup_queues
from torchctl.controllers.settings import CoordinatorSettings, OperatorSettings
from torchctl.runtime.manager import Setup
from torchctl.testing.sim.days.actions import Day

__all__ = ["IMAGE", "operator", "operator_of"]

IMAGE = "registry.test/torchctl:sim"


def operator(settings: OperatorSettings | None = None) -> tuple[Setup, ...]:
    """Returns what adds the operator's controllers to a manager."""
    settings = settings or OperatorSettings(image=IMAGE)
    both = partial(setup_queues, settings=settings), partial(setup_jobs, settings=settings)
    if settings.coordinator is None:
        return both
    return (*both, partial(setup_coordinator, settings=settings.coordinator))


def operator_of(day: Day) -> tuple[Setup, ...]:
    """Returns the same for a day, with the coordinator if it has one."""
    return operator(OperatorSettings(image=IMAGE, coordinator=CoordinatorSettings() if day.coordinated else None))
