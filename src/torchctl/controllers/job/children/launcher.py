"""The launcher of a worker whose job reloads its code while it runs: how it comes into the pod, and what it starts.

It is the container's first process and runs with the image's own python3; torchrun is its child. Its one file is copied
into a volume that the trainer mounts read-only. A worker of a job without hot reload has none of this.
"""

from collections.abc import Sequence
from typing import Any

from torchctl.api.job import HotReload
from torchctl.api.kube import Job
from torchctl.api.names import LAUNCHER_ROOT
from torchctl.controllers.job.children.containers import flag, mount, workspace_container
from torchctl.controllers.job.children.owner import Owner
from torchctl.controllers.job.children.workspace import companion_url
from torchctl.controllers.job.template.frozen import FrozenTemplate

__all__ = ["launched", "launcher_containers", "launcher_mounts", "launcher_volumes"]

_VOLUME = "torchrun-launcher"
_CONTAINER = "launcher"
_INDEX = "$(JOB_COMPLETION_INDEX)"
"""The pod's index in its Job: the kubelet puts it in the place of this text."""

Json = dict[str, Any]


def launched(owner: Owner, template: FrozenTemplate, argv: Sequence[str], *, nodes: int, made: Job | None) -> list[str]:
    """Returns the trainer's command with the launcher before it.

    Args:
        nodes: How many workers there are to be; those of an elastic job are told how many it was when they were made.
        made: The Job as it is, whose command cannot be changed.
    """
    assert template.workspace is not None
    return [
        "python3",
        f"{LAUNCHER_ROOT}/launcher.py",
        *_option("companion", companion_url(owner, template.cluster_domain)),
        *_option("index", _INDEX),
        *_option("nodes", str(template.max_nodes)),
        *(_option("min", str(template.min_nodes)) if template.elastic else ()),
        *(_expected(nodes, made) if template.elastic else ()),
        *_option("nproc", str(template.nproc_per_node)),
        *_option("workdir", template.workspace.mount_path),
        *(["--warm"] if template.hot_reload == HotReload.WARM_START else ()),
        "--",
        *argv,
    ]


def _expected(nodes: int, made: Job | None) -> list[str]:
    if made is None:
        return _option("expected", str(nodes))
    words: list[str] = made.spec["template"]["spec"]["containers"][0]["command"]
    at = words.index("--expected") if "--expected" in words[: words.index("--")] else len(words)
    return words[at : at + 2]


def launcher_containers(template: FrozenTemplate) -> list[Json]:
    """The init container that copies the launcher into its volume."""
    if not template.launches:
        return []
    args = ["put-launcher", *flag("to", LAUNCHER_ROOT)]
    return [workspace_container(_CONTAINER, template.operator_image, args, [mount(_VOLUME, LAUNCHER_ROOT)])]


def launcher_mounts(template: FrozenTemplate) -> list[Json]:
    """The trainer's mount."""
    return [mount(_VOLUME, LAUNCHER_ROOT, read_only=True)] if template.launches else []


def launcher_volumes(template: FrozenTemplate) -> list[Json]:
    return [{"name": _VOLUME, "emptyDir": {"sizeLimit": "16Mi"}}] if template.launches else []


def _option(name: str, value: str) -> list[str]:
    return [f"--{name}", value]
