"""The ControllerRevision that keeps the template a job runs with."""

from typing import Any

from torchctl.api import names
from torchctl.api.kube import CONTROLLER_REVISION
from torchctl.controllers.job.children.owner import ROLE_TEMPLATE, Owner
from torchctl.controllers.job.frozen import FrozenTemplate

__all__ = ["revision"]


def revision(owner: Owner, template: FrozenTemplate) -> dict[str, Any]:
    """The snapshot `<job>-<digest>`; its data can never change."""
    name = names.revision(owner.name, template.digest())
    return owner.body(CONTROLLER_REVISION, name, ROLE_TEMPLATE) | {"data": template.data(), "revision": 1}
