"""Makes the frozen template: the queue's pod template, under the queue's fields, under the job's.

What two of them say by name or key (environment, volumes, mounts, labels, selectors) the job decides; what the
operator owns is added last, by the renderers.
"""

from collections.abc import Container, Sequence
from typing import Any

import msgspec

from torchctl.api import effective, names, quantity
from torchctl.api.common import Distribution, RdzvBackend
from torchctl.api.conditions import JobReason
from torchctl.api.effective import EffectiveDistributed
from torchctl.api.job import HotReload, JobSpec, TorchrunJob, WorkspaceSource
from torchctl.api.labels import KUEUE_QUEUE
from torchctl.api.names import TRAINER
from torchctl.api.queue import QueueSpec, TorchrunQueue
from torchctl.api.written import plain
from torchctl.controllers.gangs.kueue import PARTIAL
from torchctl.controllers.job.children import preflight
from torchctl.controllers.job.template import conflicts, gputypes, podspec, security, sizing
from torchctl.controllers.job.template.errors import Impossible
from torchctl.controllers.job.template.frozen import (
    FrozenCheckpoints,
    FrozenElastic,
    FrozenRendezvous,
    FrozenTemplate,
    FrozenWorkspace,
)
from torchctl.controllers.job.template.gangs import placement
from torchctl.controllers.job.template.sizing import Node, Shape
from torchctl.controllers.queuespec.support import for_the_coordinator
from torchctl.controllers.settings import OperatorSettings
from torchctl.runtime.kinds import Kind

__all__ = ["render"]

_MANY = frozenset({"ReadWriteMany", "ReadOnlyMany"})
_READ_ONLY = frozenset({"ReadOnlyMany"})
_ETCD = (RdzvBackend.ETCD, RdzvBackend.ETCD_V2)


def render(
    job: TorchrunJob,
    queue: TorchrunQueue,
    settings: OperatorSettings,
    *,
    claim_modes: Sequence[str] = (),
    claim_packed: bool = False,
    absent: Container[Kind[Any]] = (),
) -> FrozenTemplate:
    """The template of a job in its queue: a pure function, the same in every process.

    Args:
        queue: A queue in which `validate.problem_of` finds nothing.
        claim_modes: Access modes of the workspace's claim, which never change: of the one that source `existing`
            names, or that an earlier attempt has made. Empty: it is made as the queue says.
        claim_packed: Whether the claim that an earlier attempt has made keeps an upload as one file.
        absent: The kinds of PodGroups that the API server does not serve, for a queue whose scheduler is `auto`.

    Raises:
        Impossible: The two do not work together; the message names field and next step.
    """
    spec, base, name = job.spec, queue.spec, queue.metadata.name
    given = _pod_template(base)
    trainer = given["spec"]["containers"][0]
    node = _node(base, trainer)
    shape = sizing.shape(spec, node, name)
    sizing.check_bound(spec, shape, settings.max_nodes)
    distributed = effective.distributed(base, spec, gpus=shape.gpus)
    rendezvous = _rendezvous(distributed, settings)
    if spec.elastic is not None and distributed.rdzv_backend is RdzvBackend.STATIC:
        raise Impossible(
            JobReason.INVALID_SPEC,
            f"spec.elastic does not go with distributed.rdzvBackend static of TorchrunQueue {name}: "
            "set spec.distributed.rdzvBackend to c10d",
        )
    reloads = spec.hot_reload is not HotReload.OFF
    workspace = _workspace(base, job, shape, claim_modes, packed=claim_packed)
    if reloads and workspace is None:
        raise Impossible(
            JobReason.IMPOSSIBLE_WORKSPACE,
            f"spec.hotReload needs a workspace, and neither the job nor TorchrunQueue {name} has one: set "
            "spec.volumes.workspace and submit the job again",
        )
    checkpoints = _checkpoints(base, spec, shape)
    placed = placement(base, spec, settings.default_scheduler, absent, name)
    parts = podspec.Parts(
        template=given,
        queue=base,
        job=spec,
        shape=shape,
        claimed=node.claimed,
        gpu_type_label=gputypes.label(base.node_resources, settings.gpu_type_label, name),
        scheduler=placed.scheduler_name,
        workspace=workspace,
        checkpoints=checkpoints,
        rendezvous=rendezvous,
    )
    conflicts.check(parts, name)
    pod = podspec.merge_pod(parts)
    if "image" not in pod["spec"]["containers"][0]:
        raise Impossible(
            JobReason.INVALID_SPEC,
            f"no image: set spec.image of TorchrunQueue {name}, or submit the job again with an image",
        )
    if placed.kueue is not None and PARTIAL in pod["metadata"].get("annotations", {}):
        raise Impossible(
            JobReason.INVALID_SPEC,
            f"annotation {PARTIAL} of the pods does not go with scheduling.kueueQueue of TorchrunQueue {name}: "
            "torchrun would wait for those that Kueue leaves out; set spec.elastic instead, to ask for minNodes first",
        )
    coordinated = (
        settings.coordinator is not None
        and not (placed.scheduler_name or placed.native or placed.kueue)
        and KUEUE_QUEUE not in pod["metadata"].get("labels", {})
    )
    unheeded = "" if coordinated else for_the_coordinator(base)
    if unheeded:
        raise Impossible(
            JobReason.INVALID_SPEC,
            f"{unheeded} of TorchrunQueue {name} are for jobs that the coordinator lets in, and another scheduler has "
            "this one: submit it to a queue without them, or name no scheduler for it",
        )
    if spec.priority is not None and not coordinated:
        raise Impossible(
            JobReason.INVALID_SPEC,
            f"spec.priority is for jobs that the coordinator lets in, and TorchrunQueue {name} has none or another "
            "scheduler: leave it out, and set spec.priorityClassName if the scheduler orders jobs by that",
        )
    template = FrozenTemplate(
        queue=name,
        nodes=shape.nodes,
        elastic=_elastic(spec),
        hot_reload=spec.hot_reload if reloads else "",
        gpus_per_node=shape.gpus,
        gpu_resource=base.node_resources.gpu_resource_name,
        nproc_per_node=spec.nproc_per_node or max(1, shape.gpus),
        max_worker_restarts=effective.run_policy(base, spec).max_worker_restarts,
        queue_run_policy=plain(base.run_policy),
        backend=distributed.backend,
        rendezvous=msgspec.structs.replace(
            # With hot reload workers meet where the companion says.
            rendezvous,
            preflight=not spec.hot_reload.launches and preflight.applies(rendezvous, spec.launcher, pod),
        ),
        cluster_domain=settings.cluster_domain,
        operator_image=settings.image,
        workspace=workspace,
        checkpoints=checkpoints,
        kai=placed.kai,
        volcano=placed.volcano,
        native=placed.native,
        kueue=placed.kueue,
        auto=placed.auto,
        coordinated=coordinated,
        pod=pod,
    )
    return FrozenTemplate.load(template.data())  # what a later reconcile reads back, to the type of every value


def _rendezvous(asked: EffectiveDistributed, settings: OperatorSettings) -> FrozenRendezvous:
    endpoint = asked.rdzv_endpoint or (settings.etcd_endpoint if asked.rdzv_backend in _ETCD else "")
    return FrozenRendezvous(backend=asked.rdzv_backend, endpoint=endpoint, conf=asked.rdzv_conf, port=asked.port)


def _elastic(job: JobSpec) -> FrozenElastic | None:
    asked = job.elastic
    return FrozenElastic(min_nodes=asked.min_nodes, max_nodes=asked.max_nodes) if asked else None


def _pod_template(queue: QueueSpec) -> dict[str, Any]:
    template = plain(queue.pod_template, nulls_in=security.KEY)
    containers = template.get("spec", {}).get("containers") or [{"name": TRAINER}]
    return {"metadata": template.get("metadata", {}), "spec": template.get("spec", {}) | {"containers": containers}}


def _node(queue: QueueSpec, trainer: dict[str, Any]) -> Node:
    """Returns the node that the queue describes, in nodeResources or only in its podTemplate."""
    resources = queue.node_resources
    if resources.gpus_per_node is not None:
        return Node(resources.gpus_per_node, claimed=True)
    there = trainer.get("resources", {}).get("limits", {}).get(resources.gpu_resource_name, 0)
    return Node(resources.gpus or int(quantity.parse(there).value))


def _workspace(
    queue: QueueSpec, job: TorchrunJob, shape: Shape, claim_modes: Sequence[str], *, packed: bool
) -> FrozenWorkspace | None:
    asked = effective.workspace(queue, job.spec)
    if asked is None:
        return None
    base = effective.queue_workspace(queue)
    per_gpu = None if asked.size else base.size_per_gpu
    gpus = shape.nodes * shape.gpus
    modes = claim_modes or [str(mode) for mode in base.access_modes]
    most = job.spec.elastic.max_nodes if job.spec.elastic else shape.nodes
    claim = (asked.claim_name or names.workspace_claim(job.metadata.name)) if claim_modes else ""
    receives = asked.source is WorkspaceSource.ZIP and not asked.url
    if job.spec.hot_reload is not HotReload.OFF:
        distribution = _reloaded(base.distribution, job.spec.hot_reload, frozenset(modes), claim)
    else:
        distribution = _distribution(base.distribution, asked.source, frozenset(modes), most, claim)
    if packed and distribution is Distribution.SHARED:
        distribution = Distribution.COPY  # there are no files that workers could mount
    packs = receives and job.spec.hot_reload is HotReload.OFF and distribution is not Distribution.SHARED
    return FrozenWorkspace(
        size=sizing.total(asked.size or base.size, per_gpu, gpus, effective.DEFAULT_CLAIM_SIZE),
        access_modes=tuple(modes),
        storage_class=base.storage_class or "",
        mount_path=base.mount_path,
        distribution=distribution,
        source=asked.source,
        url=asked.url or "",
        ref=asked.ref or "",
        secret=asked.secret_ref or "",
        claim=asked.claim_name or "",
        sub_path=asked.sub_path or "",
        timeout_s=asked.timeout_seconds,
        receives=receives,
        packed=packs and (packed or not claim_modes),
        cache=(base.cache_claim_name or "") if receives else "",
        pod=podspec.sync_template(queue),
    )


def _distribution(
    wanted: Distribution, source: WorkspaceSource, modes: frozenset[str], nodes: int, claim: str
) -> Distribution:
    """Decides, here alone, how the workspace reaches the workers.

    Args:
        nodes: The most pods that the job can have.
        claim: The claim, if there is one already.

    Raises:
        Impossible: The claim cannot be filled, or not be mounted by all the pods that would need it.
    """
    if modes == _READ_ONLY:
        return _read_only(wanted, source)
    many = bool(modes & _MANY)
    if wanted is Distribution.AUTO:
        return Distribution.COPY if many else Distribution.SHARED if nodes == 1 else Distribution.SERVE
    if wanted in (Distribution.SHARED, Distribution.COPY) and not many and nodes > 1:
        needs = f"distribution {wanted} needs a claim that {nodes} nodes can mount"
        raise Impossible(
            JobReason.IMPOSSIBLE_WORKSPACE,
            f"{needs}; PersistentVolumeClaim {claim} is {sorted(modes)} for good: set distribution serve or auto in "
            "the queue's storage.workspace, or submit the job again"
            if claim
            else f"{needs}, and the access modes of the workspace are {sorted(modes)}: set ReadWriteMany, or "
            "distribution serve or auto, in the queue's storage.workspace",
        )
    return wanted


def _reloaded(wanted: Distribution, hot_reload: HotReload, modes: frozenset[str], claim: str) -> Distribution:
    """The distribution for a job that reloads: the pod that writes new code to the claim serves it as well.

    If only files are to change, the workers mount the claim, and nothing has to reach them.

    Args:
        claim: The claim, if there is one already.

    Raises:
        Impossible: The workers would mount the claim that is written to, or could not mount it.
    """
    if hot_reload is HotReload.FILES:
        return _mounted(modes, claim)
    if wanted is Distribution.SHARED:
        raise Impossible(
            JobReason.IMPOSSIBLE_WORKSPACE,
            f"hotReload {hot_reload} does not go with distribution shared: the code under a running program would "
            "change in pieces; set auto or serve in the queue's storage.workspace, or submit the job again with "
            "hotReload Files (only files change)",
        )
    return Distribution.SERVE


def _mounted(modes: frozenset[str], claim: str) -> Distribution:
    if "ReadWriteMany" in modes:
        return Distribution.SHARED
    raise Impossible(
        JobReason.IMPOSSIBLE_WORKSPACE,
        "hotReload Files needs a claim that workers and the sync pod can mount on any node, and "
        + (
            f"PersistentVolumeClaim {claim} is {sorted(modes)} for good: submit the job again, with hotReload Restart "
            "or in a queue with ReadWriteMany"
            if claim
            else f"the access modes of the workspace are {sorted(modes)}: set ReadWriteMany in the queue's "
            "storage.workspace, or submit the job again with hotReload Restart"
        ),
    )


def _read_only(wanted: Distribution, source: WorkspaceSource) -> Distribution:
    """A claim to which nothing can be written, no marker either: whoever needs it mounts it."""
    if source is not WorkspaceSource.EXISTING:
        raise Impossible(
            JobReason.IMPOSSIBLE_WORKSPACE,
            "the workspace's accessModes are [ReadOnlyMany], so nothing can be written to it: "
            "add ReadWriteOnce or ReadWriteMany in the queue's storage.workspace",
        )
    return Distribution.SHARED if wanted is Distribution.AUTO else wanted


def _checkpoints(queue: QueueSpec, job: JobSpec, shape: Shape) -> FrozenCheckpoints | None:
    asked = effective.checkpoints(queue, job)
    if asked is None:
        return None
    if asked.claim_name:
        return FrozenCheckpoints(mount_path=asked.mount_path, claim=asked.claim_name)
    return FrozenCheckpoints(
        mount_path=asked.mount_path,
        size=sizing.total(asked.size, asked.size_per_gpu, shape.nodes * shape.gpus, effective.DEFAULT_CLAIM_SIZE),
        access_modes=tuple(str(mode) for mode in asked.access_modes),
        storage_class=asked.storage_class or "",
        retain=asked.retain,
    )
