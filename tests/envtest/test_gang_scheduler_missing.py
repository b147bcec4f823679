"""A cluster without a gang scheduler: a condition says which is missing, and all goes on by itself when it is there."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from clusters import WITHOUT_ENDPOINTS, install, install_kai, install_volcano
from jobs import Place
from operators import running_operator
from waiting import until

from torchctl.api.kube import JOB, KAI_PODGROUP, KAI_QUEUE
from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.api.volcano import VOLCANO_PODGROUP
from torchctl.controllers.job import plan
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import ScriptedKubelet
from torchctl.testing.namespaces import create_namespace, fresh_name
from torchctl.testing.proxy import FaultProxy

KAI_CRDS = ("queues.scheduling.run.ai", "podgroups.scheduling.run.ai")


@dataclass(frozen=True)
class WithoutGangs:
    """A control plane of its own, whose API server does not know the kinds of gang schedulers yet."""

    plane: ControlPlane
    admin: Client
    account: Connection
    place: Place


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that wait for a gang scheduler look again after a second, not after half a minute."""
    monkeypatch.setattr(plan, "GANG_REQUEUE_S", 1.0)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def installed() -> AsyncGenerator[tuple[ControlPlane, Client, Connection]]:
    """One control plane for all tests here: to start one takes eight seconds of CPU."""
    async with ControlPlane(options=WITHOUT_ENDPOINTS) as plane, plane.client() as admin:
        yield plane, admin, await install(plane)


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(installed: tuple[ControlPlane, Client, Connection]) -> WithoutGangs:
    plane, admin, account = installed
    await plane.kubectl("delete", "crd", "--ignore-not-found", *KAI_CRDS)
    place = Place(admin, fresh_name("team"))
    await create_namespace(admin, place.namespace)
    return WithoutGangs(plane, admin, account, place)


async def test_queue_and_job_wait_until_kai_is_installed(cluster: WithoutGangs) -> None:
    admin, place = cluster.admin, cluster.place
    await place.queue(kaiQueue="research")
    await place.queue("plain")
    await place.job()
    await place.job("plain", jobQueue="plain")
    async with ScriptedKubelet(admin), running_operator(cluster.account, place.namespace):
        of_queue = await place.condition("KaiQueueReady", "KaiNotInstalled", "queue", kind=TORCHRUN_QUEUE)
        of_job = await place.condition("Admitted", "KaiNotInstalled")
        for found, crd in zip((of_queue, of_job), KAI_CRDS, strict=True):
            assert (found.status, crd in found.message, "install KAI" in found.message) == ("False", True, True)
        await place.reaches(Phase.SUCCEEDED, "plain")
        assert not await place.exists(JOB, "job")
        await install_kai(cluster.plane)
        await place.condition("KaiQueueReady", "KaiQueueReady", "queue", kind=TORCHRUN_QUEUE, timeout_s=60)
        await place.reaches(Phase.SUCCEEDED, timeout_s=90)
        assert (await admin.get(KAI_QUEUE, "research")).metadata.annotations["torchrun.ai/queue"] == "queue"
        (group,) = await admin.list(KAI_PODGROUP, namespace=place.namespace)
        assert group.spec["minMember"] == 2


async def test_job_waits_until_volcano_is_installed(cluster: WithoutGangs) -> None:
    admin, place = cluster.admin, cluster.place
    await place.queue(scheduling={"scheduler": "volcano"})
    await place.queue("any", scheduling={"scheduler": "auto"})
    await place.job()
    await place.job("early", jobQueue="any")
    async with ScriptedKubelet(admin), running_operator(cluster.account, place.namespace):
        found = await place.condition("Admitted", "VolcanoNotInstalled")
        assert "podgroups.scheduling.volcano.sh" in found.message
        early = await place.condition("Admitted", "NoGang", "early")
        assert early.message.endswith("; scheduler auto took none")
        assert not await place.exists(JOB, "job")
        await install_volcano(cluster.plane)
        await place.reaches(Phase.SUCCEEDED, timeout_s=90)
        await place.job("late", jobQueue="any")
        late = await place.condition("Admitted", "Admitted", "late", timeout_s=60)
        assert late.message.endswith("; scheduler auto took volcano")
        await place.reaches(Phase.SUCCEEDED, "late", timeout_s=60)

        async def none_left() -> bool:
            return not await admin.list(VOLCANO_PODGROUP, namespace=place.namespace)

        await until(none_left)


async def test_queue_goes_after_the_kai_crd_was_removed(cluster: WithoutGangs) -> None:
    """No deletion of its KAI Queue was ever seen."""
    place = cluster.place
    await install_kai(cluster.plane)
    await place.queue(kaiQueue="research")
    async with (
        FaultProxy(cluster.account) as proxy,
        running_operator(proxy.connection(cluster.account), place.namespace) as at_work,
    ):
        await place.condition("KaiQueueReady", "KaiQueueReady", "queue", kind=TORCHRUN_QUEUE)
        proxy.down()
        await cluster.plane.kubectl("delete", "crd", KAI_CRDS[0])
        proxy.heal()

        async def is_told() -> bool:
            return not at_work.manager.cache.informer(KAI_QUEUE).available

        await until(is_told)
        await cluster.admin.delete(TORCHRUN_QUEUE, "queue", namespace=place.namespace)

        async def is_gone() -> bool:
            return not await place.exists(TORCHRUN_QUEUE, "queue")

        await until(is_gone)
