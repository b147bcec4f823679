"""Acts of a person who has places for the gang of a job, and of one whose pod takes such a place first.

A place is a resource of a node that only the pods of one namespace ask for.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from playedkueue import SEEN_S
from users import User
from waiting import until

from torchctl.api.capacity import NODE
from torchctl.api.kube import POD, Pod
from torchctl.api.labels import ATTEMPT, JOB_NAME, ROLE, ROLE_WORKER

__all__ = ["FOREIGN", "brings", "frees", "occupies", "places_queue", "releases", "removes"]

Do = Callable[[User, str], Awaitable[None]]
Json = dict[str, Any]

FOREIGN = "foreign"
"""The name of the pod that takes a place."""
GATE = "stories.test/look-first"
"""Keeps kube-scheduler from a gang's pods until the person has done what she wants to."""


def places_queue(namespace: str) -> Json:
    """The spec of a queue whose pods take one place each, and wait at a gate before they get a node."""
    trainer = {"name": "trainer", **_taking(namespace)}
    return {"podTemplate": {"spec": {"schedulingGates": [{"name": GATE}], "containers": [trainer]}}}


def brings(count: int) -> Do:
    """Gives so many nodes one place each."""
    return lambda user, job: _have(user, count, "1")


def removes(count: int) -> Do:
    """Takes the places from the nodes."""
    return lambda user, job: _have(user, count, None)


def occupies() -> Do:
    """A pod that is no job's runs on the first node with a place."""

    async def occupy(user: User, job: str) -> None:
        container = {"name": "a", "image": "a:1", **_taking(user.namespace)}
        body = {
            "apiVersion": POD.api_version,
            "kind": POD.kind,
            "metadata": {"name": FOREIGN, "namespace": user.namespace},
            "spec": {"nodeName": _node(0), "containers": [container]},
        }
        await user.admin.create(POD, body)

    return occupy


def frees() -> Do:
    """That pod ends."""

    async def free(user: User, job: str) -> None:
        await user.admin.delete(POD, FOREIGN, namespace=user.namespace)

    return free


def releases(count: int) -> Do:
    """Opens the gates of so many pods of the attempt, once all are there."""

    async def release(user: User, name: str) -> None:
        async def there() -> list[Pod]:
            found = await _workers(user, name)
            return found if len(found) == count else []

        for pod in await until(there, timeout_s=SEEN_S):
            body: Json = {"spec": {"schedulingGates": []}}
            await user.admin.merge_patch(POD, pod.metadata.name, body, namespace=user.namespace)

    return release


async def _workers(user: User, name: str) -> list[Pod]:
    job = user.job(name)
    assert job is not None
    labels = f"{JOB_NAME}={name},{ROLE}={ROLE_WORKER},{ATTEMPT}={job.status.attempt}"
    return await user.admin.list(POD, namespace=user.namespace, labels=labels)


async def _have(user: User, count: int, places: str | None) -> None:
    amounts = {_place(user.namespace): places}
    for number in range(count):
        body = {"status": {"capacity": amounts, "allocatable": amounts}}
        await user.admin.merge_patch(NODE, _node(number), body, subresource="status")


def _node(number: int) -> str:
    return f"node-{number}"


def _place(namespace: str) -> str:
    return f"stories.test/{namespace}"


def _taking(namespace: str) -> Json:
    return {"resources": {"limits": {_place(namespace): "1"}}}
