"""Puts a pod template that somebody gave over a pod that the operator makes."""

from collections.abc import Mapping
from typing import Any

from torchctl.controllers.job.template import security
from torchctl.controllers.job.template.merge import by_key, deep, unique

__all__ = ["over"]

Json = dict[str, Any]

_CONTAINERS = ("initContainers", "containers")
_LISTS: Mapping[str, str] = {"volumes": "name", "env": "name", "volumeMounts": "mountPath"}
"""Lists whose items have a key."""
_OURS = ("image", "command", "args")
"""The fields of the operator's own containers that no template changes: their image, command and args."""


def over(ours: Mapping[str, Any], given: Mapping[str, Any]) -> Json:
    """A pod's spec with a template over it.

    Maps are merged at every depth and lists of named things by name; of other lists both count. Containers of the
    template that have the name of one of ours change it, except for what it runs; others are added, init containers
    before ours.
    """
    changes = {container["name"]: container for field in _CONTAINERS for container in given.get(field, ())}
    merged = _merged(ours, {field: value for field, value in given.items() if field not in _CONTAINERS})
    own = [container["name"] for field in _CONTAINERS for container in ours.get(field, ())]
    for field in _CONTAINERS:
        changed = [_changed(container, changes.get(container["name"], {})) for container in ours.get(field, ())]
        more = [security.secured(container) for container in given.get(field, ()) if container["name"] not in own]
        every = [*more, *changed] if field == "initContainers" else [*changed, *more]
        if every:
            merged[field] = every
    return merged


def _changed(ours: Json, given: Json) -> Json:
    return _merged(ours, {field: value for field, value in given.items() if field not in _OURS})


def _merged(ours: Mapping[str, Any], given: Mapping[str, Any]) -> Json:
    lists = {field: value for field, value in given.items() if isinstance(value, list)}
    merged = deep(ours, {field: value for field, value in given.items() if field not in lists})
    for field, items in lists.items():
        known = ours.get(field, ())
        merged[field] = by_key(_LISTS[field], known, items) if field in _LISTS else unique(known, items)
    return merged
