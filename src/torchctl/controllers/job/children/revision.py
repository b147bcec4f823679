"""The ControllerRevision that keeps the template a job runs with."""

from typing import Any

from torchctl.api.kube import CONTROLLER_REVISION
from torchctl.controllers.job.children.owner import ROLE_TEMPLATE, Owner
from torchctl.controllers.job.template.frozen import FrozenTemplate

__all__ = ["revision"]


def revision(owner: Owner, template: FrozenTemplate, name: str, number: int) -> dict[str, Any]:
    """The snapshot `<job>-<digest>`, under the name that status has; its data can never change.

    The digest is not taken again: an operator of another version may know fewer fields of what was frozen.

    Args:
        number: Tells a later snapshot of the job from an earlier one.
    """
    body = owner.body(CONTROLLER_REVISION, name, ROLE_TEMPLATE, given=template.metadata)
    return body | {"data": template.data(), "revision": number}
