"""Jobs as an earlier version left them: written as JSON at a release, and read by every later version."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from world import World

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import CONTROLLER_REVISION, JOB, KAI_PODGROUP, POD, PVC, SERVICE
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.controllers.job.observed import Observed
from torchctl.runtime.intent import INTENT_ANNOTATION, digest_of
from torchctl.runtime.kinds import Kind

__all__ = ["EARLIER", "left_in", "observed_in", "states", "write"]

EARLIER = Path(__file__).parents[1] / "golden" / "earlier"

KEPT = (
    "c10d-two-nodes",
    "elastic",
    "etcd-v2-tls",
    "gpus-4x8-kai-etcd-serve",
    "pod-template-overrides",
    "two-nodes-git-copy-rwx",
)
"""The jobs of tests/golden/jobs whose states a release keeps."""

KINDS: dict[str, Kind[Any]] = {
    "job": TORCHRUN_JOB,
    "queue": TORCHRUN_QUEUE,
    "revision": CONTROLLER_REVISION,
    "workspace": PVC,
    "checkpoints": PVC,
    "sync_pods": POD,
    "service": SERVICE,
    "worker_job": JOB,
    "pods": POD,
    "podgroup": KAI_PODGROUP,
}
"""The kind of each field of `Observed` that is kept."""

RUNS = [{"name": "trainer", "ready": True, "state": {"running": {}}}]
"""What the kubelet says of a worker that runs; a version's struct may have less."""


def _decoded(kind: Kind[Any], body: Any) -> Any:
    return msgspec.convert(body, kind.type, dec_hook=kind.dec_hook)


def _states(world: type[World], manifest: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Takes a job to where it runs, and yields what there is on the way, as JSON: syncing, running, restarting."""
    queue, job, *_ = yaml.safe_load_all(manifest.read_text())
    w = world(yaml.safe_dump(job["spec"]), yaml.safe_dump(queue["spec"]))
    w.settle()
    if w.seen.sync_pods:
        yield "syncing", _state(w, job, queue)
        w.sync_succeeds()
        w.sync_serves()
        w.settle()
    for index in range(w.worker_job.spec["completions"]):
        w.worker(index, containerStatuses=RUNS)
    w.settle()
    yield "running", _state(w, job, queue)
    w.worker_fails(0)
    w.settle()
    yield "restarting", _state(w, job, queue)


def write(world: type[World], jobs: Path, folder: Path) -> None:
    """Writes the states of the jobs that a release keeps, one file each."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        for label, state in _states(world, jobs / f"{name}.yaml"):
            (folder / f"{name}.{label}.json").write_text(json.dumps(state, sort_keys=True) + "\n")


def _state(w: World, job: dict[str, Any], queue: dict[str, Any]) -> dict[str, Any]:
    """Returns what is observed, as the API server gives it, and the applied children that nobody observes."""
    specs = {"job": job["spec"], "queue": queue["spec"]}
    observed: dict[str, Any] = {}
    for field in KINDS:
        value = getattr(w.seen, field)
        if field in specs:
            observed[field] = {"metadata": value.metadata, "spec": specs[field], "status": value.status}
        elif isinstance(value, tuple):
            observed[field] = [_live(KINDS[field], one, w.objects) for one in value]
        elif value is not None:
            observed[field] = _live(KINDS[field], value, w.objects)
    seen = {(KINDS[field].kind, name) for field in KINDS for name in _names(observed.get(field))}
    others = [body | {"metadata": _marked(body)} for key, body in w.objects.items() if key not in seen]
    state = {"now": w.now, "observed": observed, "others": others}
    return dict(json.loads(json.dumps(msgspec.to_builtins(state))))


def _live(kind: Kind[Any], value: Any, objects: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    """Returns an object with all that was applied of it. Nobody applies a worker, which is as it was observed."""
    seen = dict(msgspec.to_builtins(value))
    body = objects.get((kind.kind, seen["metadata"]["name"]))
    if body is None:
        runs = seen["status"].get("phase") == "Running"
        return seen | {"status": seen["status"] | ({"containerStatuses": RUNS} if runs else {})}
    meta = msgspec.to_builtins(value.metadata) | _marked(body)
    return body | {"metadata": meta} | {field: seen[field] for field in ("status",) if field in seen}


def _marked(body: dict[str, Any]) -> dict[str, Any]:
    """Returns the metadata with the uid and the digest that an object has once it is applied."""
    annotations = body["metadata"].get("annotations", {}) | {INTENT_ANNOTATION: digest_of(body)}
    uid = f"uid-of-{body['metadata']['name']}"
    return {**body["metadata"], "uid": uid, "annotations": annotations}


def _names(value: Any) -> list[str]:
    many = value if isinstance(value, list) else [] if value is None else [value]
    return [one["metadata"]["name"] if isinstance(one["metadata"], dict) else one["metadata"].name for one in many]


def states(label: str = "*") -> list[Any]:
    """Returns the states that every version left, as parameters of a test."""
    files = sorted(EARLIER.glob(f"*/*.{label}.json"))
    return [pytest.param(json.loads(file.read_text()), id=f"{file.parent.name}-{file.stem}") for file in files]


def observed_in(state: dict[str, Any]) -> Observed:
    """Returns what this version observes of a state."""
    found: dict[str, Any] = {}
    for field, value in state["observed"].items():
        many = isinstance(value, list)
        found[field] = tuple(_decoded(KINDS[field], one) for one in value) if many else _decoded(KINDS[field], value)
    return Observed(**found)


def left_in(state: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """Returns the children that there are in a state, by kind and name, as the API server gives them."""
    found = {(one["kind"], one["metadata"]["name"]): one for one in state["others"]}
    for value in state["observed"].values():
        for one in value if isinstance(value, list) else [value]:
            if "kind" in one:
                found[one["kind"], one["metadata"]["name"]] = one
    return found
