"""A whole process of controllers against the real API server: stopping, leadership, missing kinds."""

from pathlib import Path

import anyio
import pytest
from operators import operator_process, running_operator
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.runtime.cache.cache import NotSynced
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.kinds import EVENT, LEASE, Kind, Lease
from torchctl.runtime.settings import RuntimeSettings
from torchctl.runtime.supervise import EssentialTaskError
from torchctl.testing.controlplane import ControlPlane

pytestmark = pytest.mark.usefixtures("kubelet")

QUEUE = {"apiVersion": "torchrun.ai/v1alpha1", "kind": "TorchrunQueue", "metadata": {"name": "queue"}}
JOB = {"apiVersion": "torchrun.ai/v1alpha1", "kind": "TorchrunJob", "metadata": {"name": "job"}}


async def submit(admin: Client, namespace: str) -> None:
    await admin.create(TORCHRUN_QUEUE, {**QUEUE, "spec": {"image": "trainer:1"}}, namespace)
    await admin.create(
        TORCHRUN_JOB, {**JOB, "spec": {"jobQueue": "queue", "numNodes": 1, "command": "true"}}, namespace
    )


async def test_events_recorded_last_are_written_before_the_process_stops(
    admin: Client, namespace: str, operator_account: Connection
) -> None:
    async with running_operator(operator_account, namespace):
        await submit(admin, namespace)

        async def succeeded() -> bool:
            return (await admin.get(TORCHRUN_JOB, "job", namespace)).status.phase == Phase.SUCCEEDED

        await until(succeeded)
    reasons = {event.reason for event in await admin.list(EVENT, namespace=namespace)}
    assert "Succeeded" in reasons


async def test_one_of_two_replicas_leads_and_hands_over(
    admin: Client, namespace: str, operator_account: Connection, control_plane: ControlPlane, tmp_path: Path
) -> None:
    kubeconfig = await control_plane.service_account_kubeconfig("torchctl-system", "torchctl")
    election = ("--lease-namespace", "torchctl-system", "--namespace", namespace)

    async def holder() -> str:
        lease = await admin.get(LEASE, "torchctl", "torchctl-system")
        return lease.spec.holder_identity or ""

    async def anybody() -> str:
        leases: list[Lease] = await admin.list(LEASE, namespace="torchctl-system")
        return next((lease.spec.holder_identity or "" for lease in leases), "")

    async with operator_process(kubeconfig, tmp_path / "first.log", *election) as first:
        leader = await until(anybody)
        async with operator_process(kubeconfig, tmp_path / "second.log", *election):
            await submit(admin, namespace)

            async def succeeded() -> bool:
                return (await admin.get(TORCHRUN_JOB, "job", namespace)).status.phase == Phase.SUCCEEDED

            await until(succeeded)
            first.terminate()
            assert await first.wait() == 0

            async def handed_over() -> bool:
                return await holder() not in ("", leader)

            await until(handed_over)
    assert await holder() == ""


class Missing(Lease, frozen=True, rename="camel"):
    """An object of a kind that no cluster has."""


@pytest.mark.usefixtures("operator_account")
async def test_start_fails_and_names_a_missing_required_kind(control_plane: ControlPlane, namespace: str) -> None:
    async def start() -> None:
        # As admin: the operator's own account has no right to the kind, and asks for nothing that it has no right to.
        async with running_operator(control_plane.connection(), namespace) as running:
            running.manager.settings = RuntimeSettings(cache_sync_timeout_s=1.0)
            running.manager.cache.register(Kind("none.example.org", "v1", "Missing", "missings", Missing))
            await anyio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught:
        await start()
    assert caught.group_contains(NotSynced, match=r"missings\.none\.example\.org", depth=None)


async def test_a_task_that_dies_ends_the_process_and_is_named(operator_account: Connection, namespace: str) -> None:
    async def dies() -> None:
        raise RuntimeError("the recorder is broken")

    async def start() -> None:
        async with running_operator(operator_account, namespace) as running:
            running.manager.events.run = dies  # type: ignore[method-assign]  # the fault under test
            await anyio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught:
        await start()
    assert caught.group_contains(EssentialTaskError, match="event recorder", depth=None)
