"""The names of a job's objects, which follow from the job's own name alone.

A name belongs to one attempt for ever, so that neither a duplicate nor a resurrected child can exist.
"""

__all__ = [
    "API_VERSION",
    "AUTO",
    "DEFAULT_SCHEDULER",
    "ETCD_PORT",
    "FIELD_MANAGER",
    "GPU_RESOURCE",
    "GROUP",
    "INIT_CONTAINER",
    "JOB_TRACKING",
    "KAI_DEFAULT_QUEUE",
    "KAI_FINALIZER",
    "KAI_SCHEDULER",
    "KUEUE",
    "LAUNCHER_ROOT",
    "MASTER_PORT",
    "MAX_JOB_NAME",
    "MAX_QUEUE_NAME",
    "NATIVE",
    "PREFLIGHT_CONTAINER",
    "RESOURCES_FINALIZER",
    "SERVE_PORT",
    "TRAINER",
    "UPLOAD_PORT",
    "VERSION",
    "VOLCANO",
    "VOLCANO_FINALIZER",
    "checkpoints_claim",
    "master_host",
    "pod_group",
    "pod_host",
    "rendezvous_id",
    "revision",
    "service",
    "sync_pod",
    "worker_job",
    "workspace_claim",
    "workspace_service",
]

GROUP = "torchrun.ai"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

FIELD_MANAGER = "torchctl"
KAI_FINALIZER = f"{GROUP}/kai-queue"
"""Held by a TorchrunQueue while its KAI Queue exists: that one is cluster-scoped, so no owner reference can do."""

VOLCANO_FINALIZER = f"{GROUP}/volcano-queue"
"""The same for its Volcano Queue."""

RESOURCES_FINALIZER = f"{GROUP}/resources"
"""Held by a TorchrunQueue while there are ConfigMaps of its own, which go with it: running jobs may need them."""

TRAINER = "trainer"
"""The container of a worker that runs the user's command."""
INIT_CONTAINER = "workspace"
"""The init container of a worker that brings the workspace into the pod."""
PREFLIGHT_CONTAINER = "preflight"
"""The init container of a worker that asks whether the workers can meet at all."""
DEFAULT_SCHEDULER = "default-scheduler"
"""The scheduler's name of pods that name none (`DefaultSchedulerName` of `k8s.io/api/core/v1`)."""
JOB_TRACKING = "batch.kubernetes.io/job-tracking"
"""The finalizer of a Job's controller on the pods that it has not counted (`JobTrackingFinalizer` of `batch/v1`)."""
KAI_SCHEDULER = "kai-scheduler"
KUEUE = "kueue"
"""The name by which the operator speaks of Kueue, which places no pods and so is no scheduler's name."""

VOLCANO = "volcano"
"""The scheduler's name of Volcano."""
AUTO = "auto"
"""Stands for the first gang scheduler that the cluster has when a job is started."""
NATIVE = "kubernetes"
"""Stands for kube-scheduler with Kubernetes' own gangs: no scheduler has this name."""
KAI_DEFAULT_QUEUE = "default-queue"
"""The KAI Queue in which KAI puts pods that name none."""

LAUNCHER_ROOT = "/torchrun-launcher"
"""The directory at which a trainer sees the launcher, if its job reloads its code while it runs."""

GPU_RESOURCE = "nvidia.com/gpu"
"""The extended resource that counts GPUs, unless a queue names another."""

MASTER_PORT = 29500
ETCD_PORT = 2379
SERVE_PORT = 8080
UPLOAD_PORT = 8081
"""The port at which a sync pod takes uploads, on its loopback address only: port-forward leads there."""

MAX_JOB_NAME = 50
"""Longest name of a TorchrunJob. With `-r<attempt>`, `-<index>` or `-checkpoints` it still is a DNS label of 63."""
MAX_QUEUE_NAME = 63
"""Longest name of a TorchrunQueue, because it is the value of a label."""


def workspace_claim(job: str) -> str:
    """The PersistentVolumeClaim that holds the job's workspace."""
    return f"{job}-workspace"


def checkpoints_claim(job: str) -> str:
    """The PersistentVolumeClaim for checkpoints, found again by a later job of the same name."""
    return f"{job}-checkpoints"


def sync_pod(job: str, number: int = 0) -> str:
    """The pod that fills the workspace claim, the `number`-th try (from 0)."""
    return f"{job}-sync-{number}"


def service(job: str) -> str:
    """The headless Service that gives the worker pods their hostnames."""
    return job


def workspace_service(job: str) -> str:
    """The Service in front of a sync pod that serves the workspace."""
    return f"{job}-workspace"


def revision(job: str, digest: str) -> str:
    """The ControllerRevision that keeps the template this job runs with."""
    return f"{job}-{digest}"


def worker_job(job: str, attempt: int = 0) -> str:
    """The Indexed Job of an attempt (from 0)."""
    return job if attempt == 0 else f"{job}-r{attempt}"


def pod_host(child: str, index: int, job: str, namespace: str, cluster_domain: str) -> str:
    """The fully qualified hostname of one worker.

    `child` is the name of the attempt's Job. A short name would lose a race with DNS: TorchElastic decides
    once, by resolving the endpoint, which pod hosts the store, and only the full name is in the pod's hosts file.
    """
    return f"{child}-{index}.{service(job)}.{namespace}.svc.{cluster_domain}"


def master_host(child: str, job: str, namespace: str, cluster_domain: str) -> str:
    """The fully qualified hostname of worker 0."""
    return pod_host(child, 0, job, namespace, cluster_domain)


def pod_group(child: str, job_uid: str) -> str:
    """The PodGroup of an attempt. KAI ignores the namespace, so the name is unique in the cluster."""
    return f"pg-{child}-{job_uid}"


def rendezvous_id(job_uid: str, attempt: int) -> str:
    """The rendezvous id of an attempt. No other has it, so that late agents of an earlier one cannot join."""
    return f"{job_uid}-{attempt}"
