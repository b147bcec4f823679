"""The operator as the simulator runs it: its reconcilers, with the settings of an installation."""

from functools import partial

from torchctl.controllers.job.reconciler import setup as setup_jobs
from torchctl.controllers.queue.reconciler import setup as setup_queues
from torchctl.controllers.settings import OperatorSettings
from torchctl.runtime.manager import Setup

__all__ = ["IMAGE", "operator"]

IMAGE = "registry.test/torchctl:sim"


def operator(settings: OperatorSettings | None = None) -> tuple[Setup, ...]:
    """Returns what adds the operator's controllers to a manager."""
    settings = settings or OperatorSettings(image=IMAGE)
    return partial(setup_queues, settings=settings), partial(setup_jobs, settings=settings)
