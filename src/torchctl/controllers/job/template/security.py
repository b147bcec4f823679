"""Secure defaults of the pods that we make; whoever writes the queue's podTemplate overrides them key by key.

A null in its place takes a default away, so that somebody else can decide: OpenShift gives each namespace users of its
own, and admits no pod that names another one. If the whole securityContext is null, none of its defaults is left.
"""

from collections.abc import Mapping
from typing import Any

from torchctl.api.written import without_null
from torchctl.controllers.job.template.merge import deep

__all__ = ["KEY", "NOBODY", "container", "pod", "runs_as_default_user", "secured", "sync_pod"]

KEY = "securityContext"
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


def pod(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """A pod's securityContext: the defaults of the restricted standard under what is given."""
    if given is None:
        return {}
    defaults = dict(_POD)
    if given.get("runAsUser") == 0:
        del defaults["runAsNonRoot"]  # it would only make the pod fail
    return _over(defaults, given)


def container(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """A container's securityContext."""
    if given is None:
        return {}
    defaults = dict(_CONTAINER)
    added = (given.get("capabilities") or {}).get("add") or ()
    if given.get("privileged") or {"SYS_ADMIN", "CAP_SYS_ADMIN"} & set(added):
        del defaults["allowPrivilegeEscalation"]  # the API refuses the combination
    if given.get("runAsUser") == 0:
        defaults["runAsNonRoot"] = False
    return _over(defaults, given)


def secured(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a user's container with the defaults in its securityContext."""
    return {**given, KEY: container(given.get(KEY, {}))}


def sync_pod(workers: Mapping[str, Any]) -> dict[str, Any]:
    """The sync pod's securityContext: the workers' user, so that they can read what it writes, but never root.

    Args:
        workers: What `pod` made: a default that is missing in it was taken away, and is missing here too.
    """
    if workers.get("runAsUser", NOBODY) == 0:
        return dict(_POD)
    defaults = {key: value for key, value in _POD.items() if key in workers or key == "runAsNonRoot"}
    return defaults | {key: workers[key] for key in _FILE_ACCESS if key in workers}


def runs_as_default_user(pod_context: Mapping[str, Any] | None, trainer_context: Mapping[str, Any] | None) -> bool:
    """Whether nobody chose the user: the image then may not know it, so it needs a home and a name."""
    return all((context or {}).get("runAsUser") is None for context in (pod_context, trainer_context))


def _over(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = without_null(deep(defaults, given))
    return merged
