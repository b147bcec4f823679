"""A cluster without KAI-Scheduler: a condition says what is missing, and all goes on by itself when it is there."""

from clusters import install, install_kai
from jobs import Place
from operators import running_operator
from waiting import until

from torchctl.api.kube import JOB, KAI_PODGROUP, KAI_QUEUE
from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import ScriptedKubelet
from torchctl.testing.namespaces import create_namespace
from torchctl.testing.proxy import FaultProxy


async def test_queue_and_job_wait_until_kai_is_installed() -> None:
    async with ControlPlane() as cluster, cluster.client() as admin:
        account = await install(cluster)
        place = Place(admin, "team")
        await create_namespace(admin, place.namespace)
        await place.queue(kaiQueue="research")
        await place.queue("plain")
        await place.job()
        await place.job("plain", jobQueue="plain")
        async with ScriptedKubelet(admin), running_operator(account, place.namespace):
            of_queue = await place.condition("KaiQueueReady", "KaiNotInstalled", "queue", kind=TORCHRUN_QUEUE)
            of_job = await place.condition("Admitted", "KaiNotInstalled")
            for found, crd in ((of_queue, "queues.scheduling.run.ai"), (of_job, "podgroups.scheduling.run.ai")):
                assert (found.status, crd in found.message, "install KAI" in found.message) == ("False", True, True)
            await place.reaches(Phase.SUCCEEDED, "plain")
            assert not await place.exists(JOB, "job")
            await install_kai(cluster)
            await place.condition("KaiQueueReady", "KaiQueueReady", "queue", kind=TORCHRUN_QUEUE, timeout_s=60)
            await place.reaches(Phase.SUCCEEDED, timeout_s=90)
            assert (await admin.get(KAI_QUEUE, "research")).metadata.annotations["torchrun.ai/queue"] == "queue"
            (group,) = await admin.list(KAI_PODGROUP, namespace=place.namespace)
            assert group.spec["minMember"] == 2


async def test_queue_goes_after_the_kai_crd_was_removed() -> None:
    """No deletion of its KAI Queue was ever seen."""
    async with ControlPlane() as cluster, cluster.client() as admin:
        account = await install(cluster)
        await install_kai(cluster)
        place = Place(admin, "team")
        await create_namespace(admin, place.namespace)
        await place.queue(kaiQueue="research")
        async with (
            FaultProxy(account) as proxy,
            running_operator(proxy.connection(account), place.namespace) as at_work,
        ):
            await place.condition("KaiQueueReady", "KaiQueueReady", "queue", kind=TORCHRUN_QUEUE)
            proxy.down()
            await cluster.kubectl("delete", "crd", "queues.scheduling.run.ai")
            proxy.heal()

            async def is_told() -> bool:
                return not at_work.manager.cache.informer(KAI_QUEUE).available

            await until(is_told)
            await admin.delete(TORCHRUN_QUEUE, "queue", namespace=place.namespace)

            async def is_gone() -> bool:
                return not await place.exists(TORCHRUN_QUEUE, "queue")

            await until(is_gone)
