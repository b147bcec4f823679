"""Where stories are told: by operators of this process, which are cut down by cancelling them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial

from lives import Life
from operators import RunningOperator, operator_settings, running_operator
from tellings import Scene

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.controllers.settings import CoordinatorSettings, Restarting
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.transport import AiohttpTransport
from torchctl.testing.kubelet import ScriptedKubelet
from torchctl.testing.proxy import FaultProxy

__all__ = ["queues_and_jobs", "scene_of"]

SWIFT = Restarting(settle_s=0.2, backoff_s=0.2, max_backoff_s=0.4, stuck_pod_s=2.0, below_minimum_s=5.0)


@asynccontextmanager
async def queues_and_jobs(client: Client) -> AsyncIterator[Cache]:
    """Yields a cache of all queues and jobs, as they are."""
    cache = Cache(client)
    cache.register(TORCHRUN_JOB)
    cache.register(TORCHRUN_QUEUE)
    watching = asyncio.create_task(cache.run())
    try:
        await cache.wait_synced(30.0)
        yield cache
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching


def scene_of(
    admin: Client,
    transport: AiohttpTransport,
    upstream: Connection,
    cache: Cache,
    kubelet: ScriptedKubelet,
    account: Connection,
) -> Scene:
    """A scene whose operators are tasks that are cancelled: while that goes on nothing of theirs gets through."""

    @asynccontextmanager
    async def life(
        proxy: FaultProxy, namespace: str, coordinator: CoordinatorSettings | None = None
    ) -> AsyncIterator[RunningOperator]:
        settings = operator_settings(namespace)
        swift = replace(settings.operator, restarting=SWIFT, queue_status_period_s=0.2, coordinator=coordinator)
        connection = proxy.connection(account)
        async with running_operator(connection, namespace, replace(settings, operator=swift)) as operator:
            yield operator

    def coordinated(coordinator: CoordinatorSettings) -> Life:
        return partial(life, coordinator=coordinator)

    return Scene(admin, transport, upstream, cache, kubelet, life, coordinated)
