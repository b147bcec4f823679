"""Admission webhooks that are slow or down hold a job up, say so, and lose nothing."""

from dataclasses import replace
from typing import Any

from jobs import Place, a_kai_queue, a_queue
from operators import operator_settings, running_operator
from webhooks import MUTATING, VALIDATING, Rule, closed_port, in_force, registered, serving_webhook

from torchctl.api.kube import JOB, KAI_QUEUE
from torchctl.api.phases import Phase
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.settings import ClientSettings
from torchctl.testing.kubelet import ScriptedKubelet
from torchctl.testing.namespaces import fresh_name

JOBS = Rule(group="batch", resource="jobs")


async def test_write_waits_as_long_as_slow_webhooks_take(
    admin: Client, operator_account: Connection, kubelet: ScriptedKubelet, namespace: str
) -> None:
    """Two webhooks that never answer and may be ignored: the Job is made once the deadline exceeds their timeouts."""
    place, settings = Place(admin, namespace), operator_settings(namespace)
    hasty = replace(settings, runtime=replace(settings.runtime, client=ClientSettings(write_timeout_s=1.0)))
    async with (
        serving_webhook() as webhook,
        registered(
            admin,
            MUTATING,
            namespace,
            JOBS,
            "first.slow.test",
            "second.slow.test",
            url=webhook.url,
            authority=webhook.authority,
            failure_policy="Ignore",
            timeout_s=2,
        ),
    ):
        webhook.open.set()
        await in_force(admin, JOB, a_plain_job(namespace, "probe"), asked=lambda: bool(webhook.asked))
        webhook.open.clear()
        await place.queue()
        async with running_operator(operator_account, settings=hasty):
            await place.job()
            said = await place.condition("WorkersReady", "WriteTimedOut")
            assert "Job" in said.message
            assert not await place.exists(JOB, "job")
        async with running_operator(operator_account, settings=settings):
            await place.reaches(Phase.SUCCEEDED, timeout_s=60)


async def test_job_names_the_dead_webhook_and_continues_by_itself(
    admin: Client, operator_account: Connection, kubelet: ScriptedKubelet, namespace: str
) -> None:
    place = Place(admin, namespace)
    async with (
        registered(admin, VALIDATING, namespace, JOBS, "gate.down.test", url=closed_port()) as remove,
        running_operator(operator_account, namespace),
    ):
        await in_force(admin, JOB, a_plain_job(namespace, "probe"))
        await place.queue()
        await place.job()
        said = await place.condition("WorkersReady", "WebhookFailed")
        assert "webhook gate.down.test (connection refused)" in said.message
        assert "see whether it runs" in said.message
        await remove()
        await place.reaches(Phase.SUCCEEDED, timeout_s=90)


async def test_queue_names_the_webhook_that_keeps_it_from_being_deleted(
    admin: Client, operator_account: Connection, kubelet: ScriptedKubelet, namespace: str
) -> None:
    """It once said that it waits for a job, which was long gone, and its namespace stayed in Terminating."""
    place, kai = Place(admin, namespace), fresh_name("kai")
    rule = Rule(group="scheduling.run.ai", resource="queues", operations=("CREATE", "UPDATE", "DELETE"), starting=kai)
    async with running_operator(operator_account, namespace):
        await place.queue(kaiQueue=kai)
        await place.condition("KaiQueueReady", "KaiQueueReady", "queue", kind=TORCHRUN_QUEUE)
        async with registered(admin, VALIDATING, namespace, rule, "kai.down.test", url=closed_port()) as remove:
            await in_force(admin, KAI_QUEUE, a_kai_queue(f"{kai}-probe"))
            await admin.delete(TORCHRUN_QUEUE, "queue", namespace=namespace)
            said = await place.condition("KaiQueueReady", "WebhookFailed", "queue", kind=TORCHRUN_QUEUE)
            assert "webhook kai.down.test" in said.message
            await remove()
            await place.gone(TORCHRUN_QUEUE, "queue", timeout_s=90)
        assert not await place.exists(KAI_QUEUE, kai)


async def test_queue_names_the_webhook_that_keeps_its_finalizer(
    admin: Client, operator_account: Connection, kubelet: ScriptedKubelet, namespace: str
) -> None:
    place, kai = Place(admin, namespace), fresh_name("kai")
    rule = Rule(group="torchrun.ai", resource="torchrunqueues", operations=("CREATE", "UPDATE"))
    async with running_operator(operator_account, namespace):
        await place.queue(kaiQueue=kai)
        await place.condition("KaiQueueReady", "KaiQueueReady", "queue", kind=TORCHRUN_QUEUE)
        async with registered(admin, VALIDATING, namespace, rule, "queues.down.test", url=closed_port()) as remove:
            await in_force(admin, TORCHRUN_QUEUE, a_queue(namespace, "probe"))
            await admin.delete(TORCHRUN_QUEUE, "queue", namespace=namespace)
            said = await place.condition("KaiQueueReady", "WebhookFailed", "queue", kind=TORCHRUN_QUEUE)
            assert "TorchrunQueue queue: the API server cannot ask webhook queues.down.test" in said.message
            await remove()
            await place.gone(TORCHRUN_QUEUE, "queue", timeout_s=90)


def a_plain_job(namespace: str, name: str) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "trainer", "image": "trainer:1"}]}
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": {"spec": pod}},
    }
