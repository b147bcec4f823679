"""A watch that the API server refuses after the first list is seen, waited for, and alerted on."""

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from clusters import established
from prometheus_client import CollectorRegistry
from waiting import until
from watching import CONFIG_MAP, WIDGET, WIDGET_CRD, config_map, create_widget, running

from torchctl.runtime.cache.barrier import Barrier
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.client.client import Client, connect
from torchctl.runtime.client.writes import record_writes
from torchctl.runtime.clock import SystemClock
from torchctl.runtime.kinds import Key
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.watch.settings import WatchSettings
from torchctl.testing.controlplane import ControlPlane

IMPATIENT = WatchSettings(server_timeout_s=(1.0, 1.0), backoff_base_s=0.1, backoff_cap_s=0.2, forbidden_cap_s=0.2)
"""Streams that end soon, because a right that is taken away shows at the next request only."""
REFUSALS_S = 1.5
"""Time for several refusals, each of which once made the watch look young."""


@asynccontextmanager
async def account(control_plane: ControlPlane, namespace: str) -> AsyncIterator[Client]:
    """A service account that may read ConfigMaps, by the RoleBinding `reader`."""
    inside = f"--namespace={namespace}"
    await control_plane.kubectl("create", "serviceaccount", "reader", inside)
    await control_plane.kubectl("create", "role", "reader", "--verb=list,watch", "--resource=configmaps", inside)
    await bind(control_plane, namespace)
    connection = await control_plane.service_account_connection(namespace, "reader")
    async with connect(connection) as client:
        yield client


async def bind(control_plane: ControlPlane, namespace: str) -> None:
    subject = f"--serviceaccount={namespace}:reader"
    await control_plane.kubectl("create", "rolebinding", "reader", "--role=reader", subject, f"--namespace={namespace}")


async def test_watch_that_loses_its_right_ages_and_keeps_the_barrier(
    control_plane: ControlPlane, admin: Client, namespace: str
) -> None:
    metrics = Metrics(CollectorRegistry(), process=False)
    async with account(control_plane, namespace) as client:
        cache = Cache(client, metrics=metrics, rng=random.Random(1), settings=IMPATIENT)
        informer = cache.register(CONFIG_MAP, namespace=namespace)
        barrier = Barrier(cache, clock=SystemClock(), timeout_s=0.5)
        async with running(cache):
            await cache.wait_synced(30.0)
            await control_plane.kubectl("delete", "rolebinding", "reader", f"--namespace={namespace}")

            async def is_old() -> bool:
                return informer.age() > REFUSALS_S and informer.refused() > REFUSALS_S

            await until(is_old)
            assert "configmaps is forbidden" in informer.unavailable_reason
            assert _available(metrics) == 0
            key = Key(namespace, "written")
            with record_writes() as writes:
                await admin.apply(CONFIG_MAP, config_map("written", namespace))
            barrier.note(key, writes)
            assert not await barrier.wait(key), "the cache has not seen it"

            await bind(control_plane, namespace)

            async def is_back() -> bool:
                return informer.available and cache.get(CONFIG_MAP, key) is not None

            await until(is_back)
            assert informer.refused() == 0
            assert _available(metrics) == 1


async def test_right_to_list_alone_does_not_end_a_refusal(
    control_plane: ControlPlane, admin: Client, namespace: str
) -> None:
    """Of a server without streaming lists: what is listed again and again is stale in between."""
    async with account(control_plane, namespace) as client:
        cache = Cache(client, rng=random.Random(1), settings=replace(IMPATIENT, streaming_list=False))
        informer = cache.register(CONFIG_MAP, namespace=namespace)
        async with running(cache):
            await cache.wait_synced(30.0)
            await _allow(control_plane, namespace, "list")

            async def was_listed_meanwhile() -> bool:
                return informer.refused() > REFUSALS_S and informer.stats().lists > 3

            await until(was_listed_meanwhile)
            assert "cannot watch" in informer.unavailable_reason
            await _allow(control_plane, namespace, "list", "watch")

            async def is_back() -> bool:
                return informer.available

            await until(is_back)


async def test_optional_kind_that_is_no_longer_served_leaves_no_ghosts(
    control_plane: ControlPlane, admin: Client, namespace: str
) -> None:
    """Its objects are not deleted one by one, so that no watch tells of them."""
    cache = Cache(admin, rng=random.Random(1), settings=IMPATIENT)
    informer = cache.register(WIDGET, optional=True)
    crd = WIDGET_CRD.replace("served: true", "served: false")
    try:
        async with running(cache):
            await create_widget(control_plane, admin, namespace, "ghost")

            async def lists_it() -> bool:
                return [widget.metadata.name for widget in cache.list(WIDGET)] == ["ghost"]

            await until(lists_it)
            await control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=crd)

            async def lists_nothing() -> bool:
                return not cache.list(WIDGET)

            await until(lists_nothing)
            assert not informer.available
            assert not informer.follows

            await control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=WIDGET_CRD)
            await established(control_plane)
            await until(lists_it)
            assert informer.available
    finally:
        await control_plane.kubectl("delete", "crd", "widgets.cache.test")


async def _allow(control_plane: ControlPlane, namespace: str, *verbs: str) -> None:
    rules = json.dumps({"rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]})
    role = ("role", "reader", f"--namespace={namespace}")
    await control_plane.kubectl("patch", *role, "--type=merge", f"--patch={rules}")


def _available(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("torchctl_watch_available", {"resource": CONFIG_MAP.resource})
