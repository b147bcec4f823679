"""The init container that asks a worker's etcd whether torchrun can meet there, before anything else is done.

The operator does not ask itself: the endpoint is a user's word, and the operator reaches what users do not. The
pod asks with the pod's own rights, and says in its termination message what is wrong.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torchctl.api import names
from torchctl.api.common import RdzvBackend
from torchctl.api.job import Launcher
from torchctl.controllers.job.children.containers import flag, workspace_container
from torchctl.controllers.job.template.frozen import FrozenRendezvous, FrozenTemplate

__all__ = ["TIMEOUT_S", "applies", "preflight_containers"]

TIMEOUT_S = 300
"""Seconds for which the rendezvous server may not answer. Workers start before the network policies of their job, and
often before its server."""

_FILES = {
    RdzvBackend.ETCD_V2: {"ca": "ca_cert", "certificate": "ssl_cert", "key": "ssl_cert_key"},
    RdzvBackend.ETCD: {"ca": "cacert", "certificate": "cert", "key": "key"},
}
"""The names that torchrun's two backends give files in rdzvConf (etcd_rendezvous_backend.py, etcd_rendezvous.py)."""
_DEFAULT_PROTOCOL = "http"

Json = dict[str, Any]


def applies(rendezvous: FrozenRendezvous, launcher: Launcher, pod: Json) -> bool:
    """Whether a container of ours can ask the rendezvous server as torchrun would, and there is one to ask.

    It cannot if a certificate is part of the trainer's image.
    """
    if rendezvous.backend not in _FILES or launcher is not Launcher.TORCHRUN:
        return False
    mounts = _brought(pod)
    files = _files(rendezvous).values()
    return _protocol(rendezvous) in ("http", "https") and all(_holder(mounts, path) is not None for path in files)


def preflight_containers(template: FrozenTemplate, endpoint: str) -> list[Json]:
    """The container, or none. `endpoint` is the one of the attempt, with its port."""
    rendezvous = template.rendezvous
    if not rendezvous.preflight:
        return []
    protocol, files = _protocol(rendezvous), _files(rendezvous)
    args = [
        "etcd",
        *flag("endpoint", endpoint),
        *flag("protocol", "" if protocol == _DEFAULT_PROTOCOL else protocol),
        *(word for option, path in files.items() for word in flag(option, path)),
        *flag("timeout", TIMEOUT_S),
    ]
    held = [_holder(_brought(template.pod), path) for path in files.values()]
    mounts = {mount["mountPath"]: mount | {"readOnly": True} for mount in held if mount is not None}
    ours = workspace_container(names.PREFLIGHT_CONTAINER, template.operator_image, args, ())
    ours |= {"command": ["torchctl", "preflight"]}
    del ours["volumeMounts"]  # it writes nothing
    return [ours | ({"volumeMounts": list(mounts.values())} if mounts else {})]


def _protocol(rendezvous: FrozenRendezvous) -> str:
    return rendezvous.conf.get("protocol", _DEFAULT_PROTOCOL).strip().lower()


def _files(rendezvous: FrozenRendezvous) -> Mapping[str, str]:
    """The files that the connection needs, by our option; without TLS torchrun looks at none."""
    if _protocol(rendezvous) != "https":
        return {}
    named = {option: rendezvous.conf.get(key, "") for option, key in _FILES[RdzvBackend(rendezvous.backend)].items()}
    return {option: path for option, path in named.items() if path}


def _brought(pod: Json) -> Sequence[Json]:
    """The mounts of the trainer that do not wait for the operator's own work."""
    mounts: Sequence[Json] = pod["spec"]["containers"][0].get("volumeMounts", ())
    return mounts


def _holder(mounts: Sequence[Json], path: str) -> Json | None:
    """The mount that a file is in: the innermost one."""
    above = (mount for mount in mounts if path.startswith(mount["mountPath"].rstrip("/") + "/"))
    return max(above, key=lambda mount: len(mount["mountPath"]), default=None)
