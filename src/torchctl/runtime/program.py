"""Runs a program of controllers: finds the API server, logs, elects a leader, and stops on SIGTERM.

    run("greeter", setup)

is a whole program. `setup` adds the controllers to the manager that it is given.
"""

import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from signal import SIGINT, SIGTERM

import anyio
import structlog

from torchctl.runtime.cache.cache import NotSynced
from torchctl.runtime.client.client import connect
from torchctl.runtime.client.config import ConfigError, Connection, load_connection
from torchctl.runtime.clock import SystemClock
from torchctl.runtime.lastresort import LastResort, last_resort
from torchctl.runtime.leaderelection.elector import LeaderElector, new_identity
from torchctl.runtime.leaderelection.fence import Fence
from torchctl.runtime.logging import configure
from torchctl.runtime.manager import Manager, Setup
from torchctl.runtime.memory import relax, settle
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.settings import RuntimeSettings

__all__ = ["MOST_CAUSES", "managing", "run", "tell_causes"]

MOST_CAUSES = 10
"""The maximum number of lines that explain why the program ends."""

log = structlog.get_logger("torchctl.run")


def run(
    name: str,
    *setups: Setup,
    settings: RuntimeSettings | None = None,
    kubeconfig: str | None = None,
    context: str | None = None,
) -> None:
    """Runs the controllers that `setups` add until SIGTERM or SIGINT. A second signal stops without waiting.

    Exits with status 1 and a message if there is no usable configuration, or if an essential task ended.

    Args:
        name: The program's name: the field manager, the source of Events, and the Lease unless the settings name one.
        setups: Add controllers, tasks and webhooks to the manager.
        settings: Meanings and defaults are in `RuntimeSettings`.
        kubeconfig: Path. None: $KUBECONFIG, ~/.kube/config, or the pod's service account.
        context: A context of the kubeconfig.
    """
    settings = settings if settings is not None else RuntimeSettings()
    configure(settings.log)
    relax()
    try:
        anyio.run(partial(_serve, name, setups, settings, kubeconfig, context))
    except ConfigError as error:
        sys.exit(f"{name}: {error}")
    except BaseExceptionGroup as group:
        tell_causes(group)
        sys.exit(1)


@asynccontextmanager
async def managing(
    connection: Connection, settings: RuntimeSettings, name: str, *, setups: Iterable[Setup] = ()
) -> AsyncIterator[Manager]:
    """Yields a manager with what `setups` add, ready to run; with leader election, its writes are fenced."""
    clock, metrics, election = SystemClock(), Metrics(), settings.election
    fence = Fence(clock) if election.enabled else Fence.open()
    async with connect(
        connection,
        metrics=metrics,
        clock=clock,
        fence=fence,
        user_agent=name,
        field_manager=name,
        settings=settings.client,
    ) as client:
        elector = None
        if election.enabled:
            namespace, lease = election.lease_namespace or connection.namespace, election.lease_name or name
            elector = LeaderElector(client, namespace, lease, new_identity(), election, clock, fence, metrics=metrics)
        manager = Manager(client, settings=settings, metrics=metrics, clock=clock, elector=elector)
        for setup in setups:
            setup(manager)
        yield manager


async def _serve(
    name: str, setups: Iterable[Setup], settings: RuntimeSettings, kubeconfig: str | None, context: str | None
) -> None:
    connection = await load_connection(kubeconfig, context)
    log.info("starting", program=name, host=connection.host)
    with last_resort() as deadline:
        async with managing(connection, settings, name, setups=setups) as manager:
            await _run(manager, deadline)


async def _run(manager: Manager, deadline: LastResort) -> None:
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_signals, stop, tasks.cancel_scope, partial(deadline.set, manager.settings.exit_limit_s))
        tasks.start_soon(_settle, manager)
        await manager.run(stop)
        tasks.cancel_scope.cancel()


async def _settle(manager: Manager) -> None:
    with suppress(NotSynced):  # the manager reports it and ends
        await manager.cache.wait_synced(manager.settings.cache_sync_timeout_s)
        settle()


async def _signals(stop: anyio.Event, scope: anyio.CancelScope, stopping: Callable[[], None]) -> None:
    """Handles signals: the first SIGTERM or SIGINT stops gracefully, the second one immediately."""
    with anyio.open_signal_receiver(SIGTERM, SIGINT) as signals:
        async for number in signals:
            if stop.is_set():
                scope.cancel()
            log.info("stopping", signal=number.name)
            stopping()
            stop.set()


def tell_causes(error: BaseException) -> None:
    """Logs why the program ends: the first cause with its traceback, others with a line each."""
    first, *others = causes = _causes(error)
    log.critical("the program ends", error=str(first), causes=len(causes), exc_info=first)
    for other in others[: MOST_CAUSES - 1]:
        log.critical("it ends for another cause too", error=str(other))


def _causes(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [cause for one in error.exceptions for cause in _causes(one)]
    return [error]
