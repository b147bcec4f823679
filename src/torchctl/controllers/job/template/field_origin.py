"""Translates a complaint about a child's field into the field of the queue or the job that it was written in."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from torchctl.api.kube import JOB, POD
from torchctl.api.names import TRAINER
from torchctl.api.written import plain
from torchctl.controllers.complaints import STEP, below
from torchctl.controllers.finding import Complaint, Refusal
from torchctl.controllers.job.observed import Observed

__all__ = ["told"]

_POD_IN = {JOB.kind: ".spec.template", POD.kind: ""}
_KEY = re.compile(r'(?<!\w)(\w++)=("[^"]*"|[^,\]]+)')
_TRAINER = f'.spec.containers[name="{TRAINER}"]'


def told(refusal: Refusal, observed: Observed) -> str:
    """The refusal's message; what is said of fields that a person wrote is said of these.

    A field that nobody has written (by now) is told as the child's, as the API server does.
    """
    root = _POD_IN.get(refusal.kind)
    if root is None:
        return refusal.message
    child = f"{refusal.kind} {refusal.name}"
    found = {one.path: _origin(one, root, observed) if one.path.startswith(root) else "" for one in refusal.fields}
    if not any(found.values()):
        return refusal.message
    fields = "; ".join(f"{found[one.path] or f'{child}: {one.path}'}: {one.wrong}" for one in refusal.fields)
    return f"{fields} (so the API server says of {child}): correct it there and submit the job again"


def _origin(complaint: Complaint, root: str, observed: Observed) -> str:
    """Returns the place where a field was written, or should have been if it is missing."""
    path = complaint.path.removeprefix(root)
    for prefix, owner, field, written in _written(observed):
        rest = path.removeprefix(prefix)
        if path.startswith(prefix) and re.match(r"[.\[]|$", rest) and _has(written, rest, missing=complaint.is_missing):
            return f"{owner}: {field}{rest}"
    return ""


def _written(observed: Observed) -> Iterator[tuple[str, str, str, Any]]:
    """Yields parts of a pod, each with its author and field, the highest precedence first (`merging.py`)."""
    meta, spec, queue = observed.job.metadata, observed.job.spec, observed.queue
    owner = f"TorchrunJob {meta.name}"
    volumes, mounts = spec.volumes.additional_volumes, spec.volumes.additional_mounts
    yield ".spec.volumes", owner, "spec.volumes.additionalVolumes", [*map(plain, volumes)]
    yield f"{_TRAINER}.volumeMounts", owner, "spec.volumes.additionalMounts", [*map(plain, mounts)]
    yield f"{_TRAINER}.env", owner, "spec.env", [*map(plain, spec.env)]
    if queue is not None:
        owner = f"TorchrunQueue {queue.metadata.name}"
        yield f"{_TRAINER}.env", owner, "spec.env", [*map(plain, queue.spec.env)]
        yield ".spec.affinity", owner, "spec.scheduling.affinity", queue.spec.scheduling.affinity
        yield "", owner, "spec.podTemplate", plain(queue.spec.pod_template)


def _has(value: Any, path: str, *, missing: bool) -> bool:
    """Whether there is something at a path, as the API server writes it: `.key`, `[key="of an item"]`, `[index]`.

    Args:
        missing: Whether the last step is not expected to lead anywhere.
    """
    steps = re.findall(STEP, path)
    for step in steps[:-1] if missing else steps:
        value = _below(value, step)
    return value is not None


def _below(value: Any, step: str) -> Any:
    keys = _KEY.findall(step)
    if not keys or not isinstance(value, list):
        return below(value, step)
    return next((item for item in value if isinstance(item, dict) and _is(item, keys)), None)


def _is(item: dict[str, Any], keys: Sequence[tuple[str, str]]) -> bool:
    """Whether an item of a list has these keys; one that was left out has a default."""
    return all(json.dumps(item.get(key)) in (value, "null") for key, value in keys)
