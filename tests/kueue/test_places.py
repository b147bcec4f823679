"""The places of Workloads as Kueue's own visibility server tells them."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from kueuejobs import steady, submit
from kueueobjects import Quota
from kueueprograms import Kueue
from waiting import until

from torchctl.api.kueue import KUEUE_PENDING, KUEUE_WORKLOAD, PENDING, KueuePendingWorkload
from torchctl.controllers.gangs.places import Places
from torchctl.runtime.client.client import Client, connect
from torchctl.runtime.client.errors import NotFound
from torchctl.runtime.kinds import Key


@pytest_asyncio.fixture(loop_scope="session")
async def visibility(programs: Kueue) -> AsyncGenerator[Client]:
    async with connect(programs.visibility) as client:
        yield client


async def test_jobs_that_wait_are_told_their_places(quota: Quota, visibility: Client) -> None:
    """A Workload need not say why it waits: of those that ask for the same Kueue looks at one."""
    await submit(quota, steady(quota, "other"))
    await quota.admitted("other")
    for name in ("first", "second"):
        await submit(quota, steady(quota, name))
    listed: list[KueuePendingWorkload] = []

    async def both() -> bool:
        found = await visibility.get(KUEUE_PENDING, "train", quota.namespace, subresource=PENDING)
        listed[:] = found.items
        return len(listed) == 2

    await until(both)
    places, train = Places(), Key(quota.namespace, "train")

    async def said(name: str) -> str:
        workload = (await quota.workload(name))["metadata"]["name"]
        return places.words(
            Key(quota.namespace, name), await quota.admin.get(KUEUE_WORKLOAD, workload, quota.namespace)
        )

    assert [await said("first"), await said("second")] == ["", ""]
    assert len(places.learn(train, listed)) == 2
    # Of one second Kueue orders by uid.
    told = {await said("first"), await said("second")}
    assert told == {"place 1 of its ClusterQueue", "place 2 of its ClusterQueue"}


async def test_a_missing_queue_is_named_in_the_answer(quota: Quota, visibility: Client) -> None:
    """So it is told from a cluster that does not serve places at all."""
    with pytest.raises(NotFound) as missing:
        await visibility.get(KUEUE_PENDING, "nowhere", quota.namespace, subresource=PENDING)
    assert missing.value.details is not None
    assert missing.value.details.name == "nowhere"
