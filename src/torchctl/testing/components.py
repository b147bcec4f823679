"""The command lines of the control plane's components: values in, arguments out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["COMPONENTS", "ENVIRONMENT", "Layout", "Options", "Ports", "command_line"]

COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
"""In the order in which they start."""

ENVIRONMENT: Mapping[str, str] = {"GOGC": "400", "GOMEMLIMIT": "2GiB"}
"""Go collects garbage when the heap has grown by so many per cent, and always at the limit. Its own 100 costs nearly a
quarter of the API server's time under load."""

_LOOPBACK = "127.0.0.1"
_ISSUER = "https://kubernetes.default.svc.cluster.local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How the control plane differs from one on the loopback interface without nodes."""

    bind_address: str = _LOOPBACK
    """Where kube-apiserver listens; 0.0.0.0 when pods have to reach it."""

    advertise_address: str = _LOOPBACK
    """The address behind the Service `kubernetes`. On the loopback there is no such endpoint: the API refuses it."""

    service_cidr: str = "10.96.0.0/16"

    authorization_mode: str = "RBAC"
    """`Node,RBAC` for a kubelet with credentials of its own."""

    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Further arguments by component. They come last, and the last one wins."""

    start_timeout_s: float = 90.0
    """How long a component may take to be ready. About 4 s are needed on an idle machine of two cores."""


@dataclass(frozen=True, slots=True)
class Ports:
    etcd: int
    apiserver: int
    controller_manager: int
    scheduler: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Where each file of one control plane is."""

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
    """The arguments of one component. Raises KeyError for a name that is not in COMPONENTS."""
    return [*_COMMANDS[component](layout, ports, options), *options.flags.get(component, ())]


def _etcd(layout: Layout, ports: Ports, options: Options) -> list[str]:
    url = f"http://{_LOOPBACK}:{ports.etcd}"
    return [
        f"--data-dir={layout.data}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls=http://{_LOOPBACK}:0",
        "--unsafe-no-fsync",  # what was written survives the process, not the machine: enough for a test
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
        # Without it a server that is asked to stop waits a minute for its watches.
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
        # Its own limit of 20/s would be what a test of 200 jobs measures.
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
