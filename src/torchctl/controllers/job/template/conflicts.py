"""Volumes and mounts that would hide each other. Pure.

Workspace, checkpoints and datasets are asked for by what they are, so each has its path and its name alone. What is
written as a pod writes it (podTemplate, additionalVolumes, additionalMounts) is merged by name and path among itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from posixpath import normpath

from torchctl.api.common import Dataset
from torchctl.api.conditions import JobReason
from torchctl.api.names import LAUNCHER_ROOT
from torchctl.controllers.job.template import sharedmemory
from torchctl.controllers.job.template.errors import Impossible
from torchctl.controllers.job.template.podspec import Parts

__all__ = ["RESERVED", "check"]

RESERVED = "torchrun-"
"""The prefix of the names of the operator's volumes."""


@dataclass(frozen=True, slots=True)
class _Said:
    """A name or a path, and its source as a message names it."""

    value: str
    who: str


def check(parts: Parts, queue: str) -> None:
    """Refuses what would hide something else.

    Raises:
        Impossible: The message names both.
    """
    for message in _conflicts(parts, queue):
        raise Impossible(JobReason.CONFLICTING_VOLUMES, message)


def _conflicts(parts: Parts, queue: str) -> Iterator[str]:
    datasets, names, mounts = _datasets(parts, queue), [*_names(parts, queue)], [*_mounts(parts, queue)]
    own = [_Said(dataset.name, who) for dataset, who in datasets]
    for said in (*own, *names):
        if said.value.startswith(RESERVED):
            yield f"{said.who}: names that begin with {RESERVED} are the operator's: give it another name"
    for one, other in _same(own, names):
        yield f"{one.who} and {other.who} have one name, so only one of them would be there: give one another name"
    places = [*_places(parts, queue), *(_Said(dataset.mount_path, who) for dataset, who in datasets)]
    shared = _Said(sharedmemory.PATH, "the shared memory of the worker")
    for one, other in (*_same([shared, *places], []), *_same(places, mounts)):
        yield f"{one.who} and {other.who} are both mounted at {normpath(one.value)}: give one of them another path"


def _datasets(parts: Parts, queue: str) -> list[tuple[Dataset, str]]:
    """Lists the worker's datasets, each with the field that sets it; a job's replaces a queue's of the same name."""
    mine = {dataset.name for dataset in parts.job.volumes.datasets}
    theirs = [dataset for dataset in parts.queue.storage.datasets if dataset.name not in mine]
    fields = (
        (parts.job.volumes.datasets, "spec.volumes.datasets"),
        (theirs, f"spec.storage.datasets of TorchrunQueue {queue}"),
    )
    return [(dataset, f"dataset {dataset.name} ({field})") for datasets, field in fields for dataset in datasets]


def _names(parts: Parts, queue: str) -> Iterator[_Said]:
    """The volumes that are written as a pod writes them."""
    for volume in parts.job.volumes.additional_volumes:
        yield _Said(volume.name, f"volume {volume.name} (spec.volumes.additionalVolumes)")
    for given in parts.template["spec"].get("volumes", ()):
        yield _Said(given["name"], f"volume {given['name']} (podTemplate of TorchrunQueue {queue})")


def _mounts(parts: Parts, queue: str) -> Iterator[_Said]:
    """The mounts that are written as a container writes them."""
    for mount in parts.job.volumes.additional_mounts:
        yield _Said(mount.mount_path, f"volume {mount.name} (spec.volumes.additionalMounts)")
    for given in parts.template["spec"]["containers"][0].get("volumeMounts", ()):
        yield _Said(given["mountPath"], f"volume {given.get('name')} (podTemplate of TorchrunQueue {queue})")


def _places(parts: Parts, queue: str) -> Iterator[_Said]:
    """Yields the paths at which the operator mounts the volumes that it makes."""
    if parts.workspace is not None:
        yield _Said(parts.workspace.mount_path, f"the workspace (of TorchrunQueue {queue})")
    if parts.job.hot_reload.launches:
        yield _Said(LAUNCHER_ROOT, "the launcher")
    if parts.checkpoints is not None:
        yield _Said(parts.checkpoints.mount_path, "the checkpoints")


def _same(alone: list[_Said], others: list[_Said]) -> Iterator[tuple[_Said, _Said]]:
    """Pairs of the same value, of which at least one should have it alone."""
    for index, one in enumerate(alone):
        for other in (*alone[index + 1 :], *others):
            if normpath(one.value) == normpath(other.value):
                yield one, other
