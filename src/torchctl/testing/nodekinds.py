"""The objects that the scripted node reads, with the fields that it needs."""

from typing import Any

import msgspec

from torchctl.runtime.kinds import Key, Kind, ObjectMeta

__all__ = [
    "BINDING",
    "CLAIM",
    "NODE",
    "POD",
    "POD_GROUP",
    "STORAGE_CLASS",
    "VOLUME",
    "Claim",
    "ClaimSpec",
    "ClaimStatus",
    "Container",
    "Node",
    "NodeSpec",
    "Pod",
    "PodGroup",
    "PodGroupSpec",
    "PodSpec",
    "PodStatus",
    "Resources",
    "StorageClass",
    "Volume",
    "VolumeStatus",
]


class Resources(msgspec.Struct, frozen=True):
    requests: dict[str, str] | None = None


class Container(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    image: str = ""
    resources: Resources = Resources()
    termination_message_policy: str = ""
    restart_policy: str = ""

    @property
    def is_sidecar(self) -> bool:
        """True if an init container is a native sidecar, which runs beside the later containers."""
        return self.restart_policy == "Always"


class ClaimSource(msgspec.Struct, frozen=True, rename="camel"):
    claim_name: str


class PodVolume(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    persistent_volume_claim: ClaimSource | None = None


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_name: str = ""
    node_selector: dict[str, str] = {}
    scheduler_name: str = ""
    scheduling_gates: tuple[dict[str, Any], ...] = ()
    active_deadline_seconds: int | None = None
    volumes: tuple[PodVolume, ...] = ()


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""


class Pod(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> Key:
        return Key(self.metadata.namespace, self.metadata.name)

    @property
    def is_terminal(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def is_leaving(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def claims(self) -> tuple[Key, ...]:
        """The claims that the pod's volumes name."""
        sources = (volume.persistent_volume_claim for volume in self.spec.volumes)
        return tuple(Key(self.metadata.namespace, source.claim_name) for source in sources if source is not None)


class NodeSpec(msgspec.Struct, frozen=True):
    taints: tuple[dict[str, Any], ...] = ()


class Node(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()


class ClaimSpec(msgspec.Struct, frozen=True, rename="camel"):
    access_modes: tuple[str, ...] = ()
    resources: Resources = Resources()
    storage_class_name: str | None = None
    volume_mode: str = "Filesystem"
    volume_name: str = ""


class ClaimStatus(msgspec.Struct, frozen=True):
    phase: str = ""


class Claim(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class StorageClass(msgspec.Struct, frozen=True, rename="camel"):
    metadata: ObjectMeta
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    reclaim_policy: str = "Delete"


class VolumeStatus(msgspec.Struct, frozen=True):
    phase: str = ""


class Volume(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    status: VolumeStatus = VolumeStatus()


class PodGroupSpec(msgspec.Struct, frozen=True, rename="camel"):
    min_member: int = 1


class PodGroup(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: PodGroupSpec = PodGroupSpec()


class Binding(msgspec.Struct, frozen=True):
    """The API server's answer to a binding: a Status."""

    metadata: ObjectMeta = ObjectMeta()


POD = Kind("", "v1", "Pod", "pods", Pod)
BINDING = Kind("", "v1", "Binding", "pods", Binding)
NODE = Kind("", "v1", "Node", "nodes", Node, namespaced=False)
CLAIM = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", Claim)
VOLUME = Kind("", "v1", "PersistentVolume", "persistentvolumes", Volume, namespaced=False)
STORAGE_CLASS = Kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", StorageClass, namespaced=False)
POD_GROUP = Kind("scheduling.run.ai", "v2alpha2", "PodGroup", "podgroups", PodGroup)
