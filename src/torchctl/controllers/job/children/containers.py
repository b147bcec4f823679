"""Builds the operator's own containers, which share an image, few rights, few resources, and a read-only root."""

from collections.abc import Sequence
from typing import Any

from torchctl.controllers.job.template import security
from torchctl.controllers.owncontainers import LIMITS, REQUESTS

__all__ = ["CLAIM_ROOT", "TMP", "field", "flag", "mount", "port", "tmp_volume", "workspace_container"]

CLAIM_ROOT = "/workspace"
"""The directory at which the operator's containers mount the workspace claim."""
TMP = "torchrun-tmp"

Json = dict[str, Any]


def workspace_container(
    name: str, image: str, args: Sequence[str], mounts: Sequence[Json], *, memory_limit: str = LIMITS["memory"]
) -> Json:
    """A container that runs `torchctl workspace ...`, configured by argv alone."""
    return {
        "name": name,
        "image": image,
        "command": ["torchctl", "workspace"],
        "args": list(args),
        "env": [{"name": "HOME", "value": "/tmp"}],
        "resources": {"requests": {**REQUESTS}, "limits": {**LIMITS, "memory": memory_limit}},
        "securityContext": security.container({}) | {"readOnlyRootFilesystem": True},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [*mounts, mount(TMP, "/tmp")],
    }


def flag(name: str, value: str | int) -> list[str]:
    """One option in the form that a value which begins with '-' cannot break; none for an empty value."""
    return [f"--{name}={value}"] if value != "" else []


def field(name: str, path: str) -> Json:
    """A variable that has a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def port(name: str, number: int) -> Json:
    return {"name": name, "containerPort": number, "protocol": "TCP"}


def mount(volume: str, path: str, *, sub_path: str = "", read_only: bool = False) -> Json:
    found: Json = {"name": volume, "mountPath": path}
    if sub_path:
        found["subPath"] = sub_path
    return found | ({"readOnly": True} if read_only else {})


def tmp_volume() -> Json:
    return {"name": TMP, "emptyDir": {"sizeLimit": "256Mi"}}
