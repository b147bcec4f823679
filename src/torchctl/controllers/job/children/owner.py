"""What every child says of its job: owner, labels, name and namespace."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchctl.api import labels, names
from torchctl.api.job import TORCHRUN_JOB, TorchrunJob
from torchctl.api.labels import owned_key
from torchctl.runtime.kinds import Kind

__all__ = ["ROLE_CHECKPOINTS", "ROLE_TEMPLATE", "ROLE_WORKSPACE", "Owner"]

ROLE_WORKSPACE = "workspace"
ROLE_CHECKPOINTS = "checkpoints"
ROLE_TEMPLATE = "template"

_OF_ONE_CONTAINER = "container.apparmor.security.beta.kubernetes.io/"
"""Annotations that name a container of the pod, which Kubernetes refuses in a pod without it."""


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
        """Labels that pick the job's pods of a role, of one attempt where it is given."""
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
        given: Mapping[str, Mapping[str, str]] | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """A child without its content.

        Args:
            owned: False for what outlives the job.
            given: The user's labels and annotations; ours win, and keys that are ours do not count.
            labels, annotations: Ours, besides those that every child has.
        """
        theirs = _passed_on(given or {})
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


def _passed_on(given: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """What of a worker's labels and annotations every other child has too."""
    return {
        field: {
            key: value
            for key, value in given.get(field, {}).items()
            if not owned_key(key) and not key.startswith(_OF_ONE_CONTAINER)
        }
        for field in ("labels", "annotations")
    }
