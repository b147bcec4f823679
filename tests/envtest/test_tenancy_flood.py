"""S27 and S23 of docs/design/tenancy.md: a team that submits as much as it can does not hold up another one, and does
not fill the metrics either."""

from functools import partial

import anyio
from clusters import clear
from jobs import Place, a_job
from operators import running_operator
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import JOB
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.testing.namespaces import create_namespace, fresh_name

FLOOD = 100
AHEAD = 40
"""Of the flood, how many may be started before the one job of the quiet team. First come, first served would be all."""


async def test_s27_flood_of_one_team_does_not_delay_another(admin: Client, operator_account: Connection) -> None:
    """Everything is there before the operator is, and the quiet team came last."""
    loud, quiet = (Place(admin, fresh_name(f"tenancy-{hint}")) for hint in ("loud", "quiet"))
    for place in (loud, quiet):
        await create_namespace(admin, place.namespace)
        await place.queue()
    async with anyio.create_task_group() as group:
        for number in range(FLOOD):
            body = a_job(loud.namespace, f"flood-{number}", numNodes=1)
            group.start_soon(partial(admin.create, TORCHRUN_JOB, body))
    await quiet.job("quiet", numNodes=1)
    async with running_operator(operator_account) as operator:
        await until(partial(quiet.exists, JOB, "quiet"), timeout_s=60)
        started = await admin.list(JOB, namespace=loud.namespace)
        series = [sample for metric in operator.manager.metrics.registry.collect() for sample in metric.samples]
    assert len(started) < AHEAD, f"{len(started)} of {FLOOD} came first"
    named = [sample for sample in series if any(_is_of_tenants(value) for value in sample.labels.values())]
    assert named == [], "S23: no series for what people make"
    for place in (loud, quiet):
        await clear(admin, place.namespace)


def _is_of_tenants(value: str) -> bool:
    return value.startswith(("flood", "quiet", "tenancy"))
