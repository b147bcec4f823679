"""What a user of the runtime can set, each value with its meaning, default and consequence."""

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["ClientSettings", "ElectionSettings", "LogSettings", "RuntimeSettings", "ServerSettings"]

ELECTION_JITTER = 1.2
"""A standby polls every `retry_period_s` times 1 to this much more again (client-go's JitterFactor)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How long the API server may take for one request. The Lease has a shorter deadline of its own, see
    `ElectionSettings.request_timeout_s`.

    Raises:
        ValueError: A deadline is not positive.
    """

    read_timeout_s: float = 10.0
    """For the read of one object. It is repeated after that, for 30 s in all."""

    list_timeout_s: float = 30.0
    """For one page of a list, for a log, and until a watch begins."""

    write_timeout_s: float = 65.0
    """For one write. Admission webhooks are asked meanwhile, each of which may take 30 s; a write that is given up
    sooner than the API server does (60 s, its `--request-timeout`) is never made, however often it is tried."""

    def __post_init__(self) -> None:
        if min(self.read_timeout_s, self.list_timeout_s, self.write_timeout_s) <= 0:
            raise ValueError("the deadlines of requests must be positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionSettings:
    """How replicas agree on the one that acts. The defaults are client-go's.

    Raises:
        ValueError: The periods do not leave the old leader time to stop before another one may start.
    """

    enabled: bool = True
    """False: this process always leads. Safe only while no second one runs."""

    lease_name: str = "torchctl"
    lease_namespace: str = ""
    """Empty: the namespace that the process runs in."""

    lease_duration_s: float = 15.0
    """How long the others wait after the last renewal that they saw. A killed leader is replaced within it.
    Written to the Lease in whole seconds, rounded up."""

    renew_deadline_s: float = 10.0
    """How long after sending its last good renewal a leader may still write. The API server may be away for
    that long, less `retry_period_s`, without a change of leader. The lease should last more than 4 s longer: a write
    that the fence has let pass may take that long to connect."""

    retry_period_s: float = 2.0
    """How often the leader renews and a standby whose watch is broken looks. Each renewal is one write."""

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
    """Where `/metrics`, `/healthz` and `/readyz` listen. A port of None is not served, 0 takes a free one."""

    host: str | None = None
    """None: all addresses, IPv4 and IPv6."""

    metrics_port: int | None = 8080
    health_port: int | None = 8081

    metrics_auth: bool = False
    """Whether `/metrics` is only for bearer tokens that the API server knows, of who may `get` it there. Always over
    TLS, with a self-signed certificate where there is no other."""

    metrics_cert_dir: str | None = None
    """A directory with `tls.crt` and `tls.key`, which may change: `/metrics` is served over TLS. Without usable ones
    it is self-signed."""

    max_connections: int = 32
    """Per port. A further one takes the place of the oldest, so that a flood cannot exhaust file descriptors."""

    request_timeout_s: float = 10.0
    """How long a connection may last, slow clients included; 10 s more where somebody has to be asked about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    format: Literal["auto", "json", "console"] = "auto"
    """auto: console where the stream is a terminal, else one JSON object a line."""

    level: Literal["debug", "info", "warning", "error"] = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeSettings:
    """The settings of a manager and what it runs.

    Raises:
        ValueError: A reconcile has no time for a single slow write.
    """

    namespace: str = ""
    """The namespace to watch; empty watches all."""

    workers: int = 4
    """Reconciles that a controller runs at once, where the controller does not say."""

    reconcile_timeout_s: float = 150.0
    """A reconcile that takes longer is cancelled, counted and retried with back-off; a controller may say otherwise.
    Two writes that use up their time fit in."""

    cache_sync_timeout_s: float = 120.0
    """How long the first lists may take. Then the process ends with an error that names the kinds."""

    barrier_timeout_s: float = 10.0
    """How long a reconcile waits for the cache to see the writes of the previous one."""

    watch_age_limit_s: float = 300.0
    """A watch that did not even try for longer fails `/healthz`; an API server that is away does not."""

    watch_refused_limit_s: float = 300.0
    """A required kind whose watch the API server refuses (401, 403, 404) for longer fails `/healthz`, because its cache
    shows the past. The restarted process says which kind is refused, and ends."""

    queue_age_limit_s: float = 300.0
    """Keys that are due while no worker takes any for longer fail `/healthz`. A long backlog alone does not."""

    loop_lag_limit_s: float = 10.0
    """An event loop that is later than this fails `/healthz`."""

    shutdown_grace_s: float = 30.0
    """How long reconciles may take to end after SIGTERM. Then they are cancelled."""

    client: ClientSettings = field(default_factory=ClientSettings)
    election: ElectionSettings = field(default_factory=ElectionSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    log: LogSettings = field(default_factory=LogSettings)

    def __post_init__(self) -> None:
        if self.reconcile_timeout_s <= self.client.write_timeout_s:
            raise ValueError("reconcile_timeout_s must exceed the client's write_timeout_s")
