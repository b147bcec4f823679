"""Secure defaults of the pods that we make; whoever writes the queue's podTemplate overrides them key by key."""

from collections.abc import Mapping
from typing import Any

from torchctl.controllers.job.template.merge import deep

__all__ = ["NOBODY", "container", "pod", "runs_as_default_user", "sync_pod"]

NOBODY = 65532
"""The user that has nothing, by the convention of distroless images."""

_POD: dict[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": NOBODY,
    "runAsGroup": NOBODY,
    "fsGroup": NOBODY,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
_CONTAINER: dict[str, Any] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_FILE_ACCESS = ("runAsUser", "runAsGroup", "fsGroup", "fsGroupChangePolicy", "supplementalGroups", "seLinuxOptions")


def pod(given: Mapping[str, Any]) -> dict[str, Any]:
    """A pod's securityContext: the defaults of the restricted standard under what is given."""
    defaults = dict(_POD)
    if given.get("runAsUser") == 0:
        del defaults["runAsNonRoot"]  # it would only make the pod fail
    return deep(defaults, given)


def container(given: Mapping[str, Any]) -> dict[str, Any]:
    """A container's securityContext."""
    defaults = dict(_CONTAINER)
    added = given.get("capabilities", {}).get("add", ())
    if given.get("privileged") or {"SYS_ADMIN", "CAP_SYS_ADMIN"} & set(added):
        del defaults["allowPrivilegeEscalation"]  # the API refuses the combination
    if given.get("runAsUser") == 0:
        defaults["runAsNonRoot"] = False
    return deep(defaults, given)


def sync_pod(workers: Mapping[str, Any]) -> dict[str, Any]:
    """The sync pod's securityContext: the workers' user, so that they can read what it writes, but never root."""
    if workers.get("runAsUser", NOBODY) == 0:
        return dict(_POD)
    return _POD | {key: workers[key] for key in _FILE_ACCESS if key in workers}


def runs_as_default_user(pod_context: Mapping[str, Any], trainer_context: Mapping[str, Any]) -> bool:
    """Whether nobody chose the user: the image then may not know it, so it needs a home and a name."""
    return "runAsUser" not in pod_context and "runAsUser" not in trainer_context
