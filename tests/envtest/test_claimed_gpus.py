"""GPUs that come from resource claims count, and the claims reach the pods."""

import pytest
from jobs import Place
from waiting import until

from torchctl.api.kube import JOB


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
