"""The volumes that a TorchrunQueue gives its jobs: shared memory, workspace, datasets, checkpoints."""

from typing import ClassVar

from pydantic import Field

from torchctl.api.common import ONE_SIZE, SHARED_OR_OWN, Datasets, Distribution
from torchctl.api.fields import AccessMode, AccessModes, Amount, ClaimName, MountPath, Size
from torchctl.api.model import Model
from torchctl.api.pods import SyncPodTemplate
from torchctl.api.rules import Rule

__all__ = ["Checkpoints", "QueueWorkspace", "Storage"]


class ClaimFields(Model):
    """The fields that both claims of a job have."""

    size: Size | None = Field(
        default=None, description="Size of the claim, as a quantity. Not with sizePerGPU. Default: 10Gi."
    )
    size_per_gpu: Size | None = Field(
        default=None,
        description="Size of the claim per GPU of the whole job, at least one. Not with size. Default: none.",
    )
    storage_class: ClaimName | None = Field(
        default=None, description="StorageClass of the claim. Default: the cluster's."
    )
    access_modes: AccessModes = Field(
        default=(AccessMode.READ_WRITE_ONCE,), description="Access modes of the claim. Default: [ReadWriteOnce]."
    )


class QueueWorkspace(ClaimFields):
    """The claim `<job>-workspace` that holds a job's code."""

    rules: ClassVar[tuple[Rule, ...]] = (ONE_SIZE,)

    enabled: bool = Field(
        default=False, description="Whether a job that says nothing of a workspace has one too. Default: false."
    )
    mount_path: MountPath = Field(
        default="/app", description="Where workers see the workspace: their working directory. Default: /app."
    )
    distribution: Distribution = Field(
        default=Distribution.AUTO,
        description="How the workspace reaches the workers: shared (they mount the claim), copy (an init container "
        "copies it), "
        "serve (the sync pod serves it) or auto. Default: auto.",
    )
    cache_claim_name: ClaimName | None = Field(
        default=None,
        description="An existing claim of the namespace that keeps uploaded files by their SHA-256, so that a later "
        "upload sends only what is not there. Only sync pods that wait for an upload mount it, several at once: "
        "ReadWriteMany, unless one node runs them all. Default: none, every job's upload is sent whole.",
    )
    pod_template: SyncPodTemplate | None = Field(
        default=None,
        description="Pod template that is put over what the operator makes for the sync pods: labels, annotations, "
        "nodeSelector, tolerations, resources, securityContext, ... Default: none.",
    )


class Checkpoints(ClaimFields):
    """The claim `<job>-checkpoints`, or a shared one."""

    rules: ClassVar[tuple[Rule, ...]] = (ONE_SIZE, SHARED_OR_OWN)

    enabled: bool = Field(default=False, description="Whether jobs get a checkpoints volume. Default: false.")
    claim_name: ClaimName | None = Field(
        default=None,
        description="An existing claim that all jobs share. Not with size, sizePerGPU. Default: one per job.",
    )
    mount_path: MountPath = Field(
        default="/checkpoints", description="Where workers see it (TORCHRUN_CHECKPOINT_DIR). Default: /checkpoints."
    )
    retain: bool = Field(default=True, description="Whether the claim outlives the job. Default: true.")


class Storage(Model):
    """Volumes of the worker pods."""

    shm_size_per_gpu: Amount | None = Field(
        default=None,
        description="Size of /dev/shm per GPU of the pod, at least one; what is in it counts against the pod's memory. "
        "0: the container runtime's, mostly 64Mi. Default: for pods with GPUs half of trainer's memory limit, 8Gi per "
        "GPU without a limit; the container runtime's for others.",
    )
    workspace: QueueWorkspace | None = Field(default=None, description="The jobs' code. Default: no workspace.")
    datasets: Datasets = Field(default=(), description="Existing claims that every job mounts. Default: none.")
    checkpoints: Checkpoints | None = Field(default=None, description="The jobs' checkpoints. Default: none.")
