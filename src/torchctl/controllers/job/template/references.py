"""Resolves references to prefixed objects of the queue to the actual names of these objects.

The name of an object with nameMode prefix changes with its template, so nobody can write it down. A pod names the
prefix instead, and the frozen template has the name that it stood for: a job keeps the object that it started with.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from torchctl.api.extras import NameMode
from torchctl.api.queue import QueueSpec
from torchctl.controllers.queuespec.resources import object_name

__all__ = ["resolve"]

Json = dict[str, Any]
Place = tuple[str, Json, str]
"""The kind that is referred to, the object that refers, and the field that has the name."""


def resolve(pod: Json, queue: QueueSpec) -> Json:
    """The pod template with every reference to an object of the queue's resources by its name."""
    names: dict[tuple[str, str], str] = {
        (entry.template.kind, entry.name): object_name(entry)
        for entry in queue.resources
        if entry.name_mode is NameMode.PREFIX
    }
    return _resolved(pod, names) if names else pod


def _resolved(pod: Json, names: Mapping[tuple[str, str], str]) -> Json:
    resolved = deepcopy(pod)
    for kind, place, field in _places(resolved["spec"]):
        place[field] = names.get((kind, place[field]), place[field])
    return resolved


def _places(spec: Json) -> Iterator[Place]:
    """Everywhere a pod names a ConfigMap or a claim; what has another shape is the API server's to refuse."""
    for volume in spec.get("volumes", ()):
        yield from _place("PersistentVolumeClaim", volume.get("persistentVolumeClaim"), "claimName")
        yield from _place("ConfigMap", volume.get("configMap"), "name")
        for source in _list(_map(volume.get("projected")).get("sources")):
            yield from _place("ConfigMap", _map(source).get("configMap"), "name")
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        for source in container.get("envFrom", ()):
            yield from _place("ConfigMap", _map(source).get("configMapRef"), "name")
        for variable in container.get("env", ()):
            yield from _place("ConfigMap", _map(_map(variable).get("valueFrom")).get("configMapKeyRef"), "name")


def _place(kind: str, value: Any, field: str) -> Iterator[Place]:
    if isinstance(value, dict) and isinstance(value.get(field), str):
        yield kind, value, field


def _map(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
