"""The headless Service of the workers: it gives each of them a name, before they are ready."""

from typing import Any

from torchctl.api import names
from torchctl.api.kube import SERVICE
from torchctl.api.labels import ROLE_WORKER
from torchctl.controllers.job.children.owner import Owner
from torchctl.controllers.job.template.frozen import FrozenTemplate

__all__ = ["worker_service"]


def worker_service(owner: Owner, template: FrozenTemplate, attempt: int) -> dict[str, Any]:
    """The Service `<job>`, which selects the pods of one attempt.

    Workers look for each other before any of them is ready, so names are published at once.
    """
    port = template.rendezvous.port
    return owner.body(SERVICE, names.service(owner.name), ROLE_WORKER, given=template.metadata) | {
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": owner.selector(ROLE_WORKER, attempt),
            "ports": [{"name": "rendezvous", "port": port, "targetPort": port, "protocol": "TCP"}],
        }
    }
