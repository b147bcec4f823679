"""What a client sees of a fault is what it would see of a broken network or a dead process."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import msgspec
import pytest

from torchctl.runtime.client.client import Client, connect
from torchctl.runtime.client.codec import Codec
from torchctl.runtime.client.errors import ApiError, NotFound, Unavailable
from torchctl.runtime.client.exchange import LineStream
from torchctl.runtime.kinds import Kind, ObjectMeta
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.faults import Exchange, Moment, is_watch, is_write
from torchctl.testing.proxy import FaultProxy


class ConfigMap(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}


CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", ConfigMap)


def config_map(namespace: str, name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}


@pytest.fixture
async def client(control_plane: ControlPlane, proxy: FaultProxy) -> AsyncIterator[Client]:
    """The admin, by way of the proxy."""
    async with connect(proxy.connection(control_plane.connection())) as client:
        yield client


async def exists(client: Client, namespace: str, name: str) -> bool:
    try:
        await client.get(CONFIG_MAP, name, namespace)
    except NotFound:
        return False
    return True


async def read_to_the_end(lines: LineStream) -> None:
    while await lines.readline(10):
        pass


async def test_it_forwards_and_records(proxy: FaultProxy, client: Client, admin: Client, namespace: str) -> None:
    created = await client.create(CONFIG_MAP, config_map(namespace, "a", key="x" * 300_000))
    assert (await client.get(CONFIG_MAP, "a", namespace)).data == created.data
    await client.delete(CONFIG_MAP, "a", namespace=namespace)
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAP, "a", namespace)
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    assert [(e.method, e.path, e.status) for e in proxy.exchanges] == [
        ("POST", collection, 201),
        ("GET", f"{collection}/a", 200),
        ("DELETE", f"{collection}/a", 200),
        ("GET", f"{collection}/a", 404),
    ]
    assert [e.method for e in proxy.writes] == ["POST", "DELETE"]
    assert json.loads(proxy.exchanges[0].body)["metadata"]["name"] == "a"


async def test_kubectl_works_through_it(control_plane: ControlPlane, proxy: FaultProxy, namespace: str) -> None:
    kubeconfig = await proxy.kubeconfig(control_plane.connection())
    await control_plane.kubectl("create", "configmap", "a", f"--namespace={namespace}", kubeconfig=kubeconfig)
    assert any(is_write(e) and e.status == 201 for e in proxy.exchanges)


async def test_each_user_keeps_their_own_rights(control_plane: ControlPlane, proxy: FaultProxy, namespace: str) -> None:
    account = await control_plane.service_account_connection(namespace, "default")
    async with connect(proxy.connection(account)) as client:
        with pytest.raises(ApiError, match="cannot create resource") as refused:
            await client.create(CONFIG_MAP, config_map(namespace, "a"))
    assert refused.value.code == 403


async def test_a_write_cut_before_it_is_sent_does_not_happen(
    proxy: FaultProxy, client: Client, admin: Client, namespace: str
) -> None:
    cut = proxy.cut(2, Moment.BEFORE)
    await client.create(CONFIG_MAP, config_map(namespace, "first"))
    with pytest.raises(Unavailable) as lost:
        await client.create(CONFIG_MAP, config_map(namespace, "second"))
    assert lost.value.outcome_unknown
    assert cut.exchange is proxy.writes[1]
    assert await exists(admin, namespace, "first")
    assert not await exists(admin, namespace, "second")


async def test_cut_after_the_commit_loses_only_the_answer(
    proxy: FaultProxy, client: Client, admin: Client, namespace: str
) -> None:
    cut = proxy.cut(1, Moment.AFTER)
    with pytest.raises(Unavailable) as lost:
        await client.create(CONFIG_MAP, config_map(namespace, "a"))
    assert lost.value.outcome_unknown
    assert cut.exchange is not None
    assert cut.exchange.status == 201
    assert await exists(admin, namespace, "a")


async def test_hook_runs_at_the_cut_and_nothing_passes_afterwards(
    proxy: FaultProxy, client: Client, admin: Client, namespace: str
) -> None:
    seen: list[bool] = []

    async def look() -> None:
        seen.append(await exists(admin, namespace, "a"))
        with pytest.raises(Unavailable):
            await client.create(CONFIG_MAP, config_map(namespace, "last-gasp"))

    proxy.cut(1, Moment.AFTER, then=look)
    with pytest.raises(Unavailable):
        await client.create(CONFIG_MAP, config_map(namespace, "a"))
    assert seen == [True]
    assert proxy.is_down
    proxy.heal()
    assert not await exists(client, namespace, "last-gasp")


async def test_a_cut_counts_only_what_it_asks_for(proxy: FaultProxy, client: Client, namespace: str) -> None:
    def deletes(exchange: Exchange) -> bool:
        return exchange.method == "DELETE"

    proxy.cut(1, match=deletes)
    await client.create(CONFIG_MAP, config_map(namespace, "a"))
    with pytest.raises(Unavailable):
        await client.delete(CONFIG_MAP, "a", namespace=namespace)
    proxy.heal()
    assert await exists(client, namespace, "a")


async def test_a_stalled_write_goes_on_when_released(proxy: FaultProxy, client: Client, namespace: str) -> None:
    stall = proxy.stall(is_write)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(client.create, CONFIG_MAP, config_map(namespace, "a"))
        await stall.reached()
        assert not await exists(client, namespace, "a")
        stall.release()
    assert await exists(client, namespace, "a")


async def test_an_injected_status_never_reaches_the_server(proxy: FaultProxy, client: Client, namespace: str) -> None:
    answer = proxy.answer(409, match=is_write, reason="Conflict")
    with pytest.raises(ApiError) as refused:
        await client.create(CONFIG_MAP, config_map(namespace, "a"))
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
    assert proxy.writes[0].status is None
    await client.create(CONFIG_MAP, config_map(namespace, "a"))
    assert answer.count == 1


async def test_a_read_is_repeated_after_429(proxy: FaultProxy, client: Client, namespace: str) -> None:
    proxy.answer(
        429, match=lambda e: e.method == "GET", times=2, reason="TooManyRequests", headers={"Retry-After": "0"}
    )
    assert not await exists(client, namespace, "a")
    assert len(proxy.exchanges) == 3


async def test_a_watch_streams_and_a_dropped_event_never_arrives(
    proxy: FaultProxy, client: Client, admin: Client, namespace: str
) -> None:
    dropped = proxy.drop_lines(lambda line: b'"lost"' in line)
    version = (await admin.list_page(CONFIG_MAP, namespace=namespace)).resource_version
    async with client.watch(CONFIG_MAP, namespace=namespace, resource_version=version) as lines:
        for name in ("kept", "lost", "also-kept"):
            await admin.create(CONFIG_MAP, config_map(namespace, name))
        codec = Codec()
        names = []
        for _ in range(2):
            event: Any = codec.decode_event(CONFIG_MAP, await lines.readline(10))
            names.append(event.object.metadata.name)
    assert names == ["kept", "also-kept"]
    assert dropped.count == 1


async def test_severing_ends_a_watch_and_a_new_one_is_welcome(
    proxy: FaultProxy, client: Client, namespace: str
) -> None:
    async with client.watch(CONFIG_MAP, namespace=namespace, send_initial_events=True) as lines:
        assert b"kube-root-ca.crt" in await lines.readline(10)
        proxy.sever()
        with pytest.raises(Unavailable):
            await read_to_the_end(lines)
    async with client.watch(CONFIG_MAP, namespace=namespace, send_initial_events=True) as lines:
        assert b"kube-root-ca.crt" in await lines.readline(10)
    assert sum(is_watch(e) for e in proxy.exchanges) == 2


async def test_a_client_certificate_is_refused_with_the_reason(control_plane: ControlPlane, proxy: FaultProxy) -> None:
    with pytest.raises(ValueError, match="use a token"):
        proxy.connection(control_plane.connection("ada"))
