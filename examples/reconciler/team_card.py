"""Every namespace with a label `team` holds a ConfigMap `team-card` that says so, for pods to read."""

import msgspec

from torchctl.runtime.controller import Controller
from torchctl.runtime.intent import controlled_by
from torchctl.runtime.kinds import Key, Kind, ObjectMeta
from torchctl.runtime.manager import Manager
from torchctl.runtime.predicate import labels_changed
from torchctl.runtime.reconcile import Request


class Namespace(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class ConfigMap(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}


NAMESPACE = Kind("", "v1", "Namespace", "namespaces", Namespace, namespaced=False)
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", ConfigMap)
MARK = "team-card.example/card"


def setup(manager: Manager) -> None:
    """What the entry point names. RBAC: get, list, watch of both kinds; create, patch, delete of configmaps."""

    async def reconcile(request: Request) -> None:
        namespace = manager.cache.get(NAMESPACE, request)
        if namespace is None or namespace.metadata.deletion_timestamp:
            return  # what it owns goes with it
        if team := namespace.metadata.labels.get("team"):
            intent = card_of(namespace.metadata, team)
            await manager.applier.apply(CONFIG_MAP, intent, controlled_by(namespace.metadata.uid))
        elif card := manager.cache.get(CONFIG_MAP, Key(request.name, "team-card")):
            await manager.client.delete(CONFIG_MAP, "team-card", namespace=request.name, uid=card.metadata.uid)

    controller = Controller("team-card", reconcile)
    manager.add(controller.for_(NAMESPACE, predicate=labels_changed).owns(CONFIG_MAP, labels=MARK))


def card_of(namespace: ObjectMeta, team: str) -> dict[str, object]:
    """The ConfigMap, whole: what is left out is taken away."""
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": namespace.name, "uid": namespace.uid, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "team-card",
            "namespace": namespace.name,
            "labels": {MARK: ""},
            "ownerReferences": [owner],
        },
        "data": {"team": team},
    }
