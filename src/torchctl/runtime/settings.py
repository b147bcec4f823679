"""The runtime's settings, each value with its meaning, default and consequence."""

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["ClientSettings", "ElectionSettings", "LogSettings", "RuntimeSettings", "ServerSettings", "WebhookSettings"]

ELECTION_JITTER = 1.2
"""A standby polls every `retry_period_s` times a random 1 to 1 + this factor (client-go's JitterFactor)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Deadlines of requests to the API server. The Lease has a shorter deadline of its own, see
    `ElectionSettings.request_timeout_s`.

    Raises:
        ValueError: A deadline is not positive.
    """

    read_timeout_s: float = 10.0
    """Deadline for the read of one object. A read that fails is repeated, for 30 s in all."""

    list_timeout_s: float = 30.0
    """Deadline for one page of a list, for a log, and for the beginning of a watch."""

    write_timeout_s: float = 65.0
    """Deadline for one write. Admission webhooks run meanwhile, and each may take 30 s. It must exceed the API server's
    own `--request-timeout` (60 s): else a slow write is given up each time and never made."""

    connect_timeout_s: float = 4.0
    """Seconds for TCP and TLS together, whatever the number of addresses. With leader election it must be below the
    margin between `lease_duration_s` and `renew_deadline_s`: a write has passed the fence before it connects."""

    max_connections: int = 64
    """Connections for requests. Each watch has one of its own besides, and the Lease two."""

    def __post_init__(self) -> None:
        deadlines = (self.read_timeout_s, self.list_timeout_s, self.write_timeout_s, self.connect_timeout_s)
        if min(deadlines) <= 0:
            raise ValueError("the deadlines of requests must be positive")
        if self.max_connections < 1:
            raise ValueError("max_connections must be positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionSettings:
    """Settings of leader election. The defaults are client-go's.

    Raises:
        ValueError: The periods do not leave the old leader time to stop before another one may start.
    """

    enabled: bool = True
    """False: this process always leads. Safe only while no second one runs."""

    lease_name: str = ""
    """Name of the Lease. Empty: the program's name."""

    lease_namespace: str = ""
    """Namespace of the Lease. Empty: the namespace that the process runs in."""

    lease_duration_s: float = 15.0
    """Seconds that standbys wait after the last renewal that they saw. A killed leader is replaced within this time.
    Written to the Lease in whole seconds, rounded up."""

    renew_deadline_s: float = 10.0
    """Seconds after sending its last good renewal for which a leader may still write. The API server may be away for
    that long, less `retry_period_s`, without a change of leader. The lease must last longer than this by more than
    `ClientSettings.connect_timeout_s`: a write that the fence has let pass may take that long to connect."""

    retry_period_s: float = 2.0
    """Seconds between renewals by the leader, and between polls by a standby whose watch is broken. Each renewal is one
    write."""

    release: bool = True
    """Give the Lease up on a graceful stop, so that another replica leads at once."""

    def __post_init__(self) -> None:
        if self.retry_period_s <= 0:
            raise ValueError("retry_period_s must be positive")
        if self.renew_deadline_s <= ELECTION_JITTER * self.retry_period_s:
            raise ValueError(f"renew_deadline_s must exceed {ELECTION_JITTER} x retry_period_s")
        if self.lease_duration_s <= self.renew_deadline_s:
            raise ValueError("lease_duration_s must exceed renew_deadline_s")

    @property
    def request_timeout_s(self) -> float:
        """The deadline of one request for the Lease: two fit into the renew deadline."""
        return self.renew_deadline_s / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Settings of `/metrics`, `/healthz` and `/readyz`. A port of None is not served, 0 takes a free one."""

    host: str | None = None
    """The address to listen on. None: all addresses, IPv4 and IPv6."""

    metrics_port: int | None = 8080
    health_port: int | None = 8081

    metrics_auth: bool = False
    """Serve `/metrics` only to clients with a bearer token that the API server accepts and whose RBAC rules allow `get`
    on the path. Always over TLS, with a self-signed certificate if there is no other."""

    metrics_cert_dir: str | None = None
    """A directory with `tls.crt` and `tls.key`, which may change. If set, `/metrics` is served over TLS; while the
    files are unusable, with a self-signed certificate."""

    max_connections: int = 32
    """Connections per port. A further one replaces the oldest, so that a flood cannot exhaust file descriptors."""

    request_timeout_s: float = 10.0
    """Seconds that a connection may last, slow clients included; 10 s more if the API server must review its token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """Settings of admission webhooks. Nothing listens unless a webhook is added."""

    host: str | None = None
    """The address to listen on. None: all addresses, IPv4 and IPv6."""

    port: int = 9443
    """controller-runtime's. 0 takes a free one."""

    cert_dir: str | None = None
    """A directory with `tls.crt` and `tls.key`, read again every 10 s: a renewed certificate needs no restart. The
    `caBundle` of the webhook's configuration has to name its issuer; a self-signed one, taken without it, cannot."""

    max_connections: int = 256
    """Reviews at once. A further one replaces the oldest."""

    request_timeout_s: float = 35.0
    """Seconds that a review may take. The API server waits at most 30."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    format: Literal["auto", "json", "console"] = "auto"
    """auto: console if the stream is a terminal, else one JSON object a line."""

    level: Literal["debug", "info", "warning", "error"] = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """The settings of a manager and what it runs.

    Raises:
        ValueError: A reconcile has no time for a single slow write, or a write may connect longer than its leader's
            lease lasts.
    """

    namespace: str = ""
    """The namespaces to watch, separated by commas; empty watches all. Each costs a watch per kind."""

    workers: int = 4
    """Reconciles that a controller runs at once, unless the controller says otherwise."""

    reconcile_timeout_s: float = 150.0
    """A reconcile that takes longer is cancelled, counted and retried with back-off; a controller may say otherwise.
    Two writes that use up their time fit in."""

    cache_sync_timeout_s: float = 120.0
    """Seconds that the first lists may take. Then the process ends with an error that names the kinds."""

    resync_s: float = 36_000.0
    """Seconds within which a controller reconciles each object once although nothing changed, evenly spread: a safety
    net under lost events. 0: never. controller-runtime's 10 h. A controller may say otherwise."""

    barrier_timeout_s: float = 10.0
    """Seconds that a reconcile waits for the cache to see the writes of the previous one."""

    watch_age_limit_s: float = 300.0
    """Seconds without any attempt after which a watch fails `/healthz`; an API server that is away does not."""

    watch_refused_limit_s: float = 300.0
    """Seconds of refusals (401, 403, 404) after which the watch of a required kind fails `/healthz`, because its cache
    is stale. The restarted process says which kind is refused, and ends."""

    queue_age_limit_s: float = 300.0
    """Seconds that keys may be due while no worker takes any before `/healthz` fails. A long backlog alone is fine."""

    loop_lag_limit_s: float = 10.0
    """Seconds of event loop lag above which `/healthz` fails."""

    sampling_period_s: float = 0.5
    """Seconds between two looks at the event loop's lag and at the workqueues, for their metrics (client-go's period).
    Each look wakes an idle process; what is shorter than the period may be missed, and one lag above `loop_lag_limit_s`
    fails `/healthz` until the next look. More than 0."""

    shutdown_grace_s: float = 30.0
    """Seconds that reconciles may take to end after SIGTERM. Then they are cancelled."""

    cancel_grace_s: float = 10.0
    """Seconds after that for which a cancelled reconcile may still hang in a thread. Then `torchctl run` ends the
    process. A pod's terminationGracePeriodSeconds should be longer than both together."""

    client: ClientSettings = field(default_factory=ClientSettings)
    election: ElectionSettings = field(default_factory=ElectionSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    webhooks: WebhookSettings = field(default_factory=WebhookSettings)
    log: LogSettings = field(default_factory=LogSettings)

    @property
    def exit_limit_s(self) -> float:
        """Seconds from SIGTERM after which the process is ended, whatever still runs."""
        return self.shutdown_grace_s + self.cancel_grace_s

    def __post_init__(self) -> None:
        if self.sampling_period_s <= 0:
            raise ValueError("sampling_period_s must be positive")
        if self.reconcile_timeout_s <= self.client.write_timeout_s:
            raise ValueError("reconcile_timeout_s must exceed the client's write_timeout_s")
        margin_s = self.election.lease_duration_s - self.election.renew_deadline_s
        if self.election.enabled and margin_s <= self.client.connect_timeout_s:
            raise ValueError(
                "lease_duration_s must exceed renew_deadline_s by more than the client's connect_timeout_s: the margin "
                f"is {margin_s:g} s, connecting may take {self.client.connect_timeout_s:g} s; lower connect_timeout_s"
            )
