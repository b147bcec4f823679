"""What a namespace holds, without what differs between two undisturbed runs of one story.

Everything else is compared: every object, every other field, and which fields are the operator's by managedFields.
Nothing is left out by its name alone, wherever it may stand: MASKED are paths, and REPLACED says what becomes of
values. A uid becomes the name of the object that has it; one that no object has stays as it is, and is a difference.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import CONFIG_MAP, CONTROLLER_REVISION, JOB, KAI_PODGROUP, KAI_QUEUE, POD, PVC, SERVICE
from torchctl.api.kueue import KUEUE_WORKLOAD
from torchctl.api.names import FIELD_MANAGER
from torchctl.api.nativegangs import NATIVE_PODGROUP
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.api.volcano import VOLCANO_PODGROUP, VOLCANO_QUEUE
from torchctl.runtime.client import requests
from torchctl.runtime.client.transport import AiohttpTransport
from torchctl.runtime.intent import INTENT_ANNOTATION
from torchctl.runtime.kinds import Kind

__all__ = [
    "AGE",
    "COUNTS",
    "READINESS",
    "Snapshot",
    "count",
    "differences",
    "normalised",
    "read_namespace",
    "snapshot_of",
]

_NAMED: tuple[Kind[Any], ...] = (
    TORCHRUN_QUEUE,
    TORCHRUN_JOB,
    CONTROLLER_REVISION,
    PVC,
    POD,
    KAI_PODGROUP,
    SERVICE,
    JOB,
    KUEUE_WORKLOAD,
    KAI_QUEUE,
    CONFIG_MAP,
)
KINDS: dict[str, Kind[Any]] = {
    **{kind.kind: kind for kind in _NAMED},
    "VolcanoPodGroup": VOLCANO_PODGROUP,
    "VolcanoQueue": VOLCANO_QUEUE,
    "NativePodGroup": NATIVE_PODGROUP,
}
"""The kinds that are compared, by the names that they have here."""

MASKED = frozenset(
    {
        "metadata.uid",
        "metadata.resourceVersion",
        # Digests of what is compared itself, with a uid or the namespace in it.
        f"metadata.annotations.{INTENT_ANNOTATION}",
        "status.templateHash",
        # Not written where the volume is there sooner than kube-controller-manager looks.
        "metadata.annotations.volume.beta.kubernetes.io/storage-provisioner",
        "metadata.annotations.volume.kubernetes.io/storage-provisioner",
        "status.activeSeconds",
        "metadata.managedFields.fieldsV1.f:status.f:activeSeconds",  # is not there where it is 0
    }
)


def _of_status(*fields: str) -> frozenset[str]:
    """The paths of fields of a status, and of the record of who owns them."""
    return frozenset(
        path
        for field in fields
        for path in (f"status.{field}", f"metadata.managedFields.fieldsV1.f:status.f:{field.replace('.', '.f:')}")
    )


COUNTS = _of_status("nodes.ready", "workers", "workersStatus")
"""Of a job that failed: they are of the moment at which that was seen; the other workers are stopped from then on."""

READINESS = _of_status("attemptReadyTime")
"""Of workers that end by themselves: an operator that was away at that moment has not seen them ready."""

AGE = frozenset({"spec.activeDeadlineSeconds"})
"""Of a pod that was ended where it was: its age at that moment."""

REPLACED = (
    # Of pods that are gone: the random part of the name, and the node.
    (re.compile(r"(?<=-\d-)[bcdfghjklmnpqrstvwxz2456789]{5}\b"), "<random>"),
    (re.compile(r'"(node|h100)-\d+"'), '"<node>"'),
    (re.compile(r"(?<= on node )(node|h100)-\d+\b"), "<node>"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "<time>"),
    (re.compile(r"\b10\.\d+\.\d+\.\d+\b"), "<address>"),
)

_UID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")

Snapshot = dict[str, Any]
"""Objects by `Kind/name`."""

Json = dict[str, Any]


async def read_namespace(
    transport: AiohttpTransport, namespace: str, counts: Sequence[Mapping[str, int]] = ()
) -> list[bytes]:
    """Reads all that belongs to a namespace, schedulers' Queues called after it included: a list of each kind, as JSON.

    Args:
        counts: How many objects of each kind there may be. Of another number it is told that it is so, and no more:
            nothing is returned.
    """
    pages = []
    for name, kind in KINDS.items():
        fields = "" if kind.namespaced else f"metadata.name={namespace}"
        request = requests.list_page(kind, namespace=namespace if kind.namespaced else "", fields=fields)
        response = await transport.send(request)
        pages.append(b"" if response.status == 404 else response.body)
        if counts and len(_items(pages[-1])) not in {expected.get(name, 0) for expected in counts}:
            return []
    return pages


def _items(page: bytes) -> list[Json]:
    items: list[Json] = json.loads(page)["items"] if page else []
    return items


def count(snapshot: Snapshot) -> Counter[str]:
    """How many objects of each kind there are."""
    return Counter(key.partition("/")[0] for key in snapshot)


def snapshot_of(
    pages: Iterable[bytes], namespace: str, known: dict[str, str], masked: frozenset[str] = frozenset()
) -> Snapshot:
    """The snapshot of what `read_namespace` read.

    Args:
        known: Words for uids and nodes, to which those of this snapshot are added: what is left names what is gone.
        masked: Paths that are not compared, besides MASKED.
    """
    objects: list[Json] = []
    for name, page in zip(KINDS, pages, strict=True):
        objects += [item | {"kind": name} for item in _items(page)]
    return normalised(objects, namespace, known, masked)


def differences(expected: Snapshot, actual: Snapshot) -> list[str]:
    """One line for each value that is not the same, by its path."""
    return [*_differences("", expected, actual)]


def normalised(
    objects: Iterable[Json], namespace: str, known: dict[str, str], masked: frozenset[str] = frozenset()
) -> Snapshot:
    """The snapshot of objects in their JSON form."""
    objects = sorted(
        objects, key=lambda item: (item["kind"], item["metadata"]["creationTimestamp"], item["metadata"]["name"])
    )
    text = json.dumps([_pruned(item, "", MASKED | masked) for item in objects])
    for item in objects:
        known[item["metadata"]["uid"]] = f"<uid of {item['kind']} {_stable_name(item)}>"
        text = text.replace(item["metadata"]["name"], _stable_name(item))
    text = _UID.sub(lambda found: known.get(found.group(), found.group()), text)
    text = text.replace(namespace, "<namespace>")
    for pattern, replacement in REPLACED:
        text = pattern.sub(replacement, text)
    return _by_name(json.loads(text))


def _by_name(items: Iterable[Json]) -> Snapshot:
    """Two objects whose names differ only in what is random are two, and not one."""
    snapshot: Snapshot = {}
    for item in items:
        name = f"{item['kind']}/{item['metadata']['name']}"
        count = sum(known.partition(" #")[0] == name for known in snapshot)
        snapshot[f"{name} #{count + 1}" if count else name] = item
    return snapshot


def _stable_name(item: Json) -> str:
    """The name without its random part: a pod's suffix, the digest of a template that names a KAI Queue."""
    name: str = item["metadata"]["name"]
    if prefix := item["metadata"].get("generateName"):
        return f"{prefix}<random>"
    if item["kind"] == CONTROLLER_REVISION.kind:
        return f"{name.rpartition('-')[0]}-<digest>"
    return name


def _pruned(value: Any, path: str, masked: frozenset[str]) -> Any:
    if isinstance(value, dict):
        paths = {key: f"{path}.{key}" if path else key for key in value}
        return {key: _pruned(item, paths[key], masked) for key, item in value.items() if paths[key] not in masked}
    if path == "metadata.managedFields":
        ours = (entry for entry in value if entry["manager"] == FIELD_MANAGER)
        value = sorted(ours, key=lambda entry: (entry["operation"], entry.get("subresource", "")))
    return [_pruned(item, path, masked) for item in value] if isinstance(value, list) else value


def _differences(path: str, expected: Any, actual: Any) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in sorted({*expected, *actual}):
            yield from _differences(f"{path}.{key}" if path else key, expected.get(key), actual.get(key))
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for index, pair in enumerate(zip(expected, actual, strict=True)):
            yield from _differences(f"{path}[{index}]", *pair)
    elif expected != actual:
        yield f"{path}: {_shown(expected)} became {_shown(actual)}"


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
