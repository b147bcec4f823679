"""Sizes /dev/shm of a worker. Pure.

Data loaders hand batches to the trainer there, and NCCL the data between the GPUs of a node; the container runtime's
64 MiB let both fail with a bus error. So pods with GPUs have more unless somebody says otherwise. It is a bound, not a
reservation: what is in it counts against the container's memory. By default it is half of the memory limit, as Linux
has it for a whole machine, or a fixed amount per GPU if there is no limit.
"""

from fractions import Fraction
from typing import Any

from torchctl.api import quantity
from torchctl.api.job import JobSpec
from torchctl.api.quantity import Quantity
from torchctl.api.storage import Storage

__all__ = ["PATH", "PER_GPU", "VOLUME", "size"]

VOLUME = "torchrun-shm"
PATH = "/dev/shm"
PER_GPU = "8Gi"
"""The default without a memory limit."""

Json = dict[str, Any]


def size(storage: Storage, job: JobSpec, template: Json, *, gpus: int, memory_limit: str) -> str:
    """The size of the volume on /dev/shm; empty if there is none.

    Args:
        template: The podTemplate: who mounts something there, or shares the node's, needs no default.
        gpus: The GPUs of the pod.
        memory_limit: The trainer's; empty if it has none.
    """
    if storage.shm_size_per_gpu is not None:
        return _size(quantity.parse(storage.shm_size_per_gpu).times(max(1, gpus)))
    if not gpus or template["spec"].get("hostIPC") or _taken(job, template):
        return ""
    if memory_limit:
        return _size(quantity.parse(memory_limit).times(Fraction(1, 2)).floor())
    return _size(quantity.parse(PER_GPU).times(gpus))


def _size(amount: Quantity) -> str:
    return str(amount) if amount.value else ""


def _taken(job: JobSpec, template: Json) -> bool:
    mounts = template["spec"]["containers"][0].get("volumeMounts", ())
    paths = (*(mount["mountPath"] for mount in mounts), *(mount.mount_path for mount in job.volumes.additional_mounts))
    return any(path.rstrip("/") == PATH for path in paths)
