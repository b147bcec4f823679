"""`torchctl run`: the operator as a process."""

from torchctl.runtime import lean  # isort: skip  # noqa: F401  # before anything that imports structlog

import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import Any

import anyio
import click
import structlog

from torchctl.cli.resolv import cluster_domain_of
from torchctl.controllers.job.reconciler import setup as setup_jobs
from torchctl.controllers.queue.reconciler import setup as setup_queues
from torchctl.controllers.settings import OperatorSettings, Restarting
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
from torchctl.runtime.settings import ClientSettings, ElectionSettings, LogSettings, RuntimeSettings, ServerSettings

__all__ = ["ENTRY_POINTS", "MOST_CAUSES", "Operator", "operator", "run", "tell_causes"]

ENTRY_POINTS = "torchctl.reconcilers"
"""Entry-point group of reconcilers from other packages: functions that add their controllers to the manager."""

MOST_CAUSES = 10
"""The maximum number of lines that explain why the operator ends."""

log = structlog.get_logger("torchctl.run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """All settings of one operator process."""

    operator: OperatorSettings
    runtime: RuntimeSettings = field(default_factory=RuntimeSettings)


@asynccontextmanager
async def operator(
    connection: Connection, settings: Operator, *, setups: Iterable[Setup] = ()
) -> AsyncIterator[Manager]:
    """Yields a manager with the two reconcilers and those of `setups`, ready to run."""
    clock, metrics = SystemClock(), Metrics()
    election = settings.runtime.election
    fence = Fence(clock) if election.enabled else Fence.open()
    client_settings = settings.runtime.client
    async with connect(connection, metrics=metrics, clock=clock, fence=fence, settings=client_settings) as client:
        elector = None
        if election.enabled:
            elector = LeaderElector(
                client,
                election.lease_namespace or connection.namespace,
                election.lease_name,
                new_identity(),
                election,
                clock,
                fence,
                metrics=metrics,
            )
        manager = Manager(client, settings=settings.runtime, metrics=metrics, clock=clock, elector=elector)
        setup_queues(manager, settings.operator)
        setup_jobs(manager, settings.operator)
        for setup in setups:
            setup(manager)
        yield manager


def installed_setups() -> list[Setup]:
    """Returns the reconcilers of other installed packages."""
    return [entry_point.load() for entry_point in entry_points(group=ENTRY_POINTS)]


async def _serve(kubeconfig: str | None, context: str | None, settings: Operator) -> None:
    connection = await load_connection(kubeconfig, context)
    log.info("starting", host=connection.host, image=settings.operator.image)
    with last_resort() as deadline:
        async with operator(connection, settings, setups=installed_setups()) as manager:
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
    """Logs why the operator ends: the first cause with its traceback, others with a line each."""
    first, *others = causes = _causes(error)
    log.critical("the operator ends", error=str(first), causes=len(causes), exc_info=first)
    for other in others[: MOST_CAUSES - 1]:
        log.critical("it ends for another cause too", error=str(other))


def _causes(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [cause for one in error.exceptions for cause in _causes(one)]
    return [error]


def _option(*names: str, **attributes: Any) -> Callable[[Any], Any]:
    return click.option(*names, show_default=True, show_envvar=True, **attributes)


def _seconds(name: str, default: float, text: str) -> Callable[[Any], Any]:
    return _option(name, default=default, type=click.FloatRange(0), help=text)


@click.command()
@_option("--kubeconfig", help="Path to a kubeconfig. Default: $KUBECONFIG, ~/.kube/config, the pod's account.")
@_option("--context", help="Context of the kubeconfig.")
@_option("--image", envvar="TORCHCTL_IMAGE", required=True, help="Image of torchctl: sync and init containers.")
@_option("--cluster-domain", default=None, help="Domain of the cluster's DNS. Default: as in /etc/resolv.conf.")
@_option("--etcd-endpoint", default="etcd.etcd-system.svc:2379", help="For jobs that meet in etcd.")
@_option("--gpu-type-label", default="", help="Node label that gpuType selects. Default: the GPU vendor's own.")
@_option("--max-nodes", default=1024, type=click.IntRange(1), help="Nodes that one job may ask for.")
@_option("--kai-parent-queues", default=None, help="KAI queues, comma separated, that may be parents. Default: all.")
@_option(
    "--queue-status-period",
    default=1.0,
    type=click.FloatRange(0, 60),
    help="Seconds by which the counts in a queue's status may lag behind its jobs; changes within are one write.",
)
@_option(
    "--job-status-period",
    default=0.5,
    type=click.FloatRange(0, 60),
    help="Seconds by which the counts of workers in a job's status may lag; changes within are one write.",
)
@_seconds("--incident-settle", 5.0, "Seconds for which the first of several lost pods is looked for.")
@_seconds("--restart-backoff", 10.0, "Seconds before a job's first restart; doubled by each further one.")
@_seconds("--restart-backoff-max", 300.0, "Seconds before a restart at most.")
@_seconds("--restart-stable", 600.0, "Seconds of running after which back-off and budgets begin anew.")
@_seconds("--stuck-pod-timeout", 30.0, "Seconds after its grace at which a pod is deleted by force.")
@_seconds("--below-minimum-timeout", 120.0, "Seconds that an elastic job may be below minNodes.")
@_option(
    "--max-infrastructure-restarts", default=20, type=click.IntRange(0), help="For lost nodes and the like, at most."
)
@_option("--max-preemption-restarts", default=100, type=click.IntRange(0), help="Per job, for preemptions.")
@_option("--namespace", default="", help="Watch only this namespace. Default: all.")
@_option("--workers", default=8, type=click.IntRange(1, 256), help="Jobs that are reconciled at once.")
@_seconds("--read-timeout", 10.0, "Seconds for the read of one object from the API server.")
@_seconds("--list-timeout", 30.0, "Seconds for a page of a list, or until a watch begins.")
@_seconds("--write-timeout", 65.0, "Seconds for a write, the time that admission webhooks take included.")
@_seconds("--reconcile-timeout", 150.0, "Seconds for one reconcile; more than for a write.")
@_option("--leader-elect/--no-leader-elect", default=True, help="Elect a leader among the replicas.")
@_option("--lease-name", default="torchctl", help="Name of the Lease.")
@_option("--lease-namespace", default="", help="Its namespace. Default: the one this runs in.")
@_option("--lease-duration", default=15.0, help="Seconds without a renewal after which another replica may lead.")
@_option("--renew-deadline", default=10.0, help="Seconds for which a leader leads after its last renewal.")
@_option("--retry-period", default=2.0, help="Seconds between renewals.")
@_option("--metrics-port", default=8080, type=click.IntRange(0, 65535), help="Port of /metrics; 0 takes a free one.")
@_option(
    "--metrics-auth/--no-metrics-auth",
    default=False,
    help="/metrics only for bearer tokens of who may get it, by the API server's word; over TLS.",
)
@_option(
    "--metrics-cert-dir",
    default=None,
    help="Directory of tls.crt and tls.key, followed as they change: /metrics over TLS. Without them: self-signed.",
)
@_option("--health-port", default=8081, type=click.IntRange(0, 65535), help="Port of /healthz and /readyz.")
@_option("--bind-address", default=None, help="Address of both. Default: all.")
@_option(
    "--log-format",
    default="auto",
    type=click.Choice(["auto", "json", "console"]),
    help="How log lines look; auto: for people on a terminal, else JSON.",
)
@_option(
    "--log-level",
    default="info",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="The least important lines that are written.",
)
def run(**options: Any) -> None:
    """Run the operator until SIGTERM."""
    try:
        settings = _settings(options)
        configure(settings.runtime.log)
        relax()
        anyio.run(_serve, options["kubeconfig"], options["context"], settings)
    except (ConfigError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    except BaseExceptionGroup as group:
        tell_causes(group)
        sys.exit(1)


def _settings(options: dict[str, Any]) -> Operator:
    parents = options["kai_parent_queues"]
    resolv_conf = Path("/etc/resolv.conf")
    return Operator(
        operator=OperatorSettings(
            image=options["image"],
            cluster_domain=options["cluster_domain"]
            or cluster_domain_of(resolv_conf.read_text() if resolv_conf.exists() else ""),
            etcd_endpoint=options["etcd_endpoint"],
            gpu_type_label=options["gpu_type_label"],
            max_nodes=options["max_nodes"],
            queue_status_period_s=options["queue_status_period"],
            job_status_period_s=options["job_status_period"],
            kai_parent_queues=None if parents is None else frozenset(filter(None, parents.split(","))),
            restarting=Restarting(
                settle_s=options["incident_settle"],
                backoff_s=options["restart_backoff"],
                max_backoff_s=options["restart_backoff_max"],
                stable_s=options["restart_stable"],
                stuck_pod_s=options["stuck_pod_timeout"],
                below_minimum_s=options["below_minimum_timeout"],
                max_infrastructure=options["max_infrastructure_restarts"],
                max_preemption=options["max_preemption_restarts"],
            ),
        ),
        runtime=RuntimeSettings(
            namespace=options["namespace"],
            workers=options["workers"],
            reconcile_timeout_s=options["reconcile_timeout"],
            client=ClientSettings(
                read_timeout_s=options["read_timeout"],
                list_timeout_s=options["list_timeout"],
                write_timeout_s=options["write_timeout"],
            ),
            election=ElectionSettings(
                enabled=options["leader_elect"],
                lease_name=options["lease_name"],
                lease_namespace=options["lease_namespace"],
                lease_duration_s=options["lease_duration"],
                renew_deadline_s=options["renew_deadline"],
                retry_period_s=options["retry_period"],
            ),
            server=ServerSettings(
                host=options["bind_address"],
                metrics_port=options["metrics_port"],
                metrics_auth=options["metrics_auth"],
                metrics_cert_dir=options["metrics_cert_dir"],
                health_port=options["health_port"],
            ),
            log=LogSettings(format=options["log_format"], level=options["log_level"]),
        ),
    )
