"""The workers' pod template without what an attempt adds: podTemplate, queue and job merged, canonical, secure."""

from dataclasses import dataclass
from typing import Any

from torchctl.api import labels
from torchctl.api.job import JobSpec
from torchctl.api.queue import QueueSpec
from torchctl.api.written import canonical, plain
from torchctl.controllers.job.children.command import argv
from torchctl.controllers.job.children.torchrun import hosts_by_index
from torchctl.controllers.job.template import merge, references, security, sharedmemory, sizing
from torchctl.controllers.job.template.frozen import FrozenCheckpoints, FrozenRendezvous, FrozenWorkspace
from torchctl.controllers.job.template.sizing import Shape

__all__ = ["Parts", "merge_pod", "sync_template"]

_OURS = ("restartPolicy", "subdomain", "hostname", "schedulerName", "schedulingGroup", "activeDeadlineSeconds")
"""Fields of a pod that a podTemplate may have and that only the operator decides."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The inputs of a pod template.

    Args:
        claimed: Whether the GPUs come from the pod's resource claims, so that no extended resource is asked for.
    """

    template: Json
    queue: QueueSpec
    job: JobSpec
    shape: Shape
    claimed: bool
    gpu_type_label: str
    scheduler: str
    workspace: FrozenWorkspace | None
    checkpoints: FrozenCheckpoints | None
    rendezvous: FrozenRendezvous


def merge_pod(parts: Parts) -> Json:
    """The pod template; `containers[0]` is the trainer."""
    base = parts.template["spec"]
    trainer, *others = base["containers"]
    resources = _resources(parts, trainer.get("resources", {}))
    shm = sharedmemory.size(
        parts.queue.storage,
        parts.job,
        parts.template,
        gpus=parts.shape.gpus,
        memory_limit=resources.get("limits", {}).get("memory", ""),
    )
    spec = {key: value for key, value in base.items() if key not in _OURS}
    spec |= _placement(parts, base)
    spec |= _identity(parts, base)
    spec[security.KEY] = security.pod(base.get(security.KEY, {}))
    beside, sidecars = _beside(parts, [security.secured(container) for container in others])
    spec["containers"] = [_trainer(parts, trainer, resources, shm), *beside]
    first = [*(security.secured(container) for container in base.get("initContainers", ())), *sidecars]
    if first:
        spec["initContainers"] = first
    volumes = merge.by_key(
        "name", base.get("volumes", ()), _volumes(parts, shm), _written(parts.job.volumes.additional_volumes)
    )
    if volumes:
        spec["volumes"] = volumes
    if base.get("hostNetwork"):
        spec.setdefault("dnsPolicy", "ClusterFirstWithHostNet")
    pod = {"metadata": _metadata(parts), "spec": canonical(spec)}
    return references.resolve(pod, parts.queue)


def _beside(parts: Parts, others: list[Json]) -> tuple[list[Json], list[Json]]:
    """The containers beside the trainer: those that stay plain, and native sidecars.

    A pod with a plain container ends no sooner than that does, and fails with it. A native sidecar is an init container
    that is started before the trainer, runs beside it, and is stopped when the trainer has ended.
    """
    asked = parts.template["metadata"].get("annotations", {}).get(labels.PLAIN_CONTAINERS, "")
    names = {name.strip() for name in asked.split(",")}
    plain = [container for container in others if container["name"] in names]
    return plain, [container | {"restartPolicy": "Always"} for container in others if container["name"] not in names]


def _metadata(parts: Parts) -> Json:
    """Labels and annotations; keys that only the operator may set are not taken from anyone."""
    template = parts.template["metadata"]
    asked = {"labels": parts.job.labels, "annotations": parts.job.annotations}
    metadata = {
        field: {key: value for key, value in (template.get(field, {}) | (given or {})).items() if not _refused(key)}
        for field, given in asked.items()
    }
    return {field: values for field, values in metadata.items() if values}


def sync_template(queue: QueueSpec) -> Json:
    """Returns the queue's overlay of the sync pods, without the fields that only the operator decides."""
    workspace = queue.storage.workspace
    given = plain(workspace.pod_template) if workspace is not None else {}
    metadata = {
        field: {key: value for key, value in given.get("metadata", {}).get(field, {}).items() if not _refused(key)}
        for field in ("labels", "annotations")
    }
    spec = {key: value for key, value in given.get("spec", {}).items() if key not in _OURS}
    every = {"metadata": {field: values for field, values in metadata.items() if values}, "spec": canonical(spec)}
    return {part: values for part, values in every.items() if values}


def _refused(key: str) -> bool:
    # A queue's admin may use further keys of KAI (gpu-fraction, topology); who the pods belong to is ours.
    return labels.owned_key(key) and (not key.startswith("kai.scheduler/") or key in (labels.KAI_QUEUE,))


def _placement(parts: Parts, base: Json) -> Json:
    queue, job = parts.queue.scheduling, parts.job
    gpu_type = parts.queue.node_resources.gpu_type if parts.shape.gpus else None
    selector = base.get("nodeSelector", {}) | (queue.node_selector or {})
    selector |= ({parts.gpu_type_label: gpu_type} if gpu_type else {}) | (job.node_selector or {})
    placement = {
        "schedulerName": parts.scheduler,
        "nodeSelector": selector,
        "affinity": queue.affinity,
        "tolerations": merge.unique(
            base.get("tolerations", ()), _written(queue.tolerations), _written(job.tolerations)
        ),
        "priorityClassName": job.priority_class_name or queue.priority_class_name,
    }
    return {key: value for key, value in placement.items() if value}


def _identity(parts: Parts, base: Json) -> Json:
    secrets = [{"name": name} for name in parts.queue.image_pull_secrets]
    account = parts.queue.service_account_name or base.get("serviceAccountName")
    identity = {
        "restartPolicy": "Never",
        "imagePullSecrets": merge.unique(base.get("imagePullSecrets", ()), secrets),
        "serviceAccountName": account,
    }
    found: Json = {key: value for key, value in identity.items() if value}
    # Training does not talk to the API server; a user who names an account wants its token.
    return (
        found if account or "automountServiceAccountToken" in base else found | {"automountServiceAccountToken": False}
    )


def _trainer(parts: Parts, base: Json, resources: Json, shm: str) -> Json:
    job, queue = parts.job, parts.queue
    trainer = security.secured(base) | _command(parts, base)
    trainer.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    image = job.image or queue.image
    if image:
        trainer["image"] = image
    directory = job.working_dir or (parts.workspace.mount_path if parts.workspace else base.get("workingDir"))
    if directory:
        trainer["workingDir"] = directory
    trainer.pop("resources", None)
    mounts = merge.by_key(
        "mountPath", base.get("volumeMounts", ()), _mounts(parts, shm), _written(job.volumes.additional_mounts)
    )
    sources = merge.unique(base.get("envFrom", ()), _written(queue.env_from), _written(job.env_from))
    more = {"env": _environment(parts, base), "envFrom": sources, "resources": resources, "volumeMounts": mounts}
    return trainer | {key: value for key, value in more.items() if value}


def _command(parts: Parts, base: Json) -> Json:
    network, reloads = bool(parts.template["spec"].get("hostNetwork")), parts.job.hot_reload.launches
    meeting = parts.rendezvous
    by_index = hosts_by_index(meeting.backend, meeting.endpoint, meeting.conf, host_network=network)
    words = argv(
        line=parts.job.command,
        args=parts.job.args or (),
        setup=parts.job.setup_command,
        launcher=parts.job.launcher,
        host_by_index=by_index and not reloads,
        split=reloads,
    )
    return {"command": words, "args": []} if base.get("args") else {"command": words}


def _environment(parts: Parts, base: Json) -> list[Json]:
    """The users' variables, the job's over the queue's over podTemplate's, without those that are the operator's."""
    pod_context = parts.template["spec"].get(security.KEY, {})
    defaults: list[Json] = []
    if security.runs_as_default_user(pod_context, base.get(security.KEY, {})):
        defaults = [{"name": "HOME", "value": "/tmp"}, {"name": "USER", "value": "torchrun"}]
    merged = merge.by_key("name", defaults, base.get("env", ()), _written(parts.queue.env), _written(parts.job.env))
    return [variable for variable in merged if not labels.owned_env(variable["name"])]


def _resources(parts: Parts, base: Json) -> Json:
    """Requests and limits: the queue's node over podTemplate's, the pod's share of them, GPUs as limits."""
    node, shape = parts.queue.node_resources, parts.shape
    own = {"cpu": node.cpus, "memory": node.memory}
    own = {name: amount for name, amount in own.items() if amount is not None}
    found = {}
    for field in ("requests", "limits"):
        given = {name: amount for name, amount in base.get(field, {}).items() if name != node.gpu_resource_name}
        found[field] = sizing.amounts(given | own, shape.share)
    if shape.gpus and not parts.claimed:
        found["limits"][node.gpu_resource_name] = str(shape.gpus)
    claims = {"claims": base["claims"]} if "claims" in base else {}
    return {field: values for field, values in found.items() if values} | claims


def _volumes(parts: Parts, shm: str) -> list[Json]:
    volumes = [
        {"name": item.name, "persistentVolumeClaim": _claim(item.claim_name, item.read_only)}
        for item in _datasets(parts)
    ]
    if shm:
        volumes.append({"name": sharedmemory.VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": shm}})
    return volumes


def _mounts(parts: Parts, shm: str) -> list[Json]:
    mounts = [_mount(item.name, item.mount_path, item.read_only) for item in _datasets(parts)]
    if shm:
        mounts.append(_mount(sharedmemory.VOLUME, sharedmemory.PATH, False))
    return mounts


def _datasets(parts: Parts) -> list[Any]:
    """The queue's and the job's datasets, the job's over the queue's by name."""
    every = (*parts.queue.storage.datasets, *parts.job.volumes.datasets)
    return list({dataset.name: dataset for dataset in every}.values())


def _claim(name: str, read_only: bool) -> Json:
    return {"claimName": name} | ({"readOnly": True} if read_only else {})


def _mount(name: str, path: str, read_only: bool) -> Json:
    return {"name": name, "mountPath": path} | ({"readOnly": True} if read_only else {})


def _written(models: Any) -> list[Json]:
    return [plain(model) for model in models]
