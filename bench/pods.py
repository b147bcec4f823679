"""Worker pods as a cluster in use holds them: about 6 KB each as the API server serves them, managedFields included."""

import uuid
from typing import Any

__all__ = ["PODS_PER_JOB", "namespace_of", "pod_body", "pod_status"]

PODS_PER_JOB = 8
JOBS_PER_NAMESPACE = 25

_SEED = uuid.UUID("6f1d7c1e-58f3-4c0b-9a55-0d3f6d7e4a10")
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def namespace_of(number: int) -> str:
    return f"team-{number // (PODS_PER_JOB * JOBS_PER_NAMESPACE)}"


def pod_body(number: int) -> dict[str, Any]:
    """Pod `number` of the population, as the Job controller would create it: the index of a worker of some job."""
    job, index = f"vit-large-{number // PODS_PER_JOB}", number % PODS_PER_JOB
    job_uid, child_uid = _uid(f"{job}/trj"), _uid(f"{job}/job")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{job}-{index}-{_suffix(number)}",
            "namespace": namespace_of(number),
            "labels": {
                "app.kubernetes.io/managed-by": "torchctl",
                "batch.kubernetes.io/controller-uid": child_uid,
                "batch.kubernetes.io/job-completion-index": str(index),
                "batch.kubernetes.io/job-name": job,
                "controller-uid": child_uid,
                "job-name": job,
                "torchrun.ai/attempt": "0",
                "torchrun.ai/job-name": job,
                "torchrun.ai/job-uid": job_uid,
                "torchrun.ai/queue": "h100",
                "torchrun.ai/role": "worker",
            },
            "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": job,
                    "uid": child_uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": _spec(job, index, number),
    }


def _spec(job: str, index: int, number: int) -> dict[str, Any]:
    environment = {
        "PET_NNODES": str(PODS_PER_JOB),
        "PET_NPROC_PER_NODE": "8",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{job}-0.{job}.{namespace_of(number)}.svc.cluster.local:29500",
        "PET_RDZV_ID": _uid(f"{job}/trj"),
    }
    env = [{"name": name, "value": value} for name, value in environment.items()]
    resources = {"cpu": "96", "memory": "512Gi", "nvidia.com/gpu": "8"}
    return {
        "hostname": f"{job}-{index}",
        "subdomain": job,
        "nodeName": f"gpu-node-{number % 512}",
        "restartPolicy": "Never",
        "schedulerName": "kai-scheduler",
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": "trainer",
                "image": "pytorch/pytorch:2.7.1-cuda12.6-cudnn9-runtime",
                "command": ["torchrun", "train.py", "--model", "vit_large", "--epochs", "90"],
                "env": env,
                "resources": {"limits": resources, "requests": resources},
                "volumeMounts": [
                    {"name": "workspace", "mountPath": "/app"},
                ],
            }
        ],
        "volumes": [
            {"name": "workspace", "persistentVolumeClaim": {"claimName": f"{job}-workspace"}},
        ],
    }


def pod_status(number: int) -> dict[str, Any]:
    """What the kubelet reports of it."""
    types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    started = f"2026-03-01T08:{number // 60 % 60:02}:{number % 60:02}Z"
    image = "docker.io/pytorch/pytorch:2.7.1-cuda12.6-cudnn9-runtime"
    return {
        "phase": "Running",
        "conditions": [{"type": type_, "status": "True", "lastTransitionTime": started} for type_ in types],
        "hostIP": f"10.0.{number % 512 // 256}.{number % 256}",
        "podIP": f"10.{64 + number // 65536}.{number // 256 % 256}.{number % 256}",
        "startTime": started,
        "containerStatuses": [
            {
                "name": "trainer",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "image": image,
                "imageID": f"docker.io/pytorch/pytorch@sha256:{_SEED.hex * 2}",
                "containerID": f"containerd://{_uid(number).replace('-', '') * 2}",
                "state": {"running": {"startedAt": started}},
                "lastState": {},
            }
        ],
    }


def _uid(of: object) -> str:
    return str(uuid.uuid5(_SEED, str(of)))


def _suffix(number: int) -> str:
    digits = ""
    for _ in range(5):
        number, digit = divmod(number * 31 + 7, len(_LETTERS))
        digits += _LETTERS[digit]
    return digits
