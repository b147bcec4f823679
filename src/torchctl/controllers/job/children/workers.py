"""The Indexed Job of an attempt: one pod per node.

A fixed-size job retries nothing by itself (backoffLimit 0, no podFailurePolicy, restartPolicy Never), so one failure
stops the rest and the operator decides. An elastic one replaces what it loses for ever, and has succeeded when worker 0
has, so that a late surplus pod cannot hold that up. It does not wait for the end of a pod that was told to stop: on a
node that does not answer that end never comes, and the Job's finalizer would keep the pod from being deleted by force
(pkg/controller/job, isPodFailed and canRemoveFinalizer). Neither has a TTL, because a Job that vanished must not look
like one that never was.
"""

from typing import Any

from torchctl.api import names, quantity
from torchctl.api.common import Distribution
from torchctl.api.job import WorkspaceSource
from torchctl.api.jobstatus import Admission
from torchctl.api.kube import JOB, Job
from torchctl.api.labels import ROLE_WORKER
from torchctl.controllers.job.children import torchrun
from torchctl.controllers.job.children.containers import (
    CLAIM_ROOT,
    flag,
    mount,
    tmp_volume,
    workspace_container,
)
from torchctl.controllers.job.children.launcher import (
    launched,
    launcher_containers,
    launcher_mounts,
    launcher_volumes,
)
from torchctl.controllers.job.children.owner import Metadata, Owner
from torchctl.controllers.job.children.placement import limited
from torchctl.controllers.job.children.podgroup import gang_of
from torchctl.controllers.job.children.preflight import preflight_containers
from torchctl.controllers.job.children.workspace import archive_url, checkpoints_name, claim_name
from torchctl.controllers.job.template.frozen import FrozenTemplate, FrozenWorkspace
from torchctl.controllers.job.template.merge import by_key

__all__ = ["is_stopped", "worker_job"]

_WORKSPACE = "torchrun-workspace"
_SOURCE = "torchrun-workspace-claim"
_CHECKPOINTS = "torchrun-checkpoints"

Json = dict[str, Any]

_ONCE: Json = {"backoffLimit": 0}
_ADMITTERS = ("nodeSelector", "tolerations", "schedulingGates")
"""Fields of the pods' spec that an admitter of Jobs adds to. Two are atomic in server-side apply: whoever names them
takes what the admitter has added away."""
_STOP_S = 1
"""The deadline of a Job that is ended for good."""
_FOR_EVER: Json = {"backoffLimit": 2**31 - 1, "successPolicy": {"rules": [{"succeededIndexes": "0"}]}}


def worker_job(
    owner: Owner,
    template: FrozenTemplate,
    attempt: int,
    *,
    nodes: int,
    made: Job | None = None,
    stop: bool = False,
    first: bool = False,
    let_in: Admission | None = None,
) -> Json:
    """The Job of an attempt with `nodes` pods.

    Args:
        made: The Job as it is, if there is one. It keeps the users' labels and annotations that it was made with.
        stop: Ends it for good and keeps it, by a deadline that has passed. `suspend` is never said: it belongs to a
            queueing system such as Kueue, which also takes back a suspension of ours.
        first: As it is created where something admits Jobs: suspended, with the fields that are the admitter's later.
        let_in: The coordinator's record, which may limit the pods to some nodes.
    """
    scheduler = template.gang_scheduler
    marks = scheduler.marks(gang_of(owner, template, attempt))
    body = owner.body(
        JOB,
        names.worker_job(owner.name, attempt),
        ROLE_WORKER,
        attempt=attempt,
        given=template.metadata if made is None else _as_made(template.metadata, made),
        labels=marks.labels | marks.job_labels,
        annotations=marks.job_annotations,
    )
    return body | {
        "spec": {
            "completionMode": "Indexed",
            "completions": nodes,
            "parallelism": nodes,
            "podReplacementPolicy": "TerminatingOrFailed" if template.elastic else "Failed",
            "template": limited(_pod(owner, template, attempt, nodes, made, first=first), let_in),
        }
        | ({"suspend": True} if first and scheduler.admits_jobs else {})
        | ({"activeDeadlineSeconds": _STOP_S} if stop else {})
        | (_FOR_EVER if template.elastic else _ONCE)
    }


def is_stopped(job: Job | None) -> bool:
    """Whether this operator has ended the Job for good: a deadline by anybody else is hardly this short."""
    return job is not None and job.spec.get("activeDeadlineSeconds") == _STOP_S


def _as_made(given: Metadata, made: Job) -> Metadata:
    """Returns these labels and annotations as the live Job has them.

    An earlier operator may have passed on fewer, and Kueue refuses each apply that would change its label on a Job that
    runs.
    """
    live = {"labels": made.metadata.labels, "annotations": made.metadata.annotations}
    return {field: {key: live[field][key] for key in keys if key in live[field]} for field, keys in given.items()}


def _pod(owner: Owner, template: FrozenTemplate, attempt: int, nodes: int, made: Job | None, *, first: bool) -> Json:
    pod, spec = template.pod, template.pod["spec"]
    meeting = torchrun.rendezvous(template, owner.name, owner.namespace, owner.uid, attempt)
    scheduler = template.gang_scheduler
    marks = scheduler.marks(gang_of(owner, template, attempt))
    labels = pod["metadata"].get("labels", {}) | owner.labels(ROLE_WORKER, attempt) | marks.labels
    annotations = pod["metadata"].get("annotations", {}) | marks.pod_annotations
    taken = _ADMITTERS if scheduler.admits_jobs and not first else ()
    base, *sidecars = spec["containers"]
    trainer = _reloading(owner, template, _trainer(owner, template, attempt, base), nodes, made)
    volumes = by_key("name", spec.get("volumes", ()), _volumes(owner, template))
    spec = (
        spec
        | marks.pod_spec
        | {
            "subdomain": names.service(owner.name),
            "containers": [trainer, *sidecars],
            "initContainers": [
                *preflight_containers(template, meeting.endpoint),
                *_init(owner, template),
                *launcher_containers(template),
                *spec.get("initContainers", ()),
            ],
            "volumes": volumes,
        }
    )
    metadata = {"labels": labels} | ({"annotations": annotations} if annotations else {})
    named = {key: value for key, value in spec.items() if value != [] and key not in taken}
    return {"metadata": metadata, "spec": named}


def _trainer(owner: Owner, template: FrozenTemplate, attempt: int, base: Json) -> Json:
    """The user's container with what the operator adds: the environment first, so that the user's may refer to it."""
    checkpoints = template.checkpoints.mount_path if template.checkpoints else ""
    ours = torchrun.environment(template, owner.name, owner.namespace, owner.uid, attempt, checkpoints=checkpoints)
    defaults = [{"name": name, "value": value} for name, value in torchrun.defaults(template).items()]
    mounts = by_key("mountPath", _mounts(template), base.get("volumeMounts", ()))
    environment = by_key("name", ours, defaults, base.get("env", ()))
    return base | {"env": environment} | ({"volumeMounts": mounts} if mounts else {})


def _reloading(owner: Owner, template: FrozenTemplate, trainer: Json, nodes: int, made: Job | None) -> Json:
    """The trainer with the launcher as its first process, if the job reloads its code."""
    if not template.launches:
        return trainer
    return trainer | {"command": launched(owner, template, trainer["command"], nodes=nodes, made=made)}


def _mounts(template: FrozenTemplate) -> list[Json]:
    mounts, workspace = [], template.workspace
    if workspace is not None:
        shared = workspace.distribution == Distribution.SHARED
        # A copy from an existing claim is already the part of it that was asked for.
        part = workspace.sub_path if shared or workspace.source != WorkspaceSource.EXISTING else ""
        read_only = shared and workspace.read_only
        mounts.append(mount(_WORKSPACE, workspace.mount_path, sub_path=part, read_only=read_only))
    if template.checkpoints is not None:
        mounts.append(mount(_CHECKPOINTS, template.checkpoints.mount_path))
    return [*mounts, *launcher_mounts(template)]


def _volumes(owner: Owner, template: FrozenTemplate) -> list[Json]:
    volumes = _workspace_volumes(owner, template, template.workspace) if template.workspace else []
    checkpoints = checkpoints_name(owner, template)
    if checkpoints:
        volumes.append({"name": _CHECKPOINTS, "persistentVolumeClaim": {"claimName": checkpoints}})
    return [*volumes, *launcher_volumes(template)]


def _room(template: FrozenTemplate, size: str) -> str:
    """The limit of a worker's copy, above which its pod is evicted: a new tree is staged beside the one that runs."""
    return str(quantity.parse(size).times(2)) if template.launches else size


def _workspace_volumes(owner: Owner, template: FrozenTemplate, workspace: FrozenWorkspace) -> list[Json]:
    claim: Json = {"claimName": claim_name(owner, workspace)}
    if workspace.distribution == Distribution.SHARED:
        return [
            {"name": _WORKSPACE, "persistentVolumeClaim": claim | ({"readOnly": True} if workspace.read_only else {})}
        ]
    room = {} if workspace.source == WorkspaceSource.EXISTING else {"sizeLimit": _room(template, workspace.size)}
    local: list[Json] = [{"name": _WORKSPACE, "emptyDir": room}, tmp_volume()]
    if workspace.distribution == Distribution.COPY:
        local.append({"name": _SOURCE, "persistentVolumeClaim": claim | {"readOnly": True}})
    return local


def _init(owner: Owner, template: FrozenTemplate) -> list[Json]:
    """Returns the init container that brings the workspace into a pod that does not mount the claim."""
    workspace = template.workspace
    if workspace is None or workspace.distribution == Distribution.SHARED:
        return []
    target = [mount(_WORKSPACE, workspace.mount_path)]
    options = [*flag("to", workspace.mount_path), *flag("timeout", workspace.timeout_s)]
    if workspace.distribution == Distribution.COPY:
        existing = workspace.source == WorkspaceSource.EXISTING
        part = workspace.sub_path if existing else ""
        # A user's claim may have no marker, because nobody could write one to it.
        args = ["copy", *flag("from", CLAIM_ROOT), *options, *(["--no-marker"] if existing else [])]
        target.append(mount(_SOURCE, CLAIM_ROOT, sub_path=part, read_only=True))
    else:
        args = ["pull", *flag("url", archive_url(owner, template.cluster_domain)), *options]
    return [workspace_container(names.INIT_CONTAINER, template.operator_image, args, target)]
