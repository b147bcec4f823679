"""A provisioner of empty volumes: it makes a PersistentVolume for each claim that is due."""

from collections.abc import Iterable
from typing import Any

import anyio
from anyio.abc import TaskGroup

from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.cache.change import Change
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import AlreadyExists, NotFound
from torchctl.runtime.kinds import Key
from torchctl.testing.nodekinds import CLAIM, STORAGE_CLASS, VOLUME, Claim, StorageClass, Volume
from torchctl.testing.persist import Persistence

__all__ = ["PROVISIONER", "STANDARD", "Provisioner", "is_due", "volume_for"]

PROVISIONER = "scripted.torchrun.ai/volume"
"""The provisioner that a StorageClass names so that its claims are bound."""

STANDARD = "standard"
"""The StorageClass that always exists, and is the default."""

PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
MANAGER = "scripted-provisioner"


class Provisioner:
    """Provisions claims at once (Immediate), or once a pod that uses them has a node (WaitForFirstConsumer)."""

    def __init__(self, client: Client, cache: Cache, persist: Persistence) -> None:
        self._client = client
        self._persist = persist
        self._claims = cache.register(CLAIM)
        self._classes = cache.register(STORAGE_CLASS)
        self._volumes = cache.register(VOLUME)
        self._consumed: set[Key] = set()
        self._handled: set[str] = set()
        self._changed = anyio.Event()

    async def create_class(self) -> None:
        body = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": STANDARD, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": PROVISIONER,
            "volumeBindingMode": "Immediate",
        }
        await self._persist(lambda: self._client.apply(STORAGE_CLASS, body, force=True, field_manager=MANAGER))

    async def run(self) -> None:
        """Works until cancelled; the cache must be running."""
        for informer in (self._claims, self._classes, self._volumes):
            informer.add_handler(self)
        async with anyio.create_task_group() as tasks:
            while True:
                changed = self._changed
                self._act(tasks)
                await changed.wait()

    def on_event(self, change: Change[Any]) -> None:
        self._wake()

    def consume(self, claims: Iterable[Key]) -> None:
        """Notes that a pod that uses these claims is on a node."""
        self._consumed.update(claims)
        self._wake()

    async def wait_bound(self, claims: Iterable[Key]) -> None:
        """Waits until all these claims exist and are bound."""
        for key in claims:
            while (claim := self._claims.reader.get(key)) is None or claim.status.phase != "Bound":
                await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def _act(self, tasks: TaskGroup) -> None:
        for claim in self._claims.reader.list():
            class_ = self._classes.reader.get(Key("", claim.spec.storage_class_name or ""))
            key = Key(claim.metadata.namespace, claim.metadata.name)
            if class_ is not None and is_due(claim, class_, consumed=key in self._consumed):
                self._once(tasks, claim.metadata.uid, self._provision, claim, class_)
        for volume in self._volumes.reader.list():
            ours = volume.metadata.annotations.get(PROVISIONED_BY) == PROVISIONER
            if ours and volume.status.phase == "Released" and volume.metadata.deletion_timestamp is None:
                self._once(tasks, volume.metadata.uid, self._remove, volume)

    def _once(self, tasks: TaskGroup, uid: str, act: Any, *arguments: Any) -> None:
        if uid not in self._handled:
            self._handled.add(uid)
            tasks.start_soon(act, *arguments)

    async def _provision(self, claim: Claim, class_: StorageClass) -> None:
        body = volume_for(claim, class_)
        try:
            await self._persist(lambda: self._client.create(VOLUME, body))
        except AlreadyExists:
            return

    async def _remove(self, volume: Volume) -> None:
        try:
            await self._persist(lambda: self._client.delete(VOLUME, volume.metadata.name, uid=volume.metadata.uid))
        except NotFound:
            return


def is_due(claim: Claim, class_: StorageClass, *, consumed: bool) -> bool:
    """Tells if the claim must get a volume now."""
    if class_.provisioner != PROVISIONER or claim.spec.volume_name or claim.metadata.deletion_timestamp:
        return False
    return class_.volume_binding_mode == "Immediate" or consumed or SELECTED_NODE in claim.metadata.annotations


def volume_for(claim: Claim, class_: StorageClass) -> dict[str, Any]:
    """Returns a volume reserved for a claim; kube-controller-manager binds the two."""
    meta = claim.metadata
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pvc-{meta.uid}", "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "capacity": {"storage": (claim.spec.resources.requests or {}).get("storage", "1Gi")},
            "accessModes": claim.spec.access_modes,
            "volumeMode": claim.spec.volume_mode,
            "storageClassName": class_.metadata.name,
            "persistentVolumeReclaimPolicy": class_.reclaim_policy,
            "hostPath": {"path": f"/scripted/{meta.uid}"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": meta.namespace,
                "name": meta.name,
                "uid": meta.uid,
            },
        },
    }
