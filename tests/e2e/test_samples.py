"""The samples of config/samples, with real torchrun on a node without GPUs and without KAI.

Of each queue the image, the resources and the gang scheduler are this node's; everything else is as it is written. The
sample that meets in etcd runs in test_etcd.py.
"""

from pathlib import Path
from typing import Any

import pytest_asyncio
import yaml
from jobs import Place
from trainings import SECRET, log

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.phases import Phase
from torchctl.testing.node import LocalNode

SAMPLES = Path(__file__).parents[2] / "config" / "samples"


def sample(name: str) -> dict[str, Any]:
    body: dict[str, Any] = yaml.safe_load((SAMPLES / f"{name}.yaml").read_text())
    return body


async def submit(place: Place, body: dict[str, Any]) -> None:
    body["metadata"]["namespace"] = place.namespace
    await place.admin.create(TORCHRUN_JOB, body)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cpu(place: Place, queue_spec: dict[str, Any]) -> None:
    await place.queue("cpu", **(sample("queue-cpu")["spec"] | queue_spec))


async def test_the_cpu_sample_averages_over_two_nodes(operator: LocalNode, place: Place, cpu: None) -> None:
    await submit(place, sample("job-cpu"))
    await place.reaches(Phase.SUCCEEDED, "allreduce", timeout_s=180)
    assert "rank 0 of 2: the sum of all ranks is 1" in await log(operator, "allreduce") + await log(
        operator, "allreduce", index=1
    )


async def test_the_git_sample_trains_on_the_example_script(
    operator: LocalNode, place: Place, repository: tuple[str, str], cpu: None
) -> None:
    """As its comment says: the repository holds examples/ddp.py, and its address is written into the sample."""
    body = sample("job-git")
    body["spec"]["volumes"]["workspace"] |= {"url": repository[0], "secretRef": SECRET}
    await submit(place, body)
    await place.reaches(Phase.SUCCEEDED, "from-git", timeout_s=180)
    assert "world size 2, steps 0 to 200" in await log(operator, "from-git")


async def test_the_gpu_sample_finds_its_script_in_the_queue(
    operator: LocalNode, place: Place, queue_spec: dict[str, Any]
) -> None:
    queue = sample("queue-gpu-kai")["spec"]
    for field in ("kaiQueue", "parentKaiQueue", "kaiResources"):
        del queue[field]
    pod, torch = queue["podTemplate"]["spec"], queue_spec["podTemplate"]["spec"]
    pod["containers"][0]["volumeMounts"] += torch["containers"][0]["volumeMounts"]
    pod["volumes"] += torch["volumes"]
    await place.queue("gpu", **(queue | {field: queue_spec[field] for field in ("image", "nodeResources")}))
    job = sample("job-gpu-kai")
    del job["spec"]["numGPUs"]
    job["spec"]["numNodes"] = 2
    await submit(place, job)
    await place.reaches(Phase.SUCCEEDED, "ddp-16-gpus", timeout_s=180)
    assert "world size 2, steps 0 to 1000" in await log(operator, "ddp-16-gpus")
