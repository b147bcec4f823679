"""A whole program: a namespace with the label `needs-team` and no label `team` gets one that says `nobody`."""

from torchctl.runtime.controller import Controller
from torchctl.runtime.kinds import Kind, PartialObject
from torchctl.runtime.manager import Manager
from torchctl.runtime.program import run
from torchctl.runtime.reconcile import Request

NAMESPACE = Kind("", "v1", "Namespace", "namespaces", PartialObject, namespaced=False, metadata_only=True)


def setup(manager: Manager) -> None:
    async def reconcile(request: Request) -> None:
        namespace = manager.cache.get(NAMESPACE, request)
        if namespace is not None and "team" not in namespace.metadata.labels:
            await manager.client.merge_patch(NAMESPACE, request.name, {"metadata": {"labels": {"team": "nobody"}}})

    manager.add(Controller("teams", reconcile).for_(NAMESPACE, labels="needs-team"))


if __name__ == "__main__":
    run("teams", setup)
