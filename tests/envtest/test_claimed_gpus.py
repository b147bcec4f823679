"""GPUs that come from resource claims count, and the claims reach the pods."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from jobs import Place
from operators import background_operator
from waiting import until

from torchctl.api.kube import JOB
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.testing.namespaces import NAMESPACE, create_namespace, fresh_name


@pytest_asyncio.fixture(loop_scope="session")
async def place(operator_account: Connection, admin: Client) -> AsyncGenerator[Place]:
    namespace = fresh_name("claimed")
    await create_namespace(admin, namespace)
    async with background_operator(operator_account, namespace):
        yield Place(admin, namespace)
    await admin.delete(NAMESPACE, namespace)


@pytest.mark.proves("TorchrunQueue.spec.nodeResources.gpusPerNode")
async def test_gpus_of_resource_claims_are_spread_as_gpus_are(place: Place) -> None:
    claims = [{"name": "gpus", "resourceClaimTemplateName": "four"}]
    trainer = {"name": "trainer", "resources": {"claims": [{"name": "gpus"}]}}
    template = {"spec": {"resourceClaims": claims, "containers": [trainer]}}
    await place.queue(nodeResources={"gpusPerNode": 4, "cpus": 8}, podTemplate=template)
    await place.job(numNodes=None, numGPUs=8)

    async def made() -> bool:
        return await place.exists(JOB, "job")

    await until(made)
    spec = (await place.admin.get_raw(JOB, "job", place.namespace))["spec"]
    found = spec["template"]["spec"]["containers"][0]
    assert (spec["completions"], spec["template"]["spec"]["resourceClaims"]) == (2, claims)
    amounts = {"cpu": "8"}
    assert found["resources"] == {"requests": amounts, "limits": amounts, "claims": [{"name": "gpus"}]}
    environment = {variable["name"]: variable.get("value") for variable in found["env"]}
    assert environment["PET_NPROC_PER_NODE"] == "4"
