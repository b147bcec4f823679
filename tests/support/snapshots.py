"""What a namespace holds, with everything removed that differs between two runs of the same story.

Left out are uid, resourceVersion, times and Events, and the names that are random (a pod's suffix, a volume). A uid
inside of a name or a label is replaced by the name of the object that it belongs to.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import CONTROLLER_REVISION, JOB, KAI_PODGROUP, KAI_QUEUE, POD, PVC, SERVICE
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.runtime.client import requests
from torchctl.runtime.client.transport import AiohttpTransport

__all__ = ["Snapshot", "take_snapshot"]

KINDS = (TORCHRUN_QUEUE, TORCHRUN_JOB, CONTROLLER_REVISION, PVC, POD, KAI_PODGROUP, SERVICE, JOB)
VOLATILE = frozenset(
    {
        "activeSeconds",
        "creationTimestamp",
        "clusterIP",
        "clusterIPs",
        "deletionTimestamp",
        "finishedAt",
        "hostIP",
        "hostIPs",
        "lastProbeTime",
        "lastTransitionTime",
        "managedFields",
        "nodeName",
        "podIP",
        "podIPs",
        "resourceVersion",
        "startedAt",
        "startTime",
        "completionTime",
        "uid",
        "volumeName",
    }
)
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
POD_FIELDS = ("metadata", "status")
"""A pod's spec is made from the Job's template, which is compared; the API server adds random names to it."""

Snapshot = dict[str, Any]
"""Objects by `Kind/name`."""


async def take_snapshot(transport: AiohttpTransport, namespace: str) -> Snapshot:
    """Reads all that belongs to a namespace, KAI Queues claimed from it included."""
    objects: list[dict[str, Any]] = []
    for kind in (*KINDS, KAI_QUEUE):
        response = await transport.send(requests.list_page(kind, namespace=namespace if kind.namespaced else ""))
        if response.status == 404:
            continue
        for item in json.loads(response.body)["items"]:
            item["kind"] = kind.kind
            objects.append(item)
    ours = [item for item in objects if item["kind"] != KAI_QUEUE.kind or _claimed_from(item, namespace)]
    return _normalised(ours, namespace)


def _claimed_from(kai_queue: dict[str, Any], namespace: str) -> bool:
    return bool(kai_queue["metadata"].get("annotations", {}).get("torchrun.ai/queue-namespace") == namespace)


def _normalised(objects: Iterable[dict[str, Any]], namespace: str) -> Snapshot:
    objects = [*objects]
    text = json.dumps([_pruned(item) for item in objects])
    for item in objects:
        meta = item["metadata"]
        text = text.replace(meta["uid"], f"<{item['kind']} {_stable_name(item)}>")
    text = text.replace(namespace, "<namespace>")
    return {f"{item['kind']}/{item['metadata']['name']}": item for item in json.loads(text)}


def _pruned(item: dict[str, Any]) -> dict[str, Any]:
    if item["kind"] == POD.kind:
        item = {"kind": item["kind"], **{field: item[field] for field in POD_FIELDS}}
    pruned: dict[str, Any] = _without_volatile(item)
    pruned["metadata"]["name"] = _stable_name(item)
    return pruned


def _stable_name(item: dict[str, Any]) -> str:
    """The name, without the random suffix of a pod that a Job made."""
    meta = item["metadata"]
    prefix: str = meta.get("generateName", "")
    return (
        prefix + "<random>" if prefix else re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<uid>", meta["name"])
    )


def _without_volatile(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_volatile(inner) for key, inner in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [_without_volatile(inner) for inner in value]
    return value
