"""Defines TorchrunJob, the kind that says what runs."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar

import msgspec
from pydantic import Field

from torchctl.api.common import ONE_SIZE, SHARED_OR_OWN, Datasets, Distributed, RunPolicy
from torchctl.api.fields import (
    LIST_OF_NAMED,
    UNIQUE_NAMES,
    UNSAID,
    AccessModes,
    Annotations,
    ClaimName,
    DnsLabel,
    DnsName,
    Image,
    Labels,
    Line,
    MountPath,
    Size,
    keyed_by,
    unique,
)
from torchctl.api.jobrules import JOB_RULES, URL, WORKSPACE_RULES
from torchctl.api.jobstatus import Failure, JobStatus, NodeCounts, Restarts, WorkerCounts, WorkspaceStatus
from torchctl.api.model import Model
from torchctl.api.names import GROUP, VERSION
from torchctl.api.pods import Env, EnvFrom, Tolerations, Volume, VolumeMount, no_owned_keys, qualified_keys
from torchctl.api.rules import Rule
from torchctl.runtime.kinds import Kind, ObjectMeta

__all__ = [
    "TORCHRUN_JOB",
    "Dependency",
    "DependencyCondition",
    "Elastic",
    "Failure",
    "HotReload",
    "JobCheckpoints",
    "JobSpec",
    "JobStatus",
    "JobWorkspace",
    "Launcher",
    "NodeCounts",
    "QueueUpdatePolicy",
    "Restarts",
    "TorchrunJob",
    "Volumes",
    "WorkerCounts",
    "WorkspaceSource",
    "WorkspaceStatus",
]


class WorkspaceSource(StrEnum):
    ZIP = "zip"
    GIT = "git"
    S3 = "s3"
    EXISTING = "existing"


class Launcher(StrEnum):
    TORCHRUN = "torchrun"
    NONE = "none"


class HotReload(StrEnum):
    OFF = "Off"
    RESTART = "Restart"
    WARM_START = "WarmStart"
    FILES = "Files"

    @property
    def launches(self) -> bool:
        """Whether the first process of each worker is a launcher, which takes up new code."""
        return self in (HotReload.RESTART, HotReload.WARM_START)


class QueueUpdatePolicy(StrEnum):
    FROZEN = "Frozen"
    NEXT_ATTEMPT = "NextAttempt"


class DependencyCondition(StrEnum):
    SUCCEEDED = "Succeeded"
    RUNNING = "Running"


_Nodes = Annotated[int, Field(ge=1, le=100_000)]


class Elastic(Model):
    """The smallest and the largest number of nodes that the job can run with. numNodes says how many it should have."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.minNodes <= self.maxNodes",
            message="minNodes must not exceed maxNodes",
            holds=lambda self: self.min_nodes <= self.max_nodes,
            field="minNodes",
        ),
    )

    min_nodes: _Nodes = Field(description="Nodes below which the job does not run. At most numNodes.")
    max_nodes: _Nodes = Field(description="Nodes up to which the job can grow. At least numNodes.")


class JobWorkspace(Model):
    """The job's code. Setting any field enables it."""

    rules: ClassVar[tuple[Rule, ...]] = WORKSPACE_RULES

    enabled: bool | None = Field(
        default=None,
        description="Whether the job has a workspace. Default: true when any field here is set, else as the queue "
        "says.",
    )
    source: WorkspaceSource = Field(
        default=WorkspaceSource.ZIP,
        json_schema_extra=UNSAID,
        description="Where the code comes from: zip (uploaded, or fetched from url), git (url, ref), s3 (url) or "
        "existing (claimName). "
        "Default: zip.",
    )
    url: Annotated[str, Field(min_length=1, max_length=2048, pattern=URL)] | None = Field(
        default=None,
        description="URL of the code: https, ssh or s3, without credentials in it. s3://bucket/folder/ is every object "
        "below it, s3://bucket/code.zip an archive (.zip, .tar, .tar.gz, .tgz). Default: none.",
    )
    ref: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[A-Za-z0-9_.][A-Za-z0-9_./+-]*$")] | None = (
        Field(default=None, description="Branch, tag or commit, for git. Default: the repository's HEAD.")
    )
    secret_ref: ClaimName | None = Field(
        default=None,
        description="Name of a Secret of the namespace with the credentials for url: username, password or token "
        "(https); ssh-privatekey, known_hosts (ssh); AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, "
        "AWS_REGION, AWS_ENDPOINT_URL, AWS_S3_ADDRESSING_STYLE (s3); ca.crt. Default: none.",
    )
    claim_name: ClaimName | None = Field(
        default=None, description="Name of the PersistentVolumeClaim that holds the code, for existing. Default: none."
    )
    sub_path: Annotated[str, Field(min_length=1, max_length=1024, pattern=r"^[^/\x00][^\x00]*$")] | None = Field(
        default=None,
        description="Directory of the source that becomes the workspace; relative, without '..'. Default: its root.",
    )
    size: Size | None = Field(default=None, description="Size of the claim, as a quantity. Default: as the queue says.")
    timeout_seconds: Annotated[int, Field(ge=1, le=86_400)] = Field(
        default=600,
        json_schema_extra=UNSAID,
        description="Seconds that fetching or uploading the code may take, all tries together; not counted while a "
        "sync pod waits for a node, a volume or an image, nor while the job is suspended. Default: 600.",
    )
    revision: Annotated[str, Field(max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9_./:+-]*$")] | None = Field(
        default=None,
        description="Revision that the job should run: what is checked out for git (over ref), else the SHA-256 that "
        "the content must have. May be changed later; the next attempt has it. Default: the one synced.",
    )


class JobCheckpoints(Model):
    """The job's checkpoints. Setting any field enables them; what is left out is as the queue says."""

    rules: ClassVar[tuple[Rule, ...]] = (ONE_SIZE, SHARED_OR_OWN)

    enabled: bool | None = Field(
        default=None,
        description="Whether the job has a checkpoints volume. Default: true when any field here is set, else as the "
        "queue says.",
    )
    size: Size | None = Field(
        default=None, description="Size of the claim, as a quantity. Not with sizePerGPU. Default: as the queue says."
    )
    size_per_gpu: Size | None = Field(
        default=None,
        description="Size of the claim per GPU of the whole job, at least one. Not with size. Default: as the queue "
        "says.",
    )
    storage_class: ClaimName | None = Field(
        default=None, description="StorageClass of the claim. Default: as the queue says."
    )
    access_modes: AccessModes | None = Field(
        default=None, description="Access modes of the claim. Default: as the queue says."
    )
    claim_name: ClaimName | None = Field(
        default=None, description="An existing claim. Not with size, sizePerGPU. Default: as the queue says."
    )
    mount_path: MountPath | None = Field(
        default=None, description="Where workers see it (TORCHRUN_CHECKPOINT_DIR). Default: as the queue says."
    )
    retain: bool | None = Field(
        default=None, description="Whether the claim outlives the job. Default: as the queue says."
    )


class Volumes(Model):
    """Volumes of the worker pods."""

    workspace: JobWorkspace | None = Field(default=None, description="The job's code. Default: as the queue says.")
    datasets: Datasets = Field(
        default=(), description="Existing claims to mount, over the queue's by name. Default: none."
    )
    checkpoints: JobCheckpoints | None = Field(
        default=None, description="The job's checkpoints. Default: as the queue says."
    )
    additional_volumes: Annotated[
        tuple[Volume, ...],
        Field(
            max_length=32,
            json_schema_extra=LIST_OF_NAMED,
        ),
        UNIQUE_NAMES,
    ] = Field(default=(), description="Further volumes of the worker pods, as in a pod. Default: none.")
    additional_mounts: Annotated[
        tuple[VolumeMount, ...],
        Field(max_length=64, json_schema_extra=keyed_by("mountPath")),
        unique("mount_path"),
    ] = Field(default=(), description="Further mounts of the container `trainer`, as in a container. Default: none.")


class Dependency(Model):
    """Another TorchrunJob of the namespace that comes first. If it fails before this one starts, this one fails too."""

    job: DnsLabel = Field(description="Name of the TorchrunJob; it may be created later.")
    condition: DependencyCondition = Field(
        default=DependencyCondition.SUCCEEDED,
        description="What it has to be: Succeeded, or Running, which a job that has succeeded also was. Default: "
        "Succeeded.",
    )


class JobSpec(Model):
    """The training run. After creation only suspend, numNodes (elastic), runPolicy (but not maxWorkerRestarts),
    queueUpdatePolicy and volumes.workspace.revision change."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *JOB_RULES,
        *map(no_owned_keys, ("labels", "annotations")),
        *map(qualified_keys, ("labels", "annotations", "node_selector")),
    )

    job_queue: DnsName = Field(
        description="Name of the TorchrunQueue, of the same namespace; it may be created later. Immutable."
    )
    num_nodes: _Nodes | None = Field(
        default=None,
        description="Nodes, which are pods, each with what the queue's nodeResources say. Either this or numGPUs.",
    )
    num_gpus: Annotated[int, Field(ge=0, le=10_000_000)] | None = Field(
        default=None,
        description="GPUs of the whole job, spread evenly over as few nodes as hold them. A pod with a part of a "
        "node's GPUs gets that part of its CPUs, memory and extended resources (rounded up). 0: one pod without GPUs, "
        "with the part that goes with one GPU. Either this or numNodes.",
    )
    elastic: Elastic | None = Field(
        default=None, description="Between how many nodes the job can run; with numNodes. Default: a fixed size."
    )
    command: Line | None = Field(
        default=None,
        description="A shell line. If it ends in `python script.py`, after nothing but cd, export and the like, "
        "torchrun runs the script, with that interpreter if its path or version is named; any other line runs as it "
        "is, once in each pod. Either this or args.",
    )
    args: (
        Annotated[
            tuple[Annotated[str, Field(max_length=32768)], ...],
            Field(min_length=1, max_length=256, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
        ]
        | None
    ) = Field(default=None, description="The command as a list of arguments, without a shell. Either this or command.")
    setup_command: Line | None = Field(
        default=None, description="A shell line that every worker runs first; its failure is the job's. Default: none."
    )
    working_dir: MountPath | None = Field(
        default=None,
        description="Absolute path in which the command runs. Default: the workspace's mountPath, else the image's.",
    )
    launcher: Launcher = Field(
        default=Launcher.TORCHRUN, description="torchrun, or none: the command is run as it is. Default: torchrun."
    )
    hot_reload: HotReload = Field(
        default=HotReload.OFF,
        description='Whether `kubectl torchrun sync` changes the code of running workers: "Off"; Restart (torchrun is '
        "started again in the same pods), WarmStart (its processes are forked from one that has torch imported), or "
        "Files (only files change, with `--no-restart`). Restart and WarmStart need launcher torchrun and a workspace "
        "that is served; with Files all workers mount the claim, which must be ReadWriteMany. "
        'Write "Off" with quotes. Default: "Off".',
    )
    nproc_per_node: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None, description="Processes per node. Default: the GPUs of the pod, else 1."
    )
    distributed: Distributed = Field(
        default=Distributed(),
        description="How torchrun finds its peers, over what the queue says. Default: as the queue says.",
    )
    volumes: Volumes = Field(default=Volumes(), description="Volumes of the worker pods. Default: as the queue says.")
    image: Image | None = Field(default=None, description="Image of `trainer`. Default: the queue's.")
    env: Env = Field(default=(), description="Environment of `trainer`, over the queue's by name. Default: none.")
    env_from: EnvFrom = Field(
        default=(), description="Secrets and ConfigMaps whose keys become variables, after the queue's. Default: none."
    )
    labels: Labels | None = Field(
        default=None,
        description="Labels of the worker pods and of all other children, except that only the workers have those of "
        "Kueue (kueue.x-k8s.io/*); those of the operator are refused. Default: none.",
    )
    annotations: Annotations | None = Field(
        default=None,
        description="Annotations of the worker pods, and of Job, sync pods and claims, except that only worker pods "
        "have networks (k8s.v1.cni.cncf.io/*) and only the workers those of Kueue; those of the operator are refused. "
        "Default: none.",
    )
    node_selector: Labels | None = Field(
        default=None, description="Node labels that worker pods need, over the queue's by key. Default: none."
    )
    tolerations: Tolerations = Field(
        default=(), description="Taints that worker pods tolerate, besides the queue's. Default: none."
    )
    priority_class_name: ClaimName | None = Field(
        default=None, description="PriorityClass of worker pods. Default: the queue's."
    )
    priority: Annotated[int, Field(ge=-1_000_000_000, le=1_000_000_000)] | None = Field(
        default=None,
        description="Rank among the jobs of its queue that wait for the coordinator: higher ones go first, and jobs of "
        "lower ones leave for it if the queue's preemption says so. It may be changed. Refused for a job that the "
        "coordinator does not let in. Default: the value of its PriorityClass.",
    )
    queue_update_policy: QueueUpdatePolicy = Field(
        default=QueueUpdatePolicy.FROZEN,
        description="What a later edit of the queue does to this job: Frozen (nothing) or NextAttempt. Default: "
        "Frozen.",
    )
    depends_on: Annotated[
        tuple[Dependency, ...],
        Field(max_length=16, json_schema_extra=keyed_by("job")),
        unique("job"),
    ] = Field(default=(), description="Jobs that come first. Default: none.")
    suspend: bool = Field(
        default=False, description="Whether the job should stand still: its pods are stopped. Default: false."
    )
    run_policy: RunPolicy = Field(
        default=RunPolicy(),
        description="Restarts, deadlines and retention, over what the queue says. Default: as the queue says.",
    )


class TorchrunJob(msgspec.Struct, frozen=True, rename="camel"):
    """A distributed training job: a command that torchrun runs on several nodes at once."""

    metadata: ObjectMeta
    spec: JobSpec
    status: JobStatus = JobStatus()


def _decode(type_: type, value: Any) -> Any:
    if type_ is JobSpec:
        return JobSpec.model_validate(value)
    raise NotImplementedError(type_)


TORCHRUN_JOB = Kind(GROUP, VERSION, "TorchrunJob", "torchrunjobs", TorchrunJob, dec_hook=_decode)
