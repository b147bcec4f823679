"""A reconciler as docs/reconcilers.md teaches it, on the fake API server: what docs/testing.md shows."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import msgspec
import pytest

from torchctl.runtime.client.errors import BadRequest, NotFound
from torchctl.runtime.client.requests import HttpRequest
from torchctl.runtime.controller import Controller
from torchctl.runtime.intent import controlled_by
from torchctl.runtime.kinds import Kind, ObjectMeta
from torchctl.runtime.manager import Manager
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.objects import owner_reference
from torchctl.runtime.reconcile import Request
from torchctl.runtime.settings import RuntimeSettings, ServerSettings
from torchctl.testing import virtualtime
from torchctl.testing.fake import FakeApiServer, Served, served_by
from torchctl.testing.waiting import wait_for


class Greeting(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: dict[str, str] = {}
    status: dict[str, str] = {}


class ConfigMap(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}


GREETING = Kind("example.org", "v1", "Greeting", "greetings", Greeting)
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", ConfigMap)
CRD = {
    "spec": {
        "group": "example.org",
        "scope": "Namespaced",
        "versions": [{"name": "v1", "subresources": {"status": {}}}],
    }
}


def greeting(name: str, **spec: str) -> dict[str, Any]:
    return {"apiVersion": "example.org/v1", "kind": "Greeting", "metadata": {"name": name}, "spec": spec}


def setup(manager: Manager) -> None:
    async def reconcile(request: Request) -> None:
        found = manager.cache.get(GREETING, request)
        if found is None:
            return
        meta = found.metadata
        child = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": meta.name,
                "namespace": meta.namespace,
                "ownerReferences": [owner_reference(GREETING, meta)],
            },
            "data": found.spec,
        }
        await manager.applier.apply(CONFIG_MAP, child, controlled_by(meta.uid))
        if found.status != {"said": "yes"}:
            status = {"metadata": {"resourceVersion": meta.resource_version}, "status": {"said": "yes"}}
            await manager.client.merge_patch(
                GREETING, meta.name, status, namespace=meta.namespace, subresource="status"
            )

    manager.add(Controller("greeting", reconcile).for_(GREETING).owns(CONFIG_MAP))


def play(story: Callable[[FakeApiServer], Awaitable[None]]) -> FakeApiServer:
    """Runs the reconciler beside a story, in virtual time."""
    served: list[FakeApiServer] = []

    async def main() -> None:
        clock = virtualtime.VirtualClock()
        server = FakeApiServer([served_by(CRD, GREETING), Served(CONFIG_MAP)], clock=clock)
        served.append(server)
        quiet = RuntimeSettings(server=ServerSettings(metrics_port=None, health_port=None))
        manager = Manager(server.client(), settings=quiet, metrics=Metrics(process=False), clock=clock)
        stop = anyio.Event()
        setup(manager)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.run, stop)
            await story(server)
            stop.set()

    virtualtime.run(main)
    return served[0]


async def child_says(server: FakeApiServer, **data: str) -> None:
    def told(found: ConfigMap | None) -> bool:
        return found is not None and found.data == data

    await wait_for(server.client(), CONFIG_MAP, "hello", "default", until=told)


def test_child_is_made_put_back_and_collected() -> None:
    async def story(server: FakeApiServer) -> None:
        client = server.client(field_manager="somebody")
        await client.create(GREETING, greeting("hello", to="you"), "default")
        await child_says(server, to="you")
        await client.merge_patch(CONFIG_MAP, "hello", {"data": {"to": "me"}}, namespace="default")
        await child_says(server, to="you")
        await client.merge_patch(GREETING, "hello", {"spec": {"to": None, "from": "us"}}, namespace="default")
        await child_says(server, **{"from": "us"})
        found = await client.get(GREETING, "hello", "default")
        assert (found.metadata.generation, found.status) == (2, {"said": "yes"})
        await client.delete(GREETING, "hello", namespace="default")
        with pytest.raises(NotFound):
            await client.get(CONFIG_MAP, "hello", "default")

    play(story)


@pytest.mark.parametrize("disturb", ["break", "compact", "lists"])
def test_cache_survives_disturbed_watches(disturb: str) -> None:
    async def story(server: FakeApiServer) -> None:
        client = server.client()

        def refuse_streaming_lists(request: HttpRequest) -> None:
            if request.verb == "watch" and dict(request.query).get("sendInitialEvents"):
                raise BadRequest("unknown parameter sendInitialEvents", code=400)

        if disturb == "lists":
            server.intercept = refuse_streaming_lists
        await client.create(GREETING, greeting("hello", to="you"), "default")
        await child_says(server, to="you")
        if disturb == "compact":
            server.compact()
        server.break_watches()
        await client.merge_patch(GREETING, "hello", {"spec": {"to": "me"}}, namespace="default")
        await child_says(server, to="me")

    play(story)


def test_nothing_is_written_at_rest() -> None:
    async def story(server: FakeApiServer) -> None:
        await server.client().create(GREETING, greeting("hello", to="you"), "default")
        await child_says(server, to="you")
        await anyio.sleep(5)
        written = [request for request in server.requests if request.is_write]
        await anyio.sleep(3600)
        assert [request for request in server.requests if request.is_write] == written

    play(story)


async def test_list_in_pages_shows_every_object_once() -> None:
    client = FakeApiServer([Served(CONFIG_MAP)]).client()
    for number in range(5):
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"generateName": "map-"},
            "data": {"n": str(number)},
        }
        await client.create(CONFIG_MAP, body, "default")
    first = await client.list_page(CONFIG_MAP, limit=3)
    second = await client.list_page(CONFIG_MAP, limit=3, continue_=first.continue_)
    assert len({one.metadata.name for one in (*first.items, *second.items)}) == 5
    assert second.continue_ == ""


async def test_unknown_kind_is_not_found() -> None:
    with pytest.raises(NotFound):
        await FakeApiServer([]).client().list(CONFIG_MAP)


async def test_apply_hides_a_map_that_it_empties() -> None:
    """It is stored as null and never shown, so that the next write is a change although nothing seems to change."""
    client = FakeApiServer([served_by(CRD, GREETING)]).client()

    async def apply(manager: str, **meta: Any) -> str:
        body = greeting("hello") | {"metadata": {"name": "hello", "namespace": "default", **meta}}
        found = await client.apply(GREETING, body, field_manager=manager, force=True)
        return found.metadata.resource_version

    await apply("other", labels={"color": "red"})
    await apply("owner", labels={})
    emptied = await apply("other")
    dropped = await apply("other")
    assert emptied != dropped == await apply("other")
