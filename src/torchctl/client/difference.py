"""Says in which field two jobs differ, of what was asked for when they were made. Pure."""

from collections.abc import Iterator
from typing import Any

from torchctl.api.job import JobSpec

__all__ = ["difference"]

_CHANGES_LATER = ("suspend", "volumes.workspace.revision")
"""Fields that a job's own life changes: they say nothing of what was submitted."""
_LONGEST = 60


def difference(there: JobSpec, asked: JobSpec) -> str:
    """Returns the first field in which the specs differ, with both values; empty if they mean the same.

    Defaults that the API server has written into the one that is there are no difference.
    """
    differing = _differing(_written(there), _written(asked), "")
    return next((text for path, text in differing if path not in _CHANGES_LATER), "")


def _written(spec: JobSpec) -> dict[str, Any]:
    return spec.model_dump(mode="json", by_alias=True, exclude_none=True)


def _differing(there: Any, asked: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(there, dict) and isinstance(asked, dict):
        for key in sorted({*there, *asked}):
            yield from _differing(there.get(key), asked.get(key), f"{path}.{key}".lstrip("."))
    elif _said(there) != _said(asked):
        yield path, f"spec.{path} is {_shown(there)}, and {_shown(asked)} was asked for"


def _said(value: Any) -> Any:
    """Returns None for what says nothing, as an absent field does."""
    return None if value in ([], {}, "") else value


def _shown(value: Any) -> str:
    text = "not set" if value is None else repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
