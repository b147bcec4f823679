"""Training that meets in Debian's etcd 3.4, whose v2 API is on or off, as real workers find it."""

import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from jobs import Place

from torchctl.api.phases import Phase
from torchctl.preflight.core import V2Off
from torchctl.preflight.etcd import Server, check
from torchctl.runtime.client.client import Client
from torchctl.testing.node import LocalNode
from torchctl.testing.node.training import IMAGE, TORCH_MOUNT
from torchctl.testing.ports import reserve
from torchctl.testing.process import ManagedProcess

PROGRAM = "/usr/bin/etcd"
NAMESPACE = "meeting-in-etcd"
CLIENT_MOUNT = "/opt/etcd-client"
SCRIPT = (
    "import torch, torch.distributed as dist; dist.init_process_group('gloo'); x = torch.ones(1); "
    "dist.all_reduce(x); print('sum', int(x)); dist.barrier(); dist.destroy_process_group()"
)


@contextmanager
def etcd(directory: Path, host: str, *flags: str) -> Generator[str]:
    """A server of Debian's package; its endpoint. It is not waited for."""
    directory.mkdir()
    with reserve(2, host) as (port, peers):
        listen, among = f"http://{host}:{port}", f"http://{host}:{peers}"
        words = (
            f"--data-dir={directory / 'data'}",
            f"--listen-client-urls={listen}",
            f"--advertise-client-urls={listen}",
            f"--listen-peer-urls={among}",
            f"--initial-advertise-peer-urls={among}",
            f"--initial-cluster=default={among}",
        )
    process = ManagedProcess("etcd", [PROGRAM, *words, *flags], directory / "log")
    process.start()
    try:
        yield f"{host}:{port}"
    finally:
        process.kill()


async def test_the_v2_api_of_etcd_3_4_is_off_until_a_flag_switches_it_on(tmp_path: Path) -> None:
    with etcd(tmp_path / "off", "127.0.0.1") as endpoint:
        with pytest.raises(V2Off) as raised:
            await check(Server(endpoint=endpoint), timeout_s=60)
        assert f"etcd 3.4.23 at {endpoint} answers, but its v2 API is off. Start it with --enable-v2" in str(
            raised.value
        )
    with etcd(tmp_path / "on", "127.0.0.1", "--enable-v2") as endpoint:
        await check(Server(endpoint=endpoint), timeout_s=60)


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """python-etcd, which torchrun imports, beside the image's PyTorch."""
    directory = tmp_path_factory.mktemp("python-etcd")
    directory.chmod(0o755)
    command = (sys.executable, "-m", "pip", "install", "--quiet", f"--target={directory}", "python-etcd==0.4.5")
    subprocess.run(command, check=True)
    return directory


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def place(operator: LocalNode, admin: Client, torch: Path, client: Path) -> AsyncGenerator[Place]:
    """A namespace with a queue whose workers have PyTorch and python-etcd."""
    await operator.control_plane.kubectl("create", "namespace", NAMESPACE)
    place = Place(admin, NAMESPACE)
    brought = {"torch": (torch, TORCH_MOUNT), "etcd-client": (client, CLIENT_MOUNT)}
    mounts = [{"name": name, "mountPath": path, "readOnly": True} for name, (_, path) in brought.items()]
    volumes = [{"name": name, "hostPath": {"path": str(path)}} for name, (path, _) in brought.items()]
    await place.queue(
        image=IMAGE.name,
        nodeResources={"gpus": 0, "memory": "1Gi"},
        env=[{"name": "PYTHONPATH", "value": f"{TORCH_MOUNT}:{CLIENT_MOUNT}"}],
        podTemplate={"spec": {"containers": [{"name": "trainer", "volumeMounts": mounts}], "volumes": volumes}},
    )
    yield place


async def submit(place: Place, name: str, backend: str, endpoint: str) -> None:
    await place.job(
        name,
        args=["torchrun", "--no-python", "python3", "-c", SCRIPT],
        command=None,
        distributed={"rdzvBackend": backend, "rdzvEndpoint": endpoint},
    )


@pytest.mark.parametrize("backend", ["etcd-v2", "etcd"])
async def test_two_workers_meet_in_an_etcd_with_its_v2_api(
    operator: LocalNode, place: Place, tmp_path: Path, backend: str
) -> None:
    with etcd(tmp_path / "etcd", operator.network.host, "--enable-v2") as endpoint:
        await submit(place, backend, backend, endpoint)
        await place.reaches(Phase.SUCCEEDED, backend, timeout_s=180)
    selector = f"--selector=torchrun.ai/job-name={backend},torchrun.ai/role=worker"
    logs = await operator.control_plane.kubectl("logs", selector, f"--namespace={NAMESPACE}", "--container=trainer")
    assert logs.count("sum 2") == 2


async def test_a_job_whose_etcd_has_its_v2_api_off_says_so(operator: LocalNode, place: Place, tmp_path: Path) -> None:
    with etcd(tmp_path / "etcd", operator.network.host) as endpoint:
        await submit(place, "off", "etcd-v2", endpoint)
        job = await place.reaches(Phase.FAILED, "off", timeout_s=120)
    failed = await place.condition("Failed", "EtcdV2Disabled", "off")
    assert f"etcd 3.4.23 at {endpoint} answers, but its v2 API is off. Start it with --enable-v2" in failed.message
    assert job.status.restarts.total == 0
