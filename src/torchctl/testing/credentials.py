"""Everything on disk that a control plane needs before its first process starts: keys, users, policies."""

import ipaddress
import json
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path

from torchctl.testing.certificates import Authority, Pair, signing_key
from torchctl.testing.components import Layout, Options

__all__ = ["Credentials"]

_USERS = {
    "admin": "system:masters",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
}
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


class Credentials:
    """The authority and the users of one control plane, written into its directory."""

    def __init__(self, layout: Layout, options: Options) -> None:
        self._layout = layout
        self.authority = Authority()
        self._tokens = {user: secrets.token_hex(24) for user in _USERS}
        layout.root.mkdir(parents=True, exist_ok=True)
        for directory in (layout.pki, layout.logs):
            directory.mkdir(exist_ok=True)
        _write_pair(layout.ca, layout.ca_key, self.authority.pair)
        server = self.authority.server(_server_names(options))
        _write_pair(layout.certificate, layout.certificate_key, server)
        _write_pair(layout.token_public, layout.token_key, signing_key())
        rows = (f'{self._tokens[user]},{user},{user},"{groups}"\n' for user, groups in _USERS.items())
        _write(layout.users, "".join(rows).encode())
        _write(layout.audit_policy, json.dumps(_AUDIT_POLICY).encode())

    def token(self, user: str) -> str | None:
        """Returns the token of a user that has one from the start, else None."""
        return self._tokens.get(user)

    def client_files(self, user: str, groups: Sequence[str]) -> tuple[Path, Path]:
        """Writes a fresh client certificate and its key, for any user in any groups."""
        stem = self._layout.pki / f"user-{secrets.token_hex(4)}"
        certificate, key = stem.with_suffix(".crt"), stem.with_suffix(".key")
        _write_pair(certificate, key, self.authority.client(user, groups))
        return certificate, key


def _server_names(options: Options) -> list[str]:
    kubernetes = str(next(ipaddress.ip_network(options.service_cidr).hosts()))
    services = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
    return ["localhost", *services, "127.0.0.1", options.advertise_address, kubernetes, socket.gethostname()]


def _write_pair(certificate: Path, key: Path, pair: Pair) -> None:
    _write(certificate, pair.certificate)
    _write(key, pair.key)


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
