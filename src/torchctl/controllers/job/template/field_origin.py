"""Where a field of a pod was written: what the API server says of a child's field, said of the queue's or the job's."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from torchctl.api.kube import JOB, POD
from torchctl.api.names import TRAINER
from torchctl.api.written import plain
from torchctl.controllers.job.observed import Observed
from torchctl.controllers.refusals import Refusal
from torchctl.controllers.unreadable import UNREADABLE_MARK

__all__ = ["told"]

_POD_IN = {JOB.kind: ".spec.template", POD.kind: ""}
_STEP = r"\.[\w-]+|\[[^\]\n]{0,1100}\]"
_COMPLAINT = re.compile(rf"(?<!\S)((?:{_STEP})++): ([^\n;]+)")
"""A field and what is wrong with it, of which an answer has one, or one in each line."""
_KEY = re.compile(r'(?<!\w)(\w++)=("[^"]*"|[^,\]]+)')
_LONGEST = 4096
"""Characters of an answer that are read: names of fields are in it as a user wrote them."""
_TRAINER = f'.spec.containers[name="{TRAINER}"]'


def told(refusal: Refusal, observed: Observed) -> str:
    """The refusal's message; of a field that no API server can read, in terms of what a person wrote.

    A field that nobody has written (by now) is told as the child's, as the API server does.
    """
    root = _POD_IN.get(refusal.kind)
    if root is None or UNREADABLE_MARK not in refusal.message:
        return refusal.message
    child = f"{refusal.kind} {refusal.name}"
    complaints = _COMPLAINT.findall(refusal.message.partition(UNREADABLE_MARK)[2][:_LONGEST])
    found = {
        path: _origin(path.removeprefix(root), observed) if path.startswith(root) else "" for path, _ in complaints
    }
    if not any(found.values()):
        return refusal.message
    fields = "; ".join(f"{found[path] or f'{child}: {path}'}: {wrong}" for path, wrong in complaints)
    return f"{fields} (so the API server says of {child}): correct it there and submit the job again"


def _origin(path: str, observed: Observed) -> str:
    for prefix, owner, field, written in _written(observed):
        rest = path.removeprefix(prefix)
        if path.startswith(prefix) and re.match(r"[.\[]|$", rest) and _has(written, rest):
            return f"{owner}: {field}{rest}"
    return ""


def _written(observed: Observed) -> Iterator[tuple[str, str, str, Any]]:
    """Parts of a pod, who wrote them, and where: who comes first has the last word (`merging.py`)."""
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


def _has(value: Any, path: str) -> bool:
    """Whether there is something at a path, as the API server writes it: `.key`, `[key="of an item"]`, `[index]`."""
    for step in re.findall(_STEP, path):
        value = _below(value, step)
    return value is not None


def _below(value: Any, step: str) -> Any:
    if step.startswith("."):
        return value.get(step[1:]) if isinstance(value, dict) else None
    items, index, keys = value if isinstance(value, list) else [], step[1:-1], _KEY.findall(step)
    if index.isdecimal():
        return items[int(index)] if int(index) < len(items) else None
    return next((item for item in items if isinstance(item, dict) and keys and _is(item, keys)), None)


def _is(item: dict[str, Any], keys: Sequence[tuple[str, str]]) -> bool:
    """Whether an item of a list has these keys; one that was left out has a default."""
    return all(json.dumps(item.get(key)) in (value, "null") for key, value in keys)
