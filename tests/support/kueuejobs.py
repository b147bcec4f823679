"""Jobs as the operator makes them for Kueue: created whole and suspended, then applied without what Kueue writes."""

from typing import Any

from kueueobjects import GPU, QUEUE_NAME, Quota

from torchctl.api.kube import JOB

__all__ = ["ARCH", "apply", "steady", "submit"]

OPERATOR = "torchctl"
"""The field manager that applies a Job once it is there."""
ARCH = {"kubernetes.io/arch": "amd64"}
TAINT = {"key": "own", "operator": "Exists"}


def steady(
    quota: Quota,
    name: str = "job",
    *,
    pods: int = 2,
    queue: str = "train",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    """The Job as it is applied, of pods of eight GPUs. An empty `queue` leaves Kueue's label out."""
    named = {QUEUE_NAME: queue} if queue else {}
    container = {"name": "trainer", "image": "trainer:1", "resources": {"limits": {GPU: "8"}}}
    template = {"metadata": {"labels": {"app": "demo"}}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    size = {"completionMode": "Indexed", "completions": pods, "parallelism": pods, "backoffLimit": 0}
    metadata = {
        "name": name,
        "namespace": quota.namespace,
        "labels": named | (labels or {}),
        "annotations": annotations or {},
        "ownerReferences": [quota.owner],
    }
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": metadata,
        "spec": size | {"podReplacementPolicy": "Failed", "template": template},
    }


async def submit(quota: Quota, job: dict[str, Any]) -> None:
    """Creates a Job: suspended, with its own node selector and tolerations."""
    template = job["spec"]["template"]
    whole = template | {"spec": template["spec"] | {"nodeSelector": ARCH, "tolerations": [TAINT]}}
    first = job | {"spec": job["spec"] | {"suspend": True, "template": whole}}
    await quota.creator.create(JOB, first)


async def apply(quota: Quota, job: dict[str, Any]) -> None:
    """Applies a Job, as the operator does again and again."""
    await quota.admin.apply(JOB, job, force=True, field_manager=OPERATOR)
