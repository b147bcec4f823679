"""Checks a spec as the API server will, and names the flag or the field that is wrong. Pure."""

import json
import re
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from torchctl.api.job import TORCHRUN_JOB, JobSpec
from torchctl.api.rules import nesting, problems
from torchctl.client.errors import UsageError

__all__ = ["Origins", "checked"]

_SHOWN = 80
_USERINFO = re.compile(r"://[^/@\s]*@")
_STEPS = {
    "--queue": "Queues have names of lower-case letters, digits, '-' and '.'; `kubectl torchrun queues` lists them.",
    "--gpus": "Say a number from 0.",
    "--nodes": "Say a number from 1.",
    "--image": "An image is one word, such as pytorch/pytorch:2.4.0-cuda12.1-cudnn9-runtime.",
    "--env": "The name of a variable has letters, digits and '_', and does not begin with a digit.",
    "--git": "Write https://host/team/code.git or ssh://git@host/team/code.git, then @ and a branch, tag or commit.",
    "--label": "The value of a label has at most 63 letters, digits, '-', '_' and '.'.",
    "the command": "It must not be blank, and at most 32 KiB long.",
}


class Origins:
    """The flag that each field was written by; those of no flag are of the file.

    Args:
        file: The file's name; empty if there is none.
    """

    def __init__(self, file: str = "") -> None:
        self._file = file
        self._flags: dict[str, str] = {}

    def note(self, path: str, flag: str) -> None:
        """Records that a field of the spec, and all below it, is a flag's."""
        self._flags[path] = flag

    def flag(self, path: str) -> str:
        """Returns the flag that a field is from; empty for the file."""
        while path:
            if path in self._flags:
                return self._flags[path]
            path = path.rpartition(".")[0]
        return ""

    def said(self, path: str) -> str:
        """Returns what a message about a field begins with."""
        return self.flag(path) or (f"{self._file}: spec.{path}" if self._file else f"spec.{path}").removesuffix(".")


def checked(spec: dict[str, Any], origins: Origins) -> JobSpec:
    """Returns the spec as its model.

    Raises:
        UsageError: The API server would refuse it; the message names the first reason.
    """
    try:
        text = json.dumps(spec, allow_nan=False, ensure_ascii=False).encode()
        model = JobSpec.model_validate_json(text, strict=True)
    except (ValidationError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(*_refusal(error, spec, origins)) from None
    for problem in (*problems(model), *nesting(model)):
        path = problem.path.removeprefix("spec").lstrip(".").replace("[", ".").replace("]", "")
        raise UsageError(f"{origins.said(path)}{_shown(_value(spec, path))}: {problem.message}")
    return model


def _refusal(error: Exception, spec: dict[str, Any], origins: Origins) -> tuple[str, str]:
    """Returns what is wrong, and the next step."""
    if isinstance(error, ValidationError):
        return _told(error.errors(include_url=False, include_context=False)[0], origins)
    said = origins.said(_unwritable(spec))
    if isinstance(error, UnicodeEncodeError):
        return f"{said} has bytes that are no UTF-8 text", "Give it in another form, such as a file in the workspace."
    return f"{said} is no text, number, list or object", "Put quotes around the value."


def _told(error: ErrorDetails, origins: Origins) -> tuple[str, str]:
    path = _path(error["loc"])
    said, flag = origins.said(path), origins.flag(path)
    if error["type"] == "extra_forbidden":
        return f"{said}: there is no such field", f"See `kubectl explain {TORCHRUN_JOB.plural}.spec`."
    if error["type"] == "missing":
        return f"{said} is missing", "Add it."
    value = _shown(error["input"])
    told = error["msg"].removeprefix("Value error, ")
    return (f"{said}{value} is not possible", _STEPS[flag]) if flag in _STEPS else (f"{said}{value}: {told}", "")


def _path(loc: Sequence[str | int]) -> str:
    return ".".join(map(str, loc))


def _shown(value: object) -> str:
    """Returns a value behind a blank; nothing for one of several parts, or None."""
    text = _USERINFO.sub("://***@", repr(value))
    if value is None or isinstance(value, dict | list):
        return ""
    return f" {text}" if len(text) <= _SHOWN else f" {text[:_SHOWN]}..."


def _value(spec: Any, path: str) -> Any:
    """Returns what a spec has at a path; None if it has nothing there."""
    for step in path.split(".") if path else ():
        key: Any = int(step) if isinstance(spec, list) else step
        spec = spec[key] if isinstance(spec, dict | list) and (isinstance(spec, list) or key in spec) else None
    return spec


def _unwritable(value: Any, path: str = "") -> str:
    """Returns the path of the first value that JSON has no form for."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        below = f"{path}.{key}".lstrip(".")
        if isinstance(item, dict | list):
            if found := _unwritable(item, below):
                return found
        elif not _is_writable(item):
            return below
    return ""


def _is_writable(value: Any) -> bool:
    if isinstance(value, str):
        return not any("\ud800" <= character <= "\udfff" for character in value)
    return value is None or isinstance(value, bool | int) or (isinstance(value, float) and value == value)
