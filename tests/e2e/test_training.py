"""A person's training run: torchctl from its own manifests, code from git, real torchrun."""

import anyio
from jobs import Place
from trainings import NAMESPACE, log, submit
from waiting import until

from torchctl.api.phases import Phase
from torchctl.testing.node import LocalNode


async def test_two_nodes_train_on_code_from_git(operator: LocalNode, place: Place, repository: tuple[str, str]) -> None:
    url, revision = repository
    await submit(place, "ddp", url)
    job = await place.reaches(Phase.SUCCEEDED, "ddp", timeout_s=180)
    assert job.status.workspace is not None
    assert job.status.workspace.revision == revision
    assert "world size 2" in await log(operator, "ddp")


async def test_training_starts_although_dns_is_20_seconds_late(
    operator: LocalNode, place: Place, repository: tuple[str, str]
) -> None:
    await operator.stop_dns()
    try:
        await submit(place, "late-dns", repository[0])

        async def both_wait() -> bool:
            selector = "--selector=torchrun.ai/job-name=late-dns,torchrun.ai/role=worker"
            phases = "--output=jsonpath={.items[*].status.phase}"
            kubectl = operator.control_plane.kubectl
            return await kubectl("get", "pods", selector, phases, f"--namespace={NAMESPACE}") == "Running Running"

        await until(both_wait, timeout_s=90)
        # What is tested is this time: both torchruns have resolved the endpoint, or failed to, by its end.
        await anyio.sleep(20)
    finally:
        await operator.start_dns()
    await place.reaches(Phase.SUCCEEDED, "late-dns", timeout_s=180)
    assert "world size 2" in await log(operator, "late-dns")
