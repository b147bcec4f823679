"""The claims of a job: its workspace, its checkpoints; and the Service in front of a sync pod that serves."""

from typing import Any

from torchctl.api import names
from torchctl.api.common import Distribution
from torchctl.api.job import WorkspaceSource
from torchctl.api.kube import PVC, SERVICE
from torchctl.api.labels import ROLE_SYNC, WORKSPACE_PACKED
from torchctl.controllers.job.children.owner import ROLE_CHECKPOINTS, ROLE_WORKSPACE, Owner
from torchctl.controllers.job.template.frozen import FrozenTemplate, FrozenWorkspace

__all__ = [
    "archive_url",
    "checkpoints_claim",
    "checkpoints_name",
    "claim_name",
    "companion_url",
    "serves",
    "stays",
    "workspace_claim",
    "workspace_service",
]

Json = dict[str, Any]


def claim_name(owner: Owner, workspace: FrozenWorkspace) -> str:
    """The claim that holds the workspace: the user's own for source existing."""
    return workspace.claim if workspace.source == WorkspaceSource.EXISTING else names.workspace_claim(owner.name)


def checkpoints_name(owner: Owner, template: FrozenTemplate) -> str:
    """Returns the name of the checkpoints claim; empty if the job has none."""
    if template.checkpoints is None:
        return ""
    return template.checkpoints.claim or names.checkpoints_claim(owner.name)


def serves(template: FrozenTemplate) -> bool:
    """Whether the sync pod stays and hands the workspace out."""
    return template.workspace is not None and template.workspace.distribution == Distribution.SERVE


def stays(template: FrozenTemplate) -> bool:
    """Whether the sync pod stays: it hands the workspace out, or takes later revisions of it."""
    return serves(template) or bool(template.hot_reload)


def workspace_claim(owner: Owner, template: FrozenTemplate) -> Json:
    """The claim `<job>-workspace`; it goes with the job."""
    workspace = template.workspace
    assert workspace is not None
    noted = {WORKSPACE_PACKED: "true"} if workspace.packed else {}
    name = names.workspace_claim(owner.name)
    body = owner.body(PVC, name, ROLE_WORKSPACE, given=template.metadata, annotations=noted)
    return body | {"spec": _claim(workspace.size, workspace.access_modes, workspace.storage_class)}


def checkpoints_claim(owner: Owner, template: FrozenTemplate, *, owned: bool) -> Json:
    """The claim `<job>-checkpoints`; one that is not owned outlives the job and is found again by its name."""
    kept = template.checkpoints
    assert kept is not None
    name = names.checkpoints_claim(owner.name)
    body = owner.body(PVC, name, ROLE_CHECKPOINTS, owned=owned, given=template.metadata)
    return body | {"spec": _claim(kept.size, kept.access_modes, kept.storage_class)}


def workspace_service(owner: Owner, template: FrozenTemplate) -> Json:
    """The headless Service of a sync pod that serves; only a ready one is in DNS.

    The companion of a job that reloads is not ready while workers run older code, and those have to reach it.
    """
    early = {"publishNotReadyAddresses": True} if template.hot_reload else {}
    return owner.body(SERVICE, names.workspace_service(owner.name), ROLE_SYNC, given=template.metadata) | {
        "spec": {
            "clusterIP": "None",
            "selector": owner.selector(ROLE_SYNC),
            "ports": [{"name": "archive", "port": names.SERVE_PORT, "targetPort": names.SERVE_PORT, "protocol": "TCP"}],
        }
        | early
    }


def archive_url(owner: Owner, cluster_domain: str) -> str:
    """Returns the address from which workers pull a served workspace.

    The job's uid is known in its namespace, and in no other.
    """
    return f"{_server(owner, cluster_domain)}/archive/{owner.uid}"


def companion_url(owner: Owner, cluster_domain: str) -> str:
    """Returns the address at which launchers report to the job's companion."""
    return f"{_server(owner, cluster_domain)}/launcher/{owner.uid}"


def _server(owner: Owner, cluster_domain: str) -> str:
    host = f"{names.workspace_service(owner.name)}.{owner.namespace}.svc.{cluster_domain}"
    return f"http://{host}:{names.SERVE_PORT}"


def _claim(size: str, access_modes: tuple[str, ...], storage_class: str) -> Json:
    spec: Json = {"accessModes": list(access_modes), "resources": {"requests": {"storage": size}}}
    return spec | ({"storageClassName": storage_class} if storage_class else {})
