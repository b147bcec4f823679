"""A program's whole way with a job, against a real API server and the operator; and what docs/sdk.md shows."""

import re
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
import pytest_asyncio
import yaml
from jobs import Place
from operators import background_operator

from torchctl.api.kube import POD
from torchctl.client import BlockingClient, BlockingJob, Client, JobHandle, Target, UsageError
from torchctl.runtime.client.client import Client as ApiClient
from torchctl.runtime.client.config import Connection
from torchctl.runtime.kinds import Key
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubeconfig import write_kubeconfig
from torchctl.testing.kubelet import Play, ScriptedKubelet
from torchctl.testing.script import named

DOCS = Path(__file__).parents[2] / "docs"


@pytest_asyncio.fixture(loop_scope="session")
async def place(
    operator_account: Connection, admin: ApiClient, kubelet: ScriptedKubelet, own_script: None, namespace: str
) -> AsyncGenerator[Place]:
    kubelet.script = kubelet.script.when(named("^lives-"), Play(run_s=None))
    here = Place(admin, namespace)
    await here.queue()
    async with background_operator(operator_account, namespace):
        yield here


@pytest.fixture
def target(control_plane: ControlPlane, place: Place) -> Target:
    return Target(kubeconfig=str(control_plane.admin_kubeconfig), namespace=place.namespace)


def begin(client: BlockingClient) -> BlockingJob:
    job = client.submit(["python", "train.py"], queue="queue", nodes=1, name="lives", workspace=False)
    return job.wait("Running", timeout_s=60)


def test_both_faces_of_a_job_have_the_same_methods() -> None:
    def methods(face: type) -> set[str]:
        return {name for name in dir(face) if not name.startswith("_") and callable(getattr(face, name))}

    assert methods(JobHandle) - methods(BlockingJob) == {"of", "watch"}


def go_on(job: BlockingJob) -> None:
    assert [line.text for line in job.logs(tail=1)] == ["loss 0.5"]
    assert job.suspend()
    job.wait("Suspended", timeout_s=60)
    assert job.resume()
    assert not job.resume()
    job.wait("Running", timeout_s=60).restart()
    job.wait("Running", timeout_s=60)
    assert job.status.attempt == 2
    with pytest.raises(UsageError, match="elastic"):
        job.scale(2)
    with pytest.raises(UsageError):
        job.sync(DOCS)
    with pytest.raises(UsageError):
        job.rollback()
    assert job.delete() is None
    job.wait("deleted", timeout_s=60)


async def test_job_lives_its_life_in_a_synchronous_program(
    place: Place, target: Target, kubelet: ScriptedKubelet
) -> None:
    with BlockingClient(target) as client:
        job = await anyio.to_thread.run_sync(begin, client)
        (pod,) = await place.admin.list(POD, namespace=place.namespace)
        log = kubelet.logs[Key(place.namespace, pod.metadata.name)]
        log.write("loss 0.9\n", 1)
        log.write("loss 0.5\n", 2)
        await anyio.to_thread.run_sync(go_on, job)


async def test_same_submit_again_is_the_same_job(place: Place, target: Target) -> None:
    async with Client.connect(target) as client:
        first = await client.submit("python train.py", queue="queue", nodes=1, name="bert", workspace=False)
        again = await client.submit("python train.py", queue="queue", nodes=1, name="bert", workspace=False)
        assert (again.uid, again.namespace) == (first.uid, place.namespace)
        with pytest.raises(UsageError, match="exists already"):
            await client.submit("python other.py", queue="queue", nodes=1, name="bert", workspace=False)
        with pytest.raises(UsageError):
            await client.submit(queue="queue", nodes=1)


async def test_programs_of_the_page_do_what_it_says(
    place: Place, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As somebody whose kubeconfig names a namespace with a queue h100."""
    await place.queue("h100")
    (token,) = [user["user"] for user in yaml.safe_load(control_plane.admin_kubeconfig.read_text())["users"]]
    kubeconfig = write_kubeconfig(
        tmp_path / "kubeconfig", server=control_plane.host, ca=control_plane.ca, user=token, namespace=place.namespace
    )
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    programs = re.findall(r"^```python\n(.*?)^```", (DOCS / "sdk.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(programs) == 2
    said = [await anyio.run_process([sys.executable, "-c", program]) for program in programs]
    assert [output.stdout.decode().splitlines()[-1:] for output in said] == [["Succeeded 0"], []]
