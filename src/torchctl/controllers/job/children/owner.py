"""Gives every child of a job its owner, labels, name and namespace."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchctl.api import labels, names
from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.kube import JOB, POD, PVC
from torchctl.api.labels import owned_key
from torchctl.runtime.kinds import Kind

__all__ = ["ROLE_CHECKPOINTS", "ROLE_TEMPLATE", "ROLE_WORKSPACE", "Metadata", "Owner"]

Metadata = Mapping[str, Mapping[str, str]]
"""Labels and annotations, by the field that they are in."""

ROLE_WORKSPACE = "workspace"
ROLE_CHECKPOINTS = "checkpoints"
ROLE_TEMPLATE = "template"

_ANNOTATED = frozenset({JOB, POD, PVC})
"""Children that have the workers' annotations: the Job, sync pods and claims. On a headless Service
`prometheus.io/scrape` would have each worker scraped twice."""

_NOT_FOR_ALL: Mapping[str, frozenset[Kind[Any]]] = {
    # It names a container of the pod, and Kubernetes refuses it in a pod without that container.
    "container.apparmor.security.beta.kubernetes.io/": frozenset(),
    # A network of the workers has no address or device to spare for a sync pod, which then may not start.
    "k8s.v1.cni.cncf.io/": frozenset(),
    # Kueue queues every object that has its label, so of a job only the workers' Job may have it.
    "kueue.x-k8s.io/": frozenset({JOB}),
}
"""Prefixes of labels and annotations that are not for everybody: children that have them besides the worker pods."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The job that children belong to."""

    name: str
    namespace: str
    uid: str
    queue: str

    @classmethod
    def of(cls, job: TorchrunJob) -> "Owner":
        return cls(job.metadata.name, job.metadata.namespace, job.metadata.uid, job.spec.job_queue)

    def labels(self, role: str, attempt: int | None = None) -> dict[str, str]:
        """The labels of a child; Jobs and pods carry the attempt besides."""
        more = {} if attempt is None else {labels.ATTEMPT: str(attempt)}
        return labels.job_labels(self.name, self.uid, self.queue, role) | more

    def selector(self, role: str, attempt: int | None = None) -> dict[str, str]:
        """Returns labels that select the job's pods of a role, and only those of one attempt if it is given."""
        every = self.labels(role, attempt)
        return {key: every[key] for key in (labels.JOB_UID, labels.ROLE, labels.ATTEMPT) if key in every}

    def body(
        self,
        kind: Kind[Any],
        name: str,
        role: str,
        *,
        attempt: int | None = None,
        owned: bool = True,
        given: Metadata | None = None,
        more: Metadata | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """A child without its content.

        Args:
            owned: False for what outlives the job.
            given: The workers' labels and annotations, as the user wrote them.
            more: What the user wrote for this child alone. Ours win over both, and keys that are ours do not count.
            labels, annotations: Ours, besides those that every child has.
        """
        theirs = _passed_on(kind, given or {}, more or {})
        metadata: dict[str, Any] = {
            "name": name,
            "namespace": self.namespace,
            "labels": theirs["labels"] | self.labels(role, attempt) | dict(labels or {}),
        }
        if theirs["annotations"] or annotations:
            metadata["annotations"] = theirs["annotations"] | dict(annotations or {})
        if owned:
            metadata["ownerReferences"] = [self.reference()]
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}

    def reference(self) -> dict[str, Any]:
        return {
            "apiVersion": names.API_VERSION,
            "kind": TORCHRUN_JOB.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


def _passed_on(kind: Kind[Any], given: Metadata, more: Metadata) -> dict[str, dict[str, str]]:
    """Returns the labels and annotations of users that a child of this kind gets."""
    return {
        "labels": _theirs(kind, given.get("labels", {}), more.get("labels", {})),
        "annotations": _theirs(
            kind, given.get("annotations", {}) if kind in _ANNOTATED else {}, more.get("annotations", {})
        ),
    }


def _theirs(kind: Kind[Any], given: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    passed = {key: value for key, value in given.items() if _is_for(kind, key)}
    return {key: value for key, value in (passed | dict(more)).items() if not owned_key(key)}


def _is_for(kind: Kind[Any], key: str) -> bool:
    return all(kind in kinds for prefix, kinds in _NOT_FOR_ALL.items() if key.startswith(prefix))
