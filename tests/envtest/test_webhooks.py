"""Admission webhooks that are slow or down hold a job up, say so, and lose nothing."""

from dataclasses import replace

from jobs import Place
from operators import operator_settings, running_operator
from waiting import until
from webhooks import registered, serving_webhook

from torchctl.api.kube import JOB
from torchctl.api.phases import Phase
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.settings import ClientSettings
from torchctl.testing.kubelet import ScriptedKubelet


async def test_write_waits_as_long_as_slow_webhooks_take(
    admin: Client, operator_account: Connection, kubelet: ScriptedKubelet, namespace: str
) -> None:
    """Two webhooks that never answer and may be ignored: the Job is made once the deadline exceeds their timeouts."""
    place, settings = Place(admin, namespace), operator_settings(namespace)
    hasty = replace(settings, runtime=replace(settings.runtime, client=ClientSettings(write_timeout_s=1.0)))
    async with serving_webhook() as webhook:
        slow = registered(
            admin,
            namespace,
            ("batch", "jobs", ["CREATE"]),
            "first.slow.test",
            "second.slow.test",
            url=webhook.url,
            authority=webhook.authority,
            failure_policy="Ignore",
            timeout_s=2,
        )
        async with slow:
            await place.queue()
            async with running_operator(operator_account, settings=hasty):
                await place.job()

                async def tried_twice() -> bool:
                    return len(webhook.asked) >= 2

                await until(tried_twice)
                assert not await place.exists(JOB, "job")
            async with running_operator(operator_account, settings=settings):
                await place.reaches(Phase.SUCCEEDED, timeout_s=60)
