"""The rights of the operator, declared for each controller.

config/rbac is generated from here, and a test compares it with the requests of a whole run. A new kind of request needs
an entry here, with its verb.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from torchctl.api.capacity import BOUND_POD, LIMIT_RANGE, NODE, PRIORITY_CLASS, RESOURCE_QUOTA, RUNTIME_CLASS
from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import CONFIG_MAP, CONTROLLER_REVISION, JOB, KAI_PODGROUP, KAI_QUEUE, POD, PVC, SERVICE
from torchctl.api.kueue import KUEUE_PENDING, KUEUE_WORKLOAD, PENDING
from torchctl.api.names import GROUP, VERSION
from torchctl.api.nativegangs import NATIVE_PODGROUP
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.api.volcano import VOLCANO_PODGROUP, VOLCANO_QUEUE
from torchctl.runtime.access.reviews import ACCESS_REVIEW, TOKEN_REVIEW
from torchctl.runtime.kinds import EVENT, LEASE, Kind, ObjectMeta

__all__ = ["COORDINATOR", "JOB_CONTROLLER", "QUEUE_CONTROLLER", "RUNTIME", "Permission", "leader_election", "policy"]

WATCH = ("list", "watch")
READ = ("get", *WATCH)
"""`get`: the live look at an object that has the name of a child to be made."""
APPLY = ("create", "patch")
"""Server-side apply of an object that may not exist yet takes both."""


@dataclass(frozen=True, slots=True)
class Permission:
    """Verbs on a resource, or on its subresource; `names` narrows them to objects of these names."""

    kind: Kind[Any]
    verbs: tuple[str, ...]
    subresource: str = ""
    names: tuple[str, ...] = field(default=())

    def rule(self) -> dict[str, Any]:
        """Returns the permission as a rule of a Role."""
        resource = f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural
        rule: dict[str, Any] = {"apiGroups": [self.kind.group], "resources": [resource]}
        if self.names:
            rule["resourceNames"] = list(self.names)
        return rule | {"verbs": list(self.verbs)}


class Identity(msgspec.Struct, frozen=True):
    """A kind that nobody serves. The policies of config/admission take a user who may `assume` it for the operator."""

    metadata: ObjectMeta


IDENTITY = Kind(f"operator.{GROUP}", VERSION, "Identity", "identity", Identity)
"""The identity has an API group of its own, so that a role with every right on torchrun.ai does not have it."""

RUNTIME = (
    Permission(EVENT, APPLY),
    Permission(TOKEN_REVIEW, ("create",)),  # --metrics-auth: whose token it is,
    Permission(ACCESS_REVIEW, ("create",)),  # and whether he may read
)

QUEUE_CONTROLLER = (
    Permission(IDENTITY, ("assume",)),
    Permission(TORCHRUN_QUEUE, (*WATCH, "patch")),  # patch: the finalizer
    Permission(TORCHRUN_QUEUE, ("patch",), "status"),
    Permission(TORCHRUN_JOB, WATCH),
    Permission(KAI_QUEUE, (*READ, *APPLY, "delete")),
    Permission(VOLCANO_QUEUE, (*READ, *APPLY, "delete")),
    Permission(CONFIG_MAP, (*READ, *APPLY, "delete")),  # delete: one that spec.resources ask for no more
    Permission(PVC, (*READ, *APPLY)),  # never delete: claims of spec.resources hold data
)

JOB_CONTROLLER = (
    Permission(IDENTITY, ("assume",)),
    Permission(TORCHRUN_JOB, (*WATCH, "delete")),  # delete: ttlSecondsAfterFinished
    Permission(TORCHRUN_JOB, ("patch",), "status"),
    # Children block their owner's deletion, which OwnerReferencesPermissionEnforcement ties to this.
    Permission(TORCHRUN_JOB, ("update",), "finalizers"),
    Permission(TORCHRUN_QUEUE, WATCH),
    Permission(CONTROLLER_REVISION, (*READ, *APPLY, "delete")),  # delete: a template that is in force no more
    Permission(PVC, (*READ, *APPLY)),
    Permission(POD, (*READ, *APPLY, "delete")),  # delete: what serves beyond the end, or is stuck on a lost node
    Permission(EVENT, ("list",)),  # why the Job controller could not create pods
    Permission(SERVICE, (*READ, *APPLY)),
    Permission(JOB, (*READ, *APPLY, "delete")),  # delete: of an earlier attempt
    Permission(KAI_PODGROUP, (*READ, *APPLY, "delete")),
    Permission(VOLCANO_PODGROUP, (*READ, *APPLY, "delete")),
    Permission(VOLCANO_QUEUE, WATCH),
    Permission(NATIVE_PODGROUP, (*READ, *APPLY, "delete")),
    Permission(KUEUE_WORKLOAD, (*WATCH, "patch")),  # patch: pauses and resumes
    Permission(KUEUE_PENDING, ("get",), PENDING),  # the place in its queue
)


COORDINATOR = (
    Permission(NODE, WATCH),
    Permission(BOUND_POD, WATCH),  # of all pods, because whoever they belong to they take room
    Permission(RESOURCE_QUOTA, WATCH),
    Permission(PRIORITY_CLASS, WATCH),
    Permission(LIMIT_RANGE, WATCH),
    Permission(RUNTIME_CLASS, WATCH),
)
"""What the coordinator reads besides what the others do. Granted apart, because most clusters need no coordinator."""


def leader_election(lease: str) -> tuple[Permission, ...]:
    """Returns the rights for leader election in the operator's namespace. Creation cannot be limited to a name."""
    return (Permission(LEASE, ("get", "watch", "patch"), names=(lease,)), Permission(LEASE, ("create",)))


def policy(permissions: Iterable[Permission]) -> list[dict[str, Any]]:
    """Returns the rules of a Role: one for each resource, with all its verbs, in a stable order."""
    verbs: dict[tuple[str, str, str, tuple[str, ...]], set[str]] = {}
    kinds: dict[tuple[str, str, str, tuple[str, ...]], Kind[Any]] = {}
    for permission in permissions:
        key = (permission.kind.group, permission.kind.plural, permission.subresource, permission.names)
        verbs.setdefault(key, set()).update(permission.verbs)
        kinds[key] = permission.kind
    return [
        Permission(kinds[key], tuple(sorted(verbs[key])), subresource=key[2], names=key[3]).rule()
        for key in sorted(verbs)
    ]
