"""Settings that both a queue and a job may have: distributed, run policy, datasets.

Nothing here has a default in the schema, because the job's value wins over the queue's: `effective.py` has the
defaults.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from torchctl.api.fields import LIST_OF_NAMED, MAX_INT32, UNIQUE_NAMES, ClaimName, DnsLabel, MountPath, Port
from torchctl.api.model import Model
from torchctl.api.rules import Rule

__all__ = [
    "ONE_SIZE",
    "SHARED_OR_OWN",
    "Backend",
    "Dataset",
    "Datasets",
    "Distributed",
    "Distribution",
    "PodRetention",
    "RdzvBackend",
    "RestartPolicy",
    "RunPolicy",
]


ONE_SIZE = Rule(
    cel="!(has(self.size) && has(self.sizePerGPU))",
    message="size and sizePerGPU exclude each other",
    holds=lambda self: self.size is None or self.size_per_gpu is None,
)
SHARED_OR_OWN = Rule(
    cel="!has(self.claimName) || !(has(self.size) || has(self.sizePerGPU) || has(self.storageClass))",
    message="claimName names an existing claim: it excludes size, sizePerGPU and storageClass",
    holds=lambda self: (
        self.claim_name is None or not (self.size is not None or self.size_per_gpu is not None or self.storage_class)
    ),
)


_ENDPOINT = r"^([A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$"
"""Host or host:port; an IPv6 address stands in brackets."""


class Backend(StrEnum):
    NCCL = "nccl"
    GLOO = "gloo"
    MPI = "mpi"


class RdzvBackend(StrEnum):
    C10D = "c10d"
    ETCD_V2 = "etcd-v2"
    ETCD = "etcd"
    STATIC = "static"


class RestartPolicy(StrEnum):
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"


class PodRetention(StrEnum):
    FAILED = "Failed"
    NONE = "None"
    ALL = "All"


class Distribution(StrEnum):
    """The way in which the workspace reaches the workers."""

    AUTO = "auto"
    SHARED = "shared"
    COPY = "copy"
    SERVE = "serve"


class Distributed(Model):
    """Settings by which torchrun finds its peers. The job's value of a field wins over the queue's."""

    backend: Backend | None = Field(
        default=None,
        description="Process group backend, exported for the script: nccl, gloo or mpi. Default: nccl, gloo without "
        "GPUs.",
    )
    rdzv_backend: RdzvBackend | None = Field(
        default=None, description="torchrun's rendezvous backend: c10d, etcd-v2, etcd or static. Default: c10d."
    )
    rdzv_endpoint: Annotated[str, Field(min_length=1, max_length=261, pattern=_ENDPOINT)] | None = Field(
        default=None,
        description="Rendezvous endpoint, host or host:port; without a port it is distributed.port, 2379 for etcd and "
        "etcd-v2. Default: worker 0 of the job by its fully qualified name; the operator's --etcd-endpoint for etcd "
        "and etcd-v2.",
    )
    rdzv_conf: (
        Annotated[
            dict[str, Annotated[str, Field(max_length=256, pattern=r"^[^,]*$")]],
            Field(max_length=32),
        ]
        | None
    ) = Field(
        default=None, description='Further settings of the rendezvous backend, e.g. join_timeout: "900". Default: none.'
    )
    port: Port | None = Field(
        default=None, description="Port of the rendezvous on worker 0, 1024 to 65535. Default: 29500."
    )


class RunPolicy(Model):
    """Restarts, deadlines and what is kept. The job's value of a field wins over the queue's."""

    max_restarts: Annotated[int, Field(ge=0, le=MAX_INT32)] | None = Field(
        default=None,
        description="How often the job starts over after what its program did itself; counted since its workers last "
        "ran for long (10 minutes). Default: 3.",
    )
    max_infrastructure_restarts: Annotated[int, Field(ge=0, le=MAX_INT32)] | None = Field(
        default=None,
        description="How often the job starts over after what the cluster did to it, such as a lost node; counted "
        "since its workers last ran for long. The operator's --max-infrastructure-restarts is the most. Default: that.",
    )
    max_worker_restarts: Annotated[int, Field(ge=0, le=MAX_INT32)] | None = Field(
        default=None,
        description="torchrun's own restarts of the ranks in place (PET_MAX_RESTARTS). A job's is immutable, because "
        "its workers are told once. Default: 0, 100 when elastic.",
    )
    restart_policy: RestartPolicy | None = Field(
        default=None,
        description="What restarts a job: OnFailure (any incident), Never, or ExitCode, which judges the code of the "
        "first rank that failed: 1, 2, 126, 127, 128 and 139 are permanent. Default: OnFailure.",
    )
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=MAX_INT32)] | None = Field(
        default=None,
        description="Seconds after its end at which the job and its workspace are deleted; later where a job that "
        "depends on it still waits. Default: never.",
    )
    active_deadline_seconds: Annotated[int, Field(ge=1, le=MAX_INT32)] | None = Field(
        default=None,
        description="Seconds of active time, over all attempts and not while suspended, after which the job fails. "
        "Default: none.",
    )
    startup_timeout_seconds: Annotated[int, Field(ge=1, le=MAX_INT32)] | None = Field(
        default=None, description="Seconds that the workers may take to be ready once they are admitted. Default: none."
    )
    pod_retention: PodRetention | None = Field(
        default=None,
        description="Which pods stay after an outcome: Failed (those of the last failed attempt), None or All. "
        "Default: Failed.",
    )


class Dataset(Model):
    """An existing PersistentVolumeClaim of the namespace, mounted into every worker."""

    name: DnsLabel = Field(description="Name of the volume in the pod.")
    claim_name: ClaimName = Field(description="Name of the PersistentVolumeClaim.")
    mount_path: MountPath = Field(description="Absolute path in the container.")
    read_only: bool = Field(default=True, description="Whether workers may only read. Default: true.")


Datasets = Annotated[
    tuple[Dataset, ...],
    Field(
        max_length=32,
        json_schema_extra=LIST_OF_NAMED,
    ),
    UNIQUE_NAMES,
]
