"""The fake API server answers as the real one does: the same random histories on both, and no difference.

`TORCHCTL_FAKE_HISTORIES` sets the number of histories.
"""

import os
import random
import uuid
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from fakestories import CONFIG_MAP, CRD, CRD_KIND, STORY, History, Side, felled, is_served
from waiting import until

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.transport import AiohttpTransport
from torchctl.testing.fake import FakeApiServer, Served, served_by

HISTORIES = int(os.environ.get("TORCHCTL_FAKE_HISTORIES", "8"))
STEPS = 40

TEXT_MAP: dict[str, Any] = {"additionalProperties": {}}
SERVED = [served_by(CRD, STORY), Served(CONFIG_MAP, schema={"properties": {"data": TEXT_MAP, "binaryData": TEXT_MAP}})]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stories(admin: Client) -> None:
    await admin.apply(CRD_KIND, CRD, force=True)
    await until(partial(is_served, admin, STORY))


@pytest.mark.usefixtures("stories")
@pytest.mark.parametrize("seed", range(HISTORIES))
async def test_random_histories_are_answered_alike(transport: AiohttpTransport, namespace: str, seed: int) -> None:
    history = History(Side(transport, namespace), Side(FakeApiServer(SERVED), namespace))
    assert await history.run(seed, STEPS) == []


@pytest.mark.usefixtures("stories")
@pytest.mark.parametrize("labels", ["", "color=red"])
async def test_watches_show_a_history_alike(transport: AiohttpTransport, namespace: str, labels: str) -> None:
    """All changes since the beginning, and those that begin or end to be selected."""
    history = History(Side(transport, namespace), Side(FakeApiServer(SERVED), namespace))
    begun = [await side.version(STORY) for side in (history.real, history.fake)]
    assert await history.run(1000, STEPS) == []
    sides = zip((history.real, history.fake), begun, strict=True)
    real, fake = [await side.watched(STORY, since, labels) for side, since in sides]
    assert len(real) > 4
    assert real == fake


@pytest.mark.parametrize("seed", range(3))
async def test_dependents_are_collected_alike(
    transport: AiohttpTransport, admin: Client, namespace: str, seed: int
) -> None:
    real, fake = Side(transport, namespace), Side(FakeApiServer(SERVED), namespace)
    for side in (real, fake):
        await side.plant(CONFIG_MAP, random.Random(seed))
    for number, (name, policy) in enumerate(felled(random.Random(seed))):
        await _is_caught_up(admin, namespace, f"caught-up-{number}")
        for side in (real, fake):
            await side.fell(CONFIG_MAP, name, policy)
        expected = await fake.standing(CONFIG_MAP)
        await until(partial(_stands, real, expected))


async def _is_caught_up(admin: Client, namespace: str, name: str) -> None:
    """Returns once the real garbage collector knows all ConfigMaps that there are: it takes them in their order.

    It would take dependents that it does not know yet for none, and collect what should become an orphan.
    """
    nobody = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": str(uuid.uuid4())}
    await admin.create(CONFIG_MAP, {"metadata": {"name": name, "ownerReferences": [nobody]}}, namespace)

    async def is_collected() -> bool:
        return name not in {found.metadata.name for found in await admin.list(CONFIG_MAP, namespace=namespace)}

    await until(is_collected)


async def _stands(side: Side, expected: object) -> bool:
    return await side.standing(CONFIG_MAP) == expected
