"""Builds the command lines of the control plane's components. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["COMPONENTS", "ENVIRONMENT", "Layout", "Options", "Ports", "command_line"]

COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
"""The components in the order in which they start."""

ENVIRONMENT: Mapping[str, str] = {"GOGC": "400", "GOMEMLIMIT": "2GiB"}
"""Go collects garbage when the heap has grown by GOGC per cent, and always at GOMEMLIMIT. The default of 100 costs
nearly a quarter of the API server's time under load."""

_LOOPBACK = "127.0.0.1"
_ISSUER = "https://kubernetes.default.svc.cluster.local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a control plane. The defaults are for the loopback interface without nodes."""

    bind_address: str = _LOOPBACK
    """The address that kube-apiserver listens on; 0.0.0.0 if pods have to reach it."""

    advertise_address: str = _LOOPBACK
    """The address behind the Service `kubernetes`. A loopback address gives no endpoint, because the API refuses it."""

    service_cidr: str = "10.96.0.0/16"

    authorization_mode: str = "RBAC"
    """`Node,RBAC` for a kubelet with credentials of its own."""

    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Further arguments by component. They come last, and the last one wins."""

    start_timeout_s: float = 90.0
    """Seconds that a component may take to be ready. An idle machine with two cores needs about 4."""


@dataclass(frozen=True, slots=True)
class Ports:
    etcd: int
    apiserver: int
    controller_manager: int
    scheduler: int


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of the files of one control plane."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "etcd"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def ca(self) -> Path:
        return self.pki / "ca.crt"

    @property
    def ca_key(self) -> Path:
        return self.pki / "ca.key"

    @property
    def certificate(self) -> Path:
        return self.pki / "server.crt"

    @property
    def certificate_key(self) -> Path:
        return self.pki / "server.key"

    @property
    def token_public(self) -> Path:
        """Verifies service account tokens."""
        return self.pki / "service-account.pub"

    @property
    def token_key(self) -> Path:
        """Signs service account tokens."""
        return self.pki / "service-account.key"

    @property
    def users(self) -> Path:
        return self.root / "users.csv"

    @property
    def audit_policy(self) -> Path:
        return self.root / "audit-policy.json"

    @property
    def audit_log(self) -> Path:
        return self.root / "audit.log"

    def kubeconfig(self, user: str) -> Path:
        return self.root / f"{user.replace(':', '-')}.kubeconfig"


def command_line(component: str, layout: Layout, ports: Ports, options: Options) -> list[str]:
    """Returns the command line of one component. Raises KeyError for a name that is not in COMPONENTS."""
    return [*_COMMANDS[component](layout, ports, options), *options.flags.get(component, ())]


def _etcd(layout: Layout, ports: Ports, options: Options) -> list[str]:
    url = f"http://{_LOOPBACK}:{ports.etcd}"
    return [
        f"--data-dir={layout.data}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls=http://{_LOOPBACK}:0",
        "--unsafe-no-fsync",  # writes survive the process but not the machine, which is enough for a test
        "--log-level=warn",
    ]


def _apiserver(layout: Layout, ports: Ports, options: Options) -> list[str]:
    endpoints = ["--endpoint-reconciler-type=none"] if options.advertise_address == _LOOPBACK else []
    return [
        f"--etcd-servers=http://{_LOOPBACK}:{ports.etcd}",
        f"--bind-address={options.bind_address}",
        f"--advertise-address={options.advertise_address}",
        f"--secure-port={ports.apiserver}",
        f"--cert-dir={layout.pki}",
        f"--tls-cert-file={layout.certificate}",
        f"--tls-private-key-file={layout.certificate_key}",
        f"--client-ca-file={layout.ca}",
        f"--token-auth-file={layout.users}",
        f"--authorization-mode={options.authorization_mode}",
        f"--service-account-issuer={_ISSUER}",
        f"--service-account-key-file={layout.token_public}",
        f"--service-account-signing-key-file={layout.token_key}",
        f"--service-cluster-ip-range={options.service_cidr}",
        f"--audit-policy-file={layout.audit_policy}",
        f"--audit-log-path={layout.audit_log}",
        "--audit-log-maxsize=4096",
        # Without it, a server that gets SIGTERM waits a minute for its watches.
        "--shutdown-watch-termination-grace-period=1s",
        "--allow-privileged=true",
        *endpoints,
    ]


def _controller_manager(layout: Layout, ports: Ports, options: Options) -> list[str]:
    return [
        *_controller(layout, "kube-controller-manager", ports.controller_manager),
        f"--service-account-private-key-file={layout.token_key}",
        f"--root-ca-file={layout.ca}",
        f"--cluster-signing-cert-file={layout.ca}",
        f"--cluster-signing-key-file={layout.ca_key}",
        "--use-service-account-credentials",
        # A test with 200 jobs would measure the default limit of 20/s.
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]


def _scheduler(layout: Layout, ports: Ports, options: Options) -> list[str]:
    return [
        *_controller(layout, "kube-scheduler", ports.scheduler),
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]


def _controller(layout: Layout, name: str, port: int) -> list[str]:
    config = layout.kubeconfig(f"system:{name}")
    return [
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        f"--bind-address={_LOOPBACK}",
        f"--secure-port={port}",
        f"--tls-cert-file={layout.certificate}",
        f"--tls-private-key-file={layout.certificate_key}",
        "--leader-elect=false",
    ]


_COMMANDS = {
    "etcd": _etcd,
    "kube-apiserver": _apiserver,
    "kube-controller-manager": _controller_manager,
    "kube-scheduler": _scheduler,
}
