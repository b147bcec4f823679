"""The objects of spec.resources in their JSON form, and how their owner is recorded. Pure.

A ConfigMap has an owner reference to its queue. It is deleted with the queue or with its entry, once no unfinished job
can need it. A claim holds data and is never deleted: it has no owner, only labels that name the queue. If its entry is
removed the claim stays, and a queue of the same name that asks for it finds it again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchctl.api import quantity
from torchctl.api.extras import ExtraResource
from torchctl.api.kube import CONFIG_MAP, PVC, ConfigMap, PersistentVolumeClaim
from torchctl.api.labels import QUEUE, ROLE, ROLE_RESOURCE, queue_labels
from torchctl.api.names import API_VERSION
from torchctl.api.queue import TORCHRUN_QUEUE, TorchrunQueue
from torchctl.controllers.queuespec.resources import content_of, object_name
from torchctl.runtime.intent import Ownership, controlled_by
from torchctl.runtime.kinds import Kind, ObjectMeta, controller_in, controller_of

__all__ = ["Extra", "extras", "growth", "ours", "owner_of", "storage"]

Json = dict[str, Any]

KINDS: Mapping[str, Kind[Any]] = {kind.kind: kind for kind in (CONFIG_MAP, PVC)}


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
        """Whether the object is never changed once it exists."""
        return self.entry.immutable

    @property
    def key(self) -> tuple[str, str]:
        """Kind and name, which identify an object of the queue."""
        return self.kind.kind, self.name

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.name}"


def extras(queue: TorchrunQueue) -> tuple[Extra, ...]:
    """Returns the objects that a queue asks for, in the order of its spec. The spec must be valid."""
    return tuple(_extra(queue, entry) for entry in queue.spec.resources)


def ours(kind: Kind[Any], queue: ObjectMeta) -> Ownership:
    """Returns a predicate that recognises the queue's own objects of a kind."""
    return controlled_by(queue.uid) if kind == CONFIG_MAP else _left_to(queue.name)


def owner_of(config_map: ConfigMap) -> tuple[str, ...]:
    """Returns the uid of the queue that made a ConfigMap, as an index wants it: none if no queue did."""
    owner = controller_of(config_map)
    if owner is None or config_map.metadata.labels.get(ROLE) != ROLE_RESOURCE:
        return ()
    return (owner.uid,)


def growth(extra: Extra, live: PersistentVolumeClaim) -> int:
    """Returns by how many bytes the claim should grow; negative if it is larger than asked for: it cannot shrink."""
    wanted, there = (storage(spec) for spec in (extra.body["spec"], live.spec))
    return int(quantity.parse(wanted).value - quantity.parse(there).value) if wanted and there else 0


def storage(spec: Mapping[str, Any]) -> str:
    """Returns the size that a claim's spec asks for; empty if it asks for none."""
    return str(((spec.get("resources") or {}).get("requests") or {}).get("storage", ""))


def _extra(queue: TorchrunQueue, entry: ExtraResource) -> Extra:
    kind, content = KINDS[entry.template.kind], content_of(entry)
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


def _reference(queue: ObjectMeta) -> Json:
    """Returns the owner reference. blockOwnerDeletion would need a right on the queue, and nobody needs it."""
    return {
        "apiVersion": API_VERSION,
        "kind": TORCHRUN_QUEUE.kind,
        "name": queue.name,
        "uid": queue.uid,
        "controller": True,
    }


def _left_to(queue: str) -> Ownership:
    """Returns a predicate for objects that outlive their queue: labels name the queue, and nothing controls them."""

    def ours(meta: ObjectMeta) -> bool:
        named = (meta.labels.get(ROLE), meta.labels.get(QUEUE)) == (ROLE_RESOURCE, queue)
        return named and controller_in(meta) is None

    return ours
