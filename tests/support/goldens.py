"""Golden manifests: how they are written, and held against what the operator applies and the server holds."""

import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

import yaml
from jobs import Place

from torchctl.api.kube import CONTROLLER_REVISION, JOB, KAI_PODGROUP, POD, PVC, SERVICE
from torchctl.api.labels import JOB_UID
from torchctl.runtime.client.errors import NotFound
from torchctl.runtime.intent import INTENT_ANNOTATION
from torchctl.runtime.kinds import Kind
from torchctl.testing.faults import Exchange

__all__ = ["KINDS", "LEFT_OUT", "UID", "applied", "compared", "here", "is_regenerated", "written"]

UID = "0c5f3a52-6f0e-4a53-9f2b-1d1f4b6f7a10"
"""Of the job in the golden manifests, whose namespace is `team`."""

ADDED_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Keys of the tolerations that the admission plugin DefaultTolerationSeconds gives every pod."""

LEFT_OUT = "(the frozen template)"
"""Stands for the data of a ControllerRevision."""

KINDS: dict[str, Kind[Any]] = {kind.kind: kind for kind in (CONTROLLER_REVISION, JOB, KAI_PODGROUP, POD, PVC, SERVICE)}
"""The kinds of a job's children, by their names."""


def is_regenerated() -> bool:
    """Whether this run writes the golden manifests anew instead of comparing."""
    return bool(os.environ.get("REGENERATE_GOLDEN"))


def written(documents: list[dict[str, Any]]) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False, width=120)


def applied(writes: Iterable[Exchange], uid: str, namespace: str) -> list[dict[str, Any]]:
    """The children of a job as the operator applied them last, in the order of the first time, as a golden has them."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for write in writes:
        body = json.loads(write.body or b"null")
        meta = body.get("metadata", {}) if isinstance(body, dict) else {}
        if meta.get("labels", {}).get(JOB_UID) == uid:
            found[body["kind"], meta["name"]] = _intent(body)
    text = json.dumps(list(found.values())).replace(uid, UID).replace(namespace, "team")
    return list(json.loads(text))


def _intent(body: dict[str, Any]) -> dict[str, Any]:
    """Without what is added to send it: the digest, the version that nothing has, or the uid of what exists."""
    meta = {field: value for field, value in body["metadata"].items() if field not in ("uid", "resourceVersion")}
    annotations = {key: value for key, value in meta.pop("annotations", {}).items() if key != INTENT_ANNOTATION}
    body = body | {"metadata": meta | ({"annotations": annotations} if annotations else {})}
    return body | {"data": LEFT_OUT} if body["kind"] == CONTROLLER_REVISION.kind else body


def here(golden: list[dict[str, Any]], uid: str, namespace: str) -> list[dict[str, Any]]:
    """The children in a golden manifest as those of a job of that uid in that namespace."""
    text = json.dumps(golden).replace(UID, uid).replace('"namespace": "team"', f'"namespace": "{namespace}"')
    return list(json.loads(text.replace(".team.svc.", f".{namespace}.svc.")))


async def compared(place: Place, expected: list[dict[str, Any]]) -> list[str]:
    """All differences; a child that is not there is one."""
    found: list[str] = []
    for child in expected:
        name = child["metadata"]["name"]
        try:
            live = await place.admin.get_raw(KINDS[child["kind"]], name, place.namespace)
        except NotFound:
            found.append(f"{child['kind']}/{name} is not there")
            continue
        if not isinstance(child.get("data", {}), dict):
            child = {field: value for field, value in child.items() if field != "data"}
        found += _differing(child, without_added(live), f"{child['kind']}/{name}")
    return found


def without_added(live: dict[str, Any]) -> dict[str, Any]:
    """A pod without the tolerations that admission adds to each."""
    spec = live.get("spec", {})
    kept = [it for it in spec.get("tolerations", ()) if it.get("key") not in ADDED_TOLERATIONS]
    return live | {"spec": spec | {"tolerations": kept}} if "tolerations" in spec else live


def _differing(expected: Any, live: Any, path: str) -> Iterator[str]:
    """Where a field that `expected` names is not so; what the server adds is no difference. Lists are whole."""
    if isinstance(expected, dict):
        for key, value in expected.items():
            yield from _differing(value, (live or {}).get(key), f"{path}.{key}")
    elif isinstance(expected, list) and len(expected) == len(live or ()):
        for index, (value, there) in enumerate(zip(expected, live, strict=True)):
            yield from _differing(value, there, f"{path}[{index}]")
    elif expected != live:
        yield f"{path}: {expected!r} is {live!r}"
