"""A replica for the tests of leader election: while it leads it writes its name into a ConfigMap, all the time.

leader.py KUBECONFIG NAMESPACE IDENTITY LEASE_SECONDS
"""

import signal
import sys
from typing import Any

import anyio
import msgspec

from torchctl.runtime.client.client import Client, connect
from torchctl.runtime.client.config import load_connection
from torchctl.runtime.client.errors import ApiError, NotFound, NotLeader
from torchctl.runtime.clock import SystemClock
from torchctl.runtime.kinds import Kind, ObjectMeta
from torchctl.runtime.leaderelection.elector import LeaderElector
from torchctl.runtime.leaderelection.fence import Fence
from torchctl.runtime.logging import configure
from torchctl.runtime.settings import ElectionSettings

NAME = "scoreboard"
PERIOD_S = 0.05


class ConfigMap(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}


CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", ConfigMap)


async def write_for_ever(client: Client, namespace: str, identity: str) -> None:
    count = 0
    while True:
        try:
            count += 1
            await write(client, namespace, {"writer": identity, "count": str(count)})
        except (ApiError, NotLeader) as error:
            print(f"{identity}: {error!r}", file=sys.stderr)
        await anyio.sleep(PERIOD_S)


async def write(client: Client, namespace: str, data: dict[str, str]) -> None:
    """As reconcilers write: decided on a reading, guarded by its version."""
    metadata: dict[str, Any] = {"name": NAME, "namespace": namespace}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    try:
        seen = await client.get(CONFIG_MAP, NAME, namespace)
    except NotFound:
        await client.create(CONFIG_MAP, body, namespace)
    else:
        metadata["resourceVersion"] = seen.metadata.resource_version
        await client.replace(CONFIG_MAP, body)


async def stop_on_sigterm(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()


async def main(kubeconfig: str, namespace: str, identity: str, lease_duration: str) -> None:
    configure()
    lease_s = float(lease_duration)
    clock = SystemClock()
    fence = Fence(clock)
    # The default periods, in proportion.
    settings = ElectionSettings(
        lease_duration_s=lease_s, renew_deadline_s=lease_s * 2 / 3, retry_period_s=lease_s * 2 / 15
    )
    connection = await load_connection(kubeconfig)
    async with connect(connection, fence=fence, user_agent=identity) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(stop_on_sigterm, tasks.cancel_scope)
        elector = LeaderElector(client, namespace, "replicas", identity, settings, clock, fence)
        await elector.run(lambda: write_for_ever(client, namespace, identity))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4])
