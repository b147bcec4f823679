"""A person's training run: torchctl from its own manifests, code from git, real torchrun."""

import base64
import json
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
import pytest_asyncio
from gitserver import commit, serve
from jobs import Place
from waiting import until

from torchctl.api.phases import Phase
from torchctl.runtime.client.client import Client
from torchctl.testing.certificates import Authority
from torchctl.testing.node import LocalNode
from torchctl.testing.node.training import IMAGE, TORCH_MOUNT

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMESPACE = "training"
SECRET = "git-authority"


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority("git.example.com")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def place(operator: LocalNode, admin: Client, authority: Authority, torch: Path) -> Place:
    """A namespace with a queue for jobs without GPUs, whose pods find PyTorch, and trust in the git server."""
    kubectl = operator.control_plane.kubectl
    await kubectl("create", "namespace", NAMESPACE)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": NAMESPACE},
        "data": {"ca.crt": base64.b64encode(authority.certificate).decode()},
    }
    await kubectl("create", "--filename=-", input=json.dumps(secret))
    place = Place(admin, NAMESPACE)
    trainer = {"name": "trainer", "volumeMounts": [{"name": "torch", "mountPath": TORCH_MOUNT, "readOnly": True}]}
    volume = {"name": "torch", "hostPath": {"path": str(torch), "type": "Directory"}}
    await place.queue(
        image=IMAGE.name,
        nodeResources={"gpus": 0, "memory": "1Gi"},
        podTemplate={"spec": {"containers": [trainer], "volumes": [volume]}},
        storage={
            "workspace": {"accessModes": ["ReadWriteMany"], "size": "1Gi"},
            "checkpoints": {"enabled": True, "accessModes": ["ReadWriteMany"], "size": "1Gi"},
        },
    )
    return place


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def repository(
    operator: LocalNode, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[tuple[str, str]]:
    """The URL of a repository with examples/ddp.py, and its commit."""
    directory = tmp_path_factory.mktemp("repositories")
    revision = commit(directory / "training.git", {"ddp.py": (EXAMPLES / "ddp.py").read_text()})
    async with serve(directory, operator.network.host, authority) as url:
        yield f"{url}/training.git", revision


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


async def submit(place: Place, name: str, url: str) -> None:
    workspace = {"source": "git", "url": url, "ref": "main", "secretRef": SECRET}
    await place.job(name, command="python ddp.py --steps=50", volumes={"workspace": workspace})


async def log(node: LocalNode, job: str) -> str:
    """What the first worker printed."""
    selector = f"--selector=torchrun.ai/job-name={job},batch.kubernetes.io/job-completion-index=0"
    return await node.control_plane.kubectl("logs", selector, f"--namespace={NAMESPACE}", "--tail=-1")
