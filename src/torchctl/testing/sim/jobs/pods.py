"""A Job's pods: how the Job controller reads them, and makes them from the template. Pure."""

import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from torchctl.api.names import JOB_TRACKING
from torchctl.testing.fake.grace import TIME

__all__ = ["INDEX", "Worker", "pod_of", "seen"]

Json = dict[str, Any]

INDEX = "batch.kubernetes.io/job-completion-index"
JOB_NAME = "batch.kubernetes.io/job-name"
CONTROLLER_UID = "batch.kubernetes.io/controller-uid"

NOBODY = -1
"""The index of a pod without one."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A pod, as far as the Job controller looks.

    Attributes:
        index: Its completion index, `NOBODY` without.
        tracked: It has the finalizer that keeps it until it is counted.
        ended_at: When it ended, in seconds since the epoch; None if no container says.
        exit_codes: Exit codes by container.
        conditions: The status of its conditions by type.
    """

    name: str
    uid: str
    index: int
    phase: str
    leaves: bool
    tracked: bool
    ready: bool
    scheduled: bool
    ended_at: float | None
    exit_codes: dict[str, int]
    conditions: dict[str, str]

    @property
    def is_active(self) -> bool:
        return self.phase not in ("Succeeded", "Failed") and not self.leaves

    @property
    def is_terminating(self) -> bool:
        return self.phase not in ("Succeeded", "Failed") and self.leaves


def seen(body: Json) -> Worker:
    """Reads a pod."""
    meta, status = body["metadata"], body.get("status", {})
    ended = [
        (found["name"], found["state"]["terminated"])
        for found in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
        if "terminated" in found.get("state", {})
    ]
    conditions = {one["type"]: one["status"] for one in status.get("conditions", ())}
    return Worker(
        name=meta["name"],
        uid=meta["uid"],
        index=int(meta.get("annotations", {}).get(INDEX, NOBODY)),
        phase=status.get("phase", ""),
        leaves="deletionTimestamp" in meta,
        tracked=JOB_TRACKING in meta.get("finalizers", ()),
        ready=conditions.get("Ready") == "True",
        scheduled=bool(body["spec"].get("nodeName")),
        ended_at=max((_seconds(state["finishedAt"]) for _, state in ended), default=None),
        exit_codes={name: state["exitCode"] for name, state in ended},
        conditions=conditions,
    )


def pod_of(job: Json, index: int | None) -> Json:
    """Returns the pod for an index of an Indexed Job, or for any other Job (None), whose name is still to be drawn."""
    meta, template = job["metadata"], job["spec"]["template"]
    labels = {**template.get("metadata", {}).get("labels", {})}
    annotations = {**template.get("metadata", {}).get("annotations", {})}
    spec = copy.deepcopy(template["spec"])
    stem = meta["name"]
    if index is not None:
        annotations[INDEX] = labels[INDEX] = str(index)
        stem = f"{stem}-{index}"
        spec.setdefault("hostname", stem)
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{stem}-",
            "labels": labels,
            "annotations": annotations,
            "finalizers": [JOB_TRACKING],
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _seconds(time: str) -> float:
    return datetime.strptime(time + "+0000", TIME + "%z").timestamp()
