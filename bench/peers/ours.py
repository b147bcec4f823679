"""The peer in torchctl.runtime, as docs/reconcilers.md teaches: one ConfigMap and one status for each Greeting."""

import argparse
from typing import Any

import msgspec

from torchctl.runtime.controller import Controller
from torchctl.runtime.intent import controlled_by
from torchctl.runtime.kinds import Kind, ObjectMeta
from torchctl.runtime.manager import Manager
from torchctl.runtime.program import run
from torchctl.runtime.reconcile import Request
from torchctl.runtime.settings import ElectionSettings, LogSettings, RuntimeSettings, ServerSettings

__all__ = ["setup"]


class Status(msgspec.Struct, frozen=True, rename="camel"):
    observed_generation: int = 0


class Greeting(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: dict[str, str] = {}
    status: Status = Status()


class ConfigMap(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}


GREETING = Kind("example.org", "v1", "Greeting", "greetings", Greeting)
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", ConfigMap)


def config_map_for(greeting: Greeting) -> dict[str, Any]:
    meta = greeting.metadata
    owner = {"apiVersion": "example.org/v1", "kind": "Greeting", "name": meta.name, "uid": meta.uid, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": meta.name, "namespace": meta.namespace, "ownerReferences": [owner]},
        "data": greeting.spec,
    }


def status_of(greeting: Greeting) -> dict[str, Any]:
    meta = greeting.metadata
    return {
        "apiVersion": "example.org/v1",
        "kind": "Greeting",
        "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
        "status": {"observedGeneration": meta.generation},
    }


def setup(manager: Manager) -> None:
    async def reconcile(request: Request) -> None:
        greeting = manager.cache.get(GREETING, request)
        if greeting is None:
            return
        await manager.applier.apply(CONFIG_MAP, config_map_for(greeting), controlled_by(greeting.metadata.uid))
        if greeting.status.observed_generation != greeting.metadata.generation:
            await manager.client.apply(GREETING, status_of(greeting), subresource="status", force=True)

    manager.add(Controller("greeting", reconcile).for_(GREETING).owns(CONFIG_MAP))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--workers", type=int, required=True)
    options = parser.parse_args()
    run(
        "greeter",
        setup,
        settings=RuntimeSettings(
            namespace=options.namespace,
            workers=options.workers,
            election=ElectionSettings(enabled=False),
            server=ServerSettings(metrics_port=None, health_port=None),
            log=LogSettings(level="warning"),
        ),
    )
