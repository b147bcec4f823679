"""The simulated Job controller arrives where the real one does: the same random histories on both, and no difference.

`TORCHCTL_SIM_HISTORIES` sets the number of histories, `TORCHCTL_SIM_FIRST` the seed of the first.
"""

import os
from collections.abc import Callable

import anyio
import pytest
from jobhistories import FOREVER, drawn, real_differences, simulated

from torchctl.runtime.client.client import Client
from torchctl.testing.kubelet import ScriptedKubelet
from torchctl.testing.namespaces import create_namespace, fresh_name
from torchctl.testing.nodekinds import Pod

HISTORIES = int(os.environ.get("TORCHCTL_SIM_HISTORIES", "24"))
FIRST = int(os.environ.get("TORCHCTL_SIM_FIRST", "0"))
AT_ONCE = 24


@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("own_script")
async def test_real_job_controller_arrives_where_the_simulated_one_does(
    admin: Client, kubelet: ScriptedKubelet, report: Callable[[str], None]
) -> None:
    histories = [drawn(seed) for seed in range(FIRST, FIRST + HISTORIES)]
    expected = [await anyio.to_thread.run_sync(simulated, history) for history in histories]
    namespaces = {fresh_name(f"sim-{history.seed}"): history for history in histories}

    def is_ours(pod: Pod) -> bool:
        return pod.metadata.namespace in namespaces

    kubelet.script = kubelet.script.when(is_ours, FOREVER)
    found: list[str] = []
    limit = anyio.CapacityLimiter(AT_ONCE)

    async def live(namespace: str, place: int) -> None:
        async with limit:
            await create_namespace(admin, namespace)
            found.extend(await real_differences(histories[place], expected[place], admin, namespace, kubelet))

    async with anyio.create_task_group() as tasks:
        for place, namespace in enumerate(namespaces):
            tasks.start_soon(live, namespace, place)
    steps = sum(len(history.steps) + 1 for history in histories)
    report(f"{len(histories)} histories of Jobs with {steps} steps: {len(found)} differences")
    for line in found:
        report(line)
    assert found == []
