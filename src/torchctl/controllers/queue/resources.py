"""The objects of spec.resources: what each of them is, and whose it is. Pure.

A ConfigMap belongs to its queue: it has an owner reference, and goes with the queue or with its entry, once no
unfinished job can need it. A claim holds data, so nothing here ever deletes one: it has no owner, only labels that name
the queue. A claim that is not asked for any more is let go, and a queue of the same name that asks for it finds it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torchctl.api import quantity
from torchctl.api.kube import CONFIG_MAP, PVC, ConfigMap, PersistentVolumeClaim
from torchctl.api.labels import QUEUE, ROLE, ROLE_RESOURCE, owned_key, queue_labels
from torchctl.api.names import API_VERSION
from torchctl.api.queue import TORCHRUN_QUEUE, ExtraResource, NameMode, TorchrunQueue
from torchctl.controllers.job.template.merge import canonical, plain
from torchctl.runtime.intent import Ownership, controlled_by, digest_of
from torchctl.runtime.kinds import Kind, ObjectMeta

__all__ = ["Extra", "clash_of", "extras", "growth", "object_name", "ours", "owner_of", "problem_of", "storage"]

Json = dict[str, Any]

KINDS: Mapping[str, Kind[Any]] = {"ConfigMap": CONFIG_MAP, "PersistentVolumeClaim": PVC}
CONTENT: Mapping[str, tuple[str, ...]] = {
    "ConfigMap": ("data", "binaryData", "immutable"),
    "PersistentVolumeClaim": ("spec",),
}
"""What is taken from a template besides labels and annotations."""
PASSED_OVER = ("apiVersion", "kind", "metadata", "status")
OF_KUBERNETES = ("kubernetes.io", "k8s.io")
"""Whose labels and annotations a template cannot set: what they mean is between the server and its controllers."""
DIGEST_LENGTH = 10


@dataclass(frozen=True, slots=True)
class Extra:
    """One entry of spec.resources, as the object that should exist."""

    entry: ExtraResource
    kind: Kind[Any]
    body: Json
    ours: Ownership

    @property
    def name(self) -> str:
        name: str = self.body["metadata"]["name"]
        return name

    @property
    def once(self) -> bool:
        """Whether it is kept as it is once it exists."""
        return self.entry.immutable

    @property
    def key(self) -> tuple[str, str]:
        """Kind and name: what tells the objects of a queue apart."""
        return self.kind.kind, self.name

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.name}"


def extras(queue: TorchrunQueue) -> tuple[Extra, ...]:
    """The objects that a queue asks for, in the order of its spec. The spec must be without a problem."""
    return tuple(_extra(queue, entry) for entry in queue.spec.resources)


def object_name(entry: ExtraResource) -> str:
    """The name of the object: the entry's, or that and a hash of what is in the object."""
    if entry.name_mode is NameMode.EXACT:
        return entry.name
    return f"{entry.name}-{digest_of(_content(entry))[:DIGEST_LENGTH]}"


def ours(kind: Kind[Any], queue: ObjectMeta) -> Ownership:
    """Recognises the queue's own objects of a kind."""
    return controlled_by(queue.uid) if kind == CONFIG_MAP else _left_to(queue.name)


def owner_of(config_map: ConfigMap) -> tuple[str, ...]:
    """The uid of the queue that made it, for an index; labels alone do not say that."""
    return tuple(
        reference.uid
        for reference in config_map.metadata.owner_references
        if reference.controller and config_map.metadata.labels.get(ROLE) == ROLE_RESOURCE
    )


def growth(extra: Extra, live: PersistentVolumeClaim) -> int:
    """By how many bytes the claim should grow; negative where it has more than it should, for no claim can shrink."""
    wanted, there = (storage(spec) for spec in (extra.body["spec"], live.spec))
    return int(quantity.parse(wanted).value - quantity.parse(there).value) if wanted and there else 0


def storage(spec: Mapping[str, Any]) -> str:
    """The size that a claim's spec asks for; empty where it asks for none."""
    return str(((spec.get("resources") or {}).get("requests") or {}).get("storage", ""))


def _extra(queue: TorchrunQueue, entry: ExtraResource) -> Extra:
    kind, content = KINDS[entry.template.kind], _content(entry)
    metadata: Json = {
        "name": object_name(entry),
        "namespace": queue.metadata.namespace,
        "labels": content["labels"] | queue_labels(queue.metadata.name),
    }
    if content["annotations"]:
        metadata["annotations"] = content["annotations"]
    if kind == CONFIG_MAP:
        metadata["ownerReferences"] = [_reference(queue.metadata)]
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    return Extra(entry, kind, body | content["content"], ours(kind, queue.metadata))


def _content(entry: ExtraResource) -> Json:
    """What the template says of the object, canonical; the rest of its metadata is ours to decide."""
    template = plain(entry.template)
    metadata = template.get("metadata", {})
    content = {field: template[field] for field in CONTENT[entry.template.kind] if field in template}
    if "binaryData" in content:  # base64 comes back without the line breaks that it may have
        content["binaryData"] = {key: "".join(text.split()) for key, text in content["binaryData"].items()}
    return {
        "labels": {key: value for key, value in metadata.get("labels", {}).items() if not _reserved(key)},
        "annotations": {key: value for key, value in metadata.get("annotations", {}).items() if not _reserved(key)},
        "content": canonical(content) if "spec" in content else content,
    }


def _reserved(key: str) -> bool:
    domain = key.rpartition("/")[0]
    return (
        owned_key(key)
        or domain == "torchctl.runtime"
        or any(domain == reserved or domain.endswith(f".{reserved}") for reserved in OF_KUBERNETES)
    )


def _reference(queue: ObjectMeta) -> Json:
    """Without blockOwnerDeletion, which would take a right on the queue and serve nobody."""
    return {
        "apiVersion": API_VERSION,
        "kind": TORCHRUN_QUEUE.kind,
        "name": queue.name,
        "uid": queue.uid,
        "controller": True,
    }


def _left_to(queue: str) -> Ownership:
    """The ownership of what outlives the queue: nobody controls it, and it says whose it is."""

    def ours(meta: ObjectMeta) -> bool:
        named = (meta.labels.get(ROLE), meta.labels.get(QUEUE)) == (ROLE_RESOURCE, queue)
        return named and not any(reference.controller for reference in meta.owner_references)

    return ours


# What is wrong with a template.


def problem_of(entry: ExtraResource) -> str:
    """What keeps the template from being an object of its kind, as far as it is read here; empty where nothing does."""
    return next(_problems(plain(entry.template), entry.template.kind), "")


def clash_of(entries: Iterable[ExtraResource]) -> str:
    """Two entries that stand for one object, which each would change back for ever; empty where there are none.

    Their names differ, so one of them has the other's hash in its name. The templates must be without a problem.
    """
    found: dict[tuple[str, str], str] = {}
    for entry in entries:
        key = (entry.template.kind, object_name(entry))
        if key in found:
            return f"{found[key]} and {entry.name} would both be {' '.join(key)}: rename one of them"
        found[key] = entry.name
    return ""


def _problems(template: Json, kind: str) -> Iterator[str]:
    fields = CONTENT[kind]
    unknown = sorted(set(template) - {*fields, *PASSED_OVER})
    if unknown:
        yield f"{unknown[0]} is no field of a {kind} here, which has {', '.join(fields)}: remove it"
    metadata = template.get("metadata", {})
    if not isinstance(metadata, Mapping):
        yield "metadata must be an object"
    else:
        for field in ("labels", "annotations"):
            if not _are_texts(metadata.get(field, {})):
                yield f"metadata.{field} must be an object of strings"
    for field in ("data", "binaryData"):
        if not _are_texts(template.get(field, {})):
            yield f"{field} must be an object of strings: put numbers and booleans in quotes"
    if not isinstance(template.get("immutable", False), bool):
        yield "immutable must be true or false"
    if kind == PVC.kind:
        yield from _claim_problems(template.get("spec"))


def _claim_problems(spec: Any) -> Iterator[str]:
    if not isinstance(spec, Mapping):
        yield "spec is missing: a PersistentVolumeClaim needs spec.accessModes and spec.resources.requests.storage"
        return
    for parent, field in (("spec", "resources"), ("spec.resources", "requests")):
        spec = spec.get(field, {})
        if not isinstance(spec, Mapping):
            yield f"{parent}.{field} must be an object"
            return
    if not _is_amount(spec.get("storage", 1)):
        yield "spec.resources.requests.storage must be a quantity such as 10Gi"


def _are_texts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(text, str) for text in value.values())


def _is_amount(value: Any) -> bool:
    try:
        return isinstance(value, int | str) and quantity.parse(value).value > 0
    except ValueError:
        return False
