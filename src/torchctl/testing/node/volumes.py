"""A pool of volumes on the node: claims of the default storage class bind to them, ReadWriteMany too.

They are of type `local` and not `hostPath`, because a pod's fsGroup applies only to `local` ones.
"""

import json
from pathlib import Path
from typing import Any

__all__ = ["STORAGE_CLASS", "make_pool"]

STORAGE_CLASS = "local"


def make_pool(node: str, root: Path, seen_at: Path, count: int, size: str) -> str:
    """Makes the directories and returns the objects for kubectl apply.

    Args:
        root: the directory to make them in.
        seen_at: the same directory as the kubelet sees it.
    """
    names = [f"{node}-{index}" for index in range(count)]
    for name in names:
        (root / name).mkdir(parents=True)
    items = [_storage_class(), *(_volume(name, node, str(seen_at / name), size) for name in names)]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _storage_class() -> dict[str, Any]:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": STORAGE_CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "Immediate",
    }


def _volume(name: str, node: str, path: str, size: str) -> dict[str, Any]:
    where = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "storageClassName": STORAGE_CLASS,
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": path},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}},
        },
    }
