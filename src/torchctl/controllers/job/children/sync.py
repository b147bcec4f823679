"""Builds the sync pod, which fills the workspace claim once, and serves it if not all workers can mount it.

It is always placed by the default scheduler, has no token of the API server and is never root. Nothing that a
user wrote is formatted into a script: url, ref and paths are arguments of `torchctl workspace`.
"""

from typing import Any

from torchctl.api import names
from torchctl.api.common import Distribution
from torchctl.api.job import WorkspaceSource
from torchctl.api.kube import POD
from torchctl.api.labels import ROLE_SYNC, WORKSPACE_KEPT, WORKSPACE_REVISION
from torchctl.controllers.job.children.containers import (
    CLAIM_ROOT,
    field,
    flag,
    mount,
    port,
    tmp_volume,
    workspace_container,
)
from torchctl.controllers.job.children.overlay import over
from torchctl.controllers.job.children.owner import Owner
from torchctl.controllers.job.children.workspace import claim_name, stays
from torchctl.controllers.job.template import security
from torchctl.controllers.job.template.frozen import FrozenTemplate, FrozenWorkspace
from torchctl.controllers.job.template.merge import unique

__all__ = ["FETCH", "SERVE", "sync_pod"]

FETCH = "fetch"
SERVE = "serve"

_CLAIM = "torchrun-workspace"
_SECRET = "torchrun-source-secret"
_SECRET_ROOT = "/secret"
_CACHE = "torchrun-cache"
_CACHE_ROOT = "/cache"
_STORE = f"{CLAIM_ROOT}/.torchctl-store"
"""The place of uploaded files on the claim of a job that takes up new code, whose later uploads have much the same."""
_TOKEN = "TORCHCTL_POD_UID"
"""The variable with the token of an upload: the pod's uid, known to who may read the pod and to nobody else."""
_RECEIVER_CPU = "2"
"""Several threads hash and write an upload; with one core, the kernel would hold them up while another core is idle."""
_PLACEMENT = ("nodeSelector", "affinity")

Json = dict[str, Any]


def sync_pod(owner: Owner, template: FrozenTemplate, number: int, *, revision: str = "", kept: bool = False) -> Json:
    """The `number`-th try to fill the claim, with what the source has or with a revision of it.

    Args:
        kept: The claim was filled before, and stays as it is.
    """
    workspace = template.workspace
    assert workspace is not None
    workers = template.pod["spec"]
    fetch = _keeping(template.operator_image) if kept else _fetch(workspace, template, revision)
    spec: Json = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": security.sync_pod(workers["securityContext"]),
        "volumes": _volumes(owner, workspace),
    }
    if stays(template):
        spec |= {"initContainers": [fetch], "containers": [_serve(owner, workspace, template)]}
    else:
        spec |= {"containers": [fetch]}
    if workspace.decides_place:
        spec |= {key: workers[key] for key in _PLACEMENT if key in workers}
    # A cluster may have tainted all its nodes: it tolerates what the workers do, and what ExtendedResourceToleration
    # lets pods with GPUs tolerate, of which this is none.
    gpus = {"key": template.gpu_resource or names.GPU_RESOURCE, "operator": "Exists"}
    spec["tolerations"] = unique(workers.get("tolerations", ()), [gpus])
    if "imagePullSecrets" in workers:
        spec["imagePullSecrets"] = workers["imagePullSecrets"]
    asked = ({WORKSPACE_REVISION: revision} if revision else {}) | ({WORKSPACE_KEPT: "true"} if kept else {})
    body = owner.body(
        POD,
        names.sync_pod(owner.name, number),
        ROLE_SYNC,
        given=template.metadata,
        more=workspace.pod.get("metadata"),
        annotations=asked,
    )
    return body | {"spec": over(spec, workspace.pod.get("spec", {}))}


def _fetch(workspace: FrozenWorkspace, template: FrozenTemplate, revision: str) -> Json:
    image, reloads = template.operator_image, bool(template.hot_reload)
    mounts = [mount(_CLAIM, CLAIM_ROOT, read_only=workspace.read_only)]
    if workspace.secret:
        mounts.append(mount(_SECRET, _SECRET_ROOT, read_only=True))
    if workspace.cache:
        mounts.append(mount(_CACHE, _CACHE_ROOT))
    ours = workspace_container(
        FETCH, image, _fetch_args(workspace, revision, reloads=reloads), mounts, memory_limit="1Gi"
    )
    return _receiver(ours) if workspace.receives else ours


def _keeping(image: str) -> Json:
    """The container of a pod that takes the place of one that had filled the claim: it ends when it sees the marker."""
    args = ["receive", *flag("root", CLAIM_ROOT), *flag("timeout", "inf"), *flag("port", names.UPLOAD_PORT)]
    return _receiver(workspace_container(FETCH, image, args, [mount(_CLAIM, CLAIM_ROOT)], memory_limit="1Gi"))


def _receiver(ours: Json) -> Json:
    """The container as one that takes uploads."""
    ports = [*ours.get("ports", ()), port("upload", names.UPLOAD_PORT)]
    limits = ours["resources"]["limits"] | {"cpu": _RECEIVER_CPU}
    return ours | {
        "env": [*ours["env"], field(_TOKEN, "metadata.uid")],
        "ports": ports,
        "resources": ours["resources"] | {"limits": limits},
    }


def _fetch_args(workspace: FrozenWorkspace, revision: str, *, reloads: bool) -> list[str]:
    # Whoever uploads may do so while the job is suspended, which only the operator knows: it ends the wait.
    timeout: str | int = "inf" if workspace.uploaded else workspace.timeout_s
    limits = [*flag("root", CLAIM_ROOT), *flag("timeout", timeout), *flag("revision", revision)]
    if workspace.receives:
        cache = _CACHE_ROOT if workspace.cache else _STORE if reloads else ""
        packed = ["--packed"] if workspace.packed else []
        return ["receive", *limits, *flag("port", names.UPLOAD_PORT), *flag("cache", cache), *packed]
    if workspace.uploaded:
        return ["wait", *limits]
    existing = workspace.source == WorkspaceSource.EXISTING
    return [
        "fetch",
        *flag("source", str(workspace.source)),
        *limits,
        *flag("url", workspace.url),
        *flag("ref", workspace.ref),
        *flag("sub-path", workspace.sub_path if existing else ""),
        *flag("secret-dir", _SECRET_ROOT if workspace.secret else ""),
    ]


def _serve(owner: Owner, workspace: FrozenWorkspace, template: FrozenTemplate) -> Json:
    if template.hot_reload:
        return _companion(owner, workspace, template)
    existing = workspace.source == WorkspaceSource.EXISTING
    root = mount(_CLAIM, CLAIM_ROOT, sub_path=workspace.sub_path if existing else "", read_only=True)
    args = ["serve", *flag("root", CLAIM_ROOT), *flag("port", names.SERVE_PORT), *flag("key", owner.uid)]
    return _server(workspace_container(SERVE, template.operator_image, args, [root]))


def _companion(owner: Owner, workspace: FrozenWorkspace, template: FrozenTemplate) -> Json:
    """The server that also talks to the launchers, and takes later revisions. It is ready when all workers have one."""
    args = [
        "companion",
        *flag("root", CLAIM_ROOT),
        *flag("port", names.SERVE_PORT),
        *flag("key", owner.uid),
        *flag("upload-port", names.UPLOAD_PORT),
        *flag("cache", _CACHE_ROOT if workspace.cache else ""),
        *(["--in-place"] if workspace.distribution == Distribution.SHARED else ()),
    ]
    mounts = [mount(_CLAIM, CLAIM_ROOT), *([mount(_CACHE, _CACHE_ROOT)] if workspace.cache else ())]
    ours = _server(workspace_container(SERVE, template.operator_image, args, mounts, memory_limit="1Gi"))
    # Once a second and at once: what the operator says of a reload is what the kubelet has heard here.
    ours["readinessProbe"] |= {"periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 5}
    return _receiver(ours)


def _server(ours: Json) -> Json:
    return ours | {
        "ports": [port("archive", names.SERVE_PORT)],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": names.SERVE_PORT}, "periodSeconds": 2},
    }


def _volumes(owner: Owner, workspace: FrozenWorkspace) -> list[Json]:
    claim: Json = {"claimName": claim_name(owner, workspace)}
    if workspace.read_only:
        claim["readOnly"] = True
    volumes: list[Json] = [{"name": _CLAIM, "persistentVolumeClaim": claim}, tmp_volume()]
    if workspace.secret:
        volumes.append({"name": _SECRET, "secret": {"secretName": workspace.secret, "defaultMode": 0o440}})
    if workspace.cache:
        volumes.append({"name": _CACHE, "persistentVolumeClaim": {"claimName": workspace.cache}})
    return volumes
