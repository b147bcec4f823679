"""JSON merge patch (RFC 7386) and JSON patch (RFC 6902). Pure."""

import copy
from collections.abc import Sequence
from typing import Any

__all__ = ["BadPatch", "json_patched", "merge_patched"]


class BadPatch(Exception):
    """A JSON patch does not fit the object, or one of its tests failed."""


def merge_patched(target: Any, patch: Any) -> Any:
    """Returns the target with a merge patch applied; null removes a field."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patched(result.get(name), value)
    return result


def json_patched(target: Any, operations: Sequence[Any]) -> Any:
    """Returns the target with the operations of a JSON patch applied, or raises `BadPatch`."""
    document = {"": copy.deepcopy(target)}
    for operation in operations:
        path = ["", *_parts(operation["path"])[1:]]
        match operation["op"]:
            case "test":
                if _at(document, path) != operation["value"]:
                    raise BadPatch(f"testing {operation['path']} failed")
            case "remove":
                _remove(document, path)
            case "replace":
                _remove(document, path)
                _add(document, path, operation["value"])
            case "add":
                _add(document, path, operation["value"])
            case "copy":
                _add(document, path, copy.deepcopy(_at(document, _parts(operation["from"]))))
            case "move":
                source = _parts(operation["from"])
                value = _at(document, source)
                _remove(document, source)
                _add(document, path, value)
            case other:
                raise BadPatch(f"unknown operation {other}")
    return document[""]


def _parts(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")]


def _at(document: Any, path: Sequence[str]) -> Any:
    for part in path:
        try:
            document = document[int(part)] if isinstance(document, list) else document[part]
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise BadPatch(f"there is no {'/'.join(path)}") from error
    return document


def _remove(document: Any, path: Sequence[str]) -> None:
    _at(document, path)
    parent = _at(document, path[:-1])
    del parent[int(path[-1]) if isinstance(parent, list) else path[-1]]


def _add(document: Any, path: Sequence[str], value: Any) -> None:
    parent = _at(document, path[:-1])
    if isinstance(parent, list):
        parent.insert(len(parent) if path[-1] == "-" else int(path[-1]), value)
    elif isinstance(parent, dict):
        parent[path[-1]] = value
    else:
        raise BadPatch(f"{'/'.join(path[:-1])} is no object")
