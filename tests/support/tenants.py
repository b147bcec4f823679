"""People with few rights: accounts in one namespace, each with a Role of its own and nothing else."""

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec
import yaml
from jobs import Place
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.runtime.client.client import Client, connect
from torchctl.runtime.client.errors import ApiError, Forbidden
from torchctl.runtime.kinds import Kind, ObjectMeta
from torchctl.testing.controlplane import ControlPlane

__all__ = ["ROLES", "SECRET", "Team", "attempt", "bind", "refusal", "team"]

Json = dict[str, Any]


class Secret(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


SECRET = Kind("", "v1", "Secret", "secrets", Secret)
T = TypeVar("T")
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


def _rule(group: str, *resources: str, verbs: Sequence[str] = VERBS, names: Sequence[str] = ()) -> Json:
    rule: Json = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return rule | ({"resourceNames": list(names)} if names else {})


JOBS = _rule("torchrun.ai", "torchrunjobs", "torchrunjobs/scale")
READS = _rule("", "persistentvolumeclaims", "pods", "pods/log", "events", verbs=["get", "list", "watch"])

ROLES: Mapping[str, tuple[Json, ...]] = {
    # Submits jobs, and may not create pods.
    "submitter": (JOBS, READS),
    # The same, and its jobs may name what is in the namespace.
    "user": (JOBS, READS, _rule("", "configmaps", "persistentvolumeclaims", "secrets", verbs=["use"])),
    # Writes queues too.
    "author": (JOBS, READS, _rule("torchrun.ai", "torchrunqueues")),
    # The same, below one KAI queue and in another, and in one of Volcano's.
    "delegate": (
        JOBS,
        _rule("torchrun.ai", "torchrunqueues"),
        _rule("scheduling.run.ai", "queues", verbs=["use"], names=["department", "shared"]),
        _rule("scheduling.volcano.sh", "queues", verbs=["use"], names=["shared"]),
    ),
    # Writes pods and all that ours consist of, and every subresource of our kinds: a role as written in a hurry.
    "developer": (
        _rule("torchrun.ai", "*", verbs=["*"]),
        _rule("", "configmaps", "persistentvolumeclaims", "pods", "services", "events", verbs=["*"]),
        _rule("apps", "controllerrevisions", "replicasets", "statefulsets", verbs=["*"]),
        _rule("batch", "cronjobs", "jobs", verbs=["*"]),
    ),
}


@dataclass(frozen=True)
class Team(Place):
    """A namespace and the people in it, by role; `admin` may do everything, `operator` what config/rbac says."""

    people: Mapping[str, Client]
    operator: Client

    def __getitem__(self, role: str) -> Client:
        return self.people[role]


@asynccontextmanager
async def team(cluster: ControlPlane, admin: Client, operator: Client, namespace: str) -> AsyncIterator[Team]:
    """The accounts of a namespace, each once its Role is in force."""
    async with AsyncExitStack() as stack:
        people = {}
        for role, rules in ROLES.items():
            user = f"{role}@{namespace}"
            await bind(cluster, namespace, user, role, rules)
            people[role] = await stack.enter_async_context(connect(cluster.connection(user)))
            await until(partial(_may_list, people[role], namespace))
        yield Team(admin, namespace, people, operator)


async def bind(cluster: ControlPlane, namespace: str, user: str, name: str, rules: Sequence[Json]) -> None:
    """Makes a Role and gives it to a user."""
    group = "rbac.authorization.k8s.io"
    metadata = {"name": name, "namespace": namespace}
    documents = (
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": list(rules)},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "subjects": [{"kind": "User", "name": user, "apiGroup": group}],
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        },
    )
    await cluster.kubectl("apply", "-f-", input=yaml.safe_dump_all(documents))


async def attempt(write: Awaitable[T]) -> T | str:
    """What the API server makes of a write, or the words with which it refuses it."""
    try:
        return await write
    except ApiError as error:
        if error.code not in (400, 403, 422):
            raise
        return str(error)


async def refusal(write: Awaitable[Any]) -> str:
    """What the API server says against a write; empty where it takes it."""
    said = await attempt(write)
    return said if isinstance(said, str) else ""


async def _may_list(client: Client, namespace: str) -> bool:
    try:
        await client.list(TORCHRUN_JOB, namespace=namespace)
    except Forbidden:
        return False
    return True
