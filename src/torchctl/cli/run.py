"""`torchctl run`: the operator as a process."""

from torchctl.runtime import lean  # isort: skip  # noqa: F401  # for its effect, before structlog

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click
from pydantic import TypeAdapter, ValidationError

from torchctl.api.fields import DnsName
from torchctl.cli.resolv import cluster_domain_of
from torchctl.controllers.coordinator.reconciler import setup as setup_coordinator
from torchctl.controllers.job.reconciler import setup as setup_jobs
from torchctl.controllers.queue.reconciler import setup as setup_queues
from torchctl.controllers.settings import CoordinatorSettings, OperatorSettings, PolicyName, Restarting
from torchctl.runtime import program
from torchctl.runtime.client.config import Connection
from torchctl.runtime.manager import Manager, Setup
from torchctl.runtime.program import managing
from torchctl.runtime.settings import ClientSettings, ElectionSettings, LogSettings, RuntimeSettings, ServerSettings

__all__ = ["ENTRY_POINTS", "Operator", "operator", "run"]

ENTRY_POINTS = "torchctl.reconcilers"
"""Entry-point group of reconcilers from other packages: functions that add their controllers to the manager."""

NAME = "torchctl"


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
    async with managing(connection, settings.runtime, NAME, setups=(*_own(settings), *setups)) as manager:
        yield manager


def _own(settings: Operator) -> Iterable[Setup]:
    yield partial(setup_queues, settings=settings.operator)
    yield partial(setup_jobs, settings=settings.operator)
    if settings.operator.coordinator is not None:
        yield partial(setup_coordinator, settings=settings.operator.coordinator)


def installed_setups() -> list[Setup]:
    """Returns the reconcilers of other installed packages."""
    return [entry_point.load() for entry_point in entry_points(group=ENTRY_POINTS)]


def _option(*names: str, **attributes: Any) -> Callable[[Any], Any]:
    return click.option(*names, show_default=True, show_envvar=True, **attributes)


def _seconds(name: str, default: float, text: str) -> Callable[[Any], Any]:
    return _option(name, default=default, type=click.FloatRange(0), help=text)


def _scheduler(_: click.Context, __: click.Parameter, given: str) -> str:
    """Refuses what a queue could not name either: it would stand in every pod, and no scheduler would take it."""
    try:
        return given and TypeAdapter(DnsName).validate_python(given)
    except ValidationError as error:
        raise click.BadParameter(f"{given!r} is not the name of a scheduler, such as auto or volcano") from error


def _cohort_policies(_: click.Context, __: click.Parameter, given: Sequence[str]) -> dict[str, PolicyName]:
    found = dict[str, PolicyName]()
    for one in given:
        cohort, _equals, policy = one.partition("=")
        if not cohort or policy not in list(PolicyName):
            known = ", ".join(PolicyName)
            raise click.BadParameter(f"{one!r} is not COHORT=POLICY, where POLICY is one of {known}")
        found[cohort] = PolicyName(policy)
    return found


@click.command()
@_option("--kubeconfig", help="Path to a kubeconfig. Default: $KUBECONFIG, ~/.kube/config, the pod's account.")
@_option("--context", help="Context of the kubeconfig.")
@_option("--image", envvar="TORCHCTL_IMAGE", required=True, help="Image of torchctl: sync and init containers.")
@_option("--cluster-domain", default=None, help="Domain of the cluster's DNS. Default: as in /etc/resolv.conf.")
@_option("--etcd-endpoint", default="etcd.etcd-system.svc:2379", help="For jobs that meet in etcd.")
@_option(
    "--default-scheduler",
    default="",
    callback=_scheduler,
    help="Of queues that name none: auto, volcano, ... Default: the cluster's.",
)
@_option(
    "--coordinator/--no-coordinator",
    default=False,
    help="Let jobs in that no gang scheduler places: whole gangs, queues in turn, quotas. Needs config/coordinator.",
)
@_option(
    "--coordinator-policy",
    default=PolicyName.SMOOTH_WEIGHTED_ROUND_ROBIN.value,
    type=click.Choice([policy.value for policy in PolicyName]),
    help="The order in which queues take their turns.",
)
@_option(
    "--coordinator-cohort-policy",
    multiple=True,
    callback=_cohort_policies,
    metavar="COHORT=POLICY",
    help="The order within one cohort, whose queues then take their turns as one. May be repeated.",
)
@_seconds("--coordinator-reserve-after", 600.0, "Seconds before room is kept for the first job of a queue.")
@_seconds("--coordinator-place-within", 300.0, "Seconds for which a job that was let in may have pods without a node.")
@_seconds("--coordinator-provision-within", 1200.0, "The same in queues whose capacity is Autoscaled.")
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
@_option(
    "--kueue-place-period",
    default=30.0,
    type=click.FloatRange(1, 3600),
    help="Seconds by which the place in Kueue's queue may lag that a job is told; one read of each queue within.",
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
@_seconds("--connect-timeout", 4.0, "Seconds to connect; less than --lease-duration exceeds --renew-deadline by.")
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
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    setups = (*_own(settings), *installed_setups())
    program.run(NAME, *setups, settings=settings.runtime, kubeconfig=options["kubeconfig"], context=options["context"])


def _coordinator(options: dict[str, Any]) -> CoordinatorSettings:
    return CoordinatorSettings(
        policy=PolicyName(options["coordinator_policy"]),
        cohort_policies=options["coordinator_cohort_policy"],
        reserve_after_s=options["coordinator_reserve_after"],
        place_within_s=options["coordinator_place_within"],
        provision_within_s=options["coordinator_provision_within"],
    )


def _settings(options: dict[str, Any]) -> Operator:
    if options["coordinator"] and options["namespace"]:
        raise ValueError("--coordinator needs the whole cluster, because all pods take room: leave --namespace out")
    parents = options["kai_parent_queues"]
    resolv_conf = Path("/etc/resolv.conf")
    return Operator(
        operator=OperatorSettings(
            image=options["image"],
            cluster_domain=options["cluster_domain"]
            or cluster_domain_of(resolv_conf.read_text() if resolv_conf.exists() else ""),
            etcd_endpoint=options["etcd_endpoint"],
            gpu_type_label=options["gpu_type_label"],
            default_scheduler=options["default_scheduler"],
            max_nodes=options["max_nodes"],
            coordinator=_coordinator(options) if options["coordinator"] else None,
            queue_status_period_s=options["queue_status_period"],
            job_status_period_s=options["job_status_period"],
            kueue_place_period_s=options["kueue_place_period"],
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
                connect_timeout_s=options["connect_timeout"],
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
