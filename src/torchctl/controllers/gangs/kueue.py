"""Kueue: admits a Job whole by the quota of a LocalQueue, and places no pod.

It holds a Job by `spec.suspend`, and at admission writes the flavor's node selector and tolerations into its template.
So a Job is created suspended by a field manager of its own, and what is applied afterwards names none of these fields:
else each apply would take Kueue's back, or be refused because the template of a running Job cannot change.

An eviction is told by the Workload alone, since the pods are only deleted. The same Job comes back later, with new pods
and without losing its place in the queue.
"""

import msgspec

from torchctl.api import labels, names
from torchctl.api.conditions import JobReason
from torchctl.api.kueue import KUEUE_WORKLOAD, KueueWorkload
from torchctl.controllers.gangs.scheduler import Gang, Marks, Needs
from torchctl.runtime.conditions import find, is_true

__all__ = ["ELASTIC", "PARTIAL", "FrozenKueue", "is_admitted", "may_grow", "words_of"]

PARTIAL = "kueue.x-k8s.io/job-min-parallelism"
"""Annotation of a Job that Kueue may shrink when it admits it. It excludes a size that changes later."""
ELASTIC = "kueue.x-k8s.io/elastic-job"
"""Annotation of a Job whose size may change while it runs: Kueue then asks for quota for what is added only."""


class FrozenKueue(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The LocalQueue that the Job waits in."""

    queue: str

    @property
    def name(self) -> str:
        return names.KUEUE

    @property
    def needs(self) -> Needs:
        what = (
            "spec.scheduling.kueueQueue of the queue needs Kueue, and the cluster has no workloads.kueue.x-k8s.io "
            "(v1beta2): install it, this job goes on by itself then"
        )
        return Needs(KUEUE_WORKLOAD, JobReason.KUEUE_NOT_INSTALLED, what)

    @property
    def admits_jobs(self) -> bool:
        return True

    @property
    def place(self) -> str:
        return f"Kueue's LocalQueue {self.queue}"

    def marks(self, gang: Gang) -> Marks:
        grows = {ELASTIC: "true"} if gang.least < gang.most else {}
        return Marks(job_labels={labels.KUEUE_QUEUE: self.queue}, job_annotations=grows)


def is_admitted(workload: KueueWorkload) -> bool:
    """Whether Kueue has given the Job its quota. Its pods may still wait for nodes."""
    return is_true(workload.status.conditions, "Admitted")


def may_grow(workload: KueueWorkload, *, up: bool) -> bool:
    """Whether the Job may ask for more than it was admitted with.

    Kueue marks the Workload of a Job whose size may change; without that it would stop it. It keeps PodsReady up
    to date of the latest slice alone, and evicts an earlier one that was not ready by then.

    Args:
        up: Whether the pods are ready, for a Kueue that does not wait for them.
    """
    ready = find(workload.status.conditions, "PodsReady")
    return ELASTIC in workload.metadata.annotations and (ready.status == "True" if ready is not None else up)


def words_of(workload: KueueWorkload) -> str:
    """Kueue's words on why a Workload waits: for whom it had to go, then what is short; empty if it has said nothing.

    `Evicted` stays True until the Workload is admitted again. With quota it may still wait for admission checks.
    """
    said = []
    types = ("Evicted", "QuotaReserved", "Admitted")
    evicted, quota, admitted = (find(workload.status.conditions, type_) for type_ in types)
    if evicted is not None and evicted.status == "True":
        said.append(f"evicted ({evicted.reason}): {evicted.message}")
    if quota is not None and quota.status == "False":
        said.append(quota.message or quota.reason)
    elif admitted is not None and admitted.status == "False":
        said.append(admitted.message or admitted.reason)
    return "; ".join(said)
