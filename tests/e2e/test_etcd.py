"""Workers meet in the etcd of config/etcd, and are told why where an etcd has its v2 API off."""

import base64
import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from jobs import Place
from seeds import SEEDS, manifests
from trainings import SECRET

from torchctl.api.names import API_VERSION
from torchctl.api.phases import Phase
from torchctl.preflight.core import V2Off
from torchctl.preflight.etcd import Server, check
from torchctl.runtime.client.client import Client
from torchctl.testing.assets import prepared
from torchctl.testing.certificates import Authority
from torchctl.testing.node import LocalNode
from torchctl.testing.node.oci import Image, add_image
from torchctl.testing.node.training import IMAGE, TORCH_MOUNT
from torchctl.testing.ports import reserve
from torchctl.testing.process import ManagedProcess
from torchctl.testing.programs import Program, version

CONFIG = Path(__file__).parents[2] / "config"
MODULE = "go.etcd.io/etcd/server/v3"
ETCD = Program("etcd-v2", "etcd-v2", MODULE, MODULE)
"""An etcd that still has the v2 API, in the version that config/etcd deploys."""

NAMESPACE = "meeting-in-etcd"
CLIENT_MOUNT, PIP_MOUNT = "/opt/etcd-client", "/opt/pip"
SCRIPT = (
    "import torch, torch.distributed as dist; dist.init_process_group('gloo'); x = torch.ones(1); "
    "dist.all_reduce(x); print('sum', int(x)); dist.barrier(); dist.destroy_process_group()"
)


@pytest.fixture(scope="session")
def program() -> Path:
    return prepared(ETCD)


@contextmanager
def etcd(program: Path, directory: Path, host: str, *flags: str) -> Generator[str]:
    """A server on this machine; its endpoint. It is not waited for."""
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
    process = ManagedProcess("etcd", [str(program), *words, *flags], directory / "log")
    process.start()
    try:
        yield f"{host}:{port}"
    finally:
        process.kill()


async def test_etcd_v2_api_is_off_without_its_flag(program: Path, tmp_path: Path) -> None:
    with etcd(program, tmp_path / "off", "127.0.0.1") as endpoint:
        with pytest.raises(V2Off) as raised:
            await check(Server(endpoint=endpoint), timeout_s=60)
        assert off(endpoint) in str(raised.value)
    with etcd(program, tmp_path / "on", "127.0.0.1", "--enable-v2") as endpoint:
        await check(Server(endpoint=endpoint), timeout_s=60)


def off(endpoint: str) -> str:
    """What is said of a server whose v2 API is off."""
    number = version(ETCD).removeprefix("v")
    return f"etcd {number} at {endpoint} answers, but its v2 API is off. Start it with --enable-v2"


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """python-etcd, which torchrun imports, beside the image's PyTorch."""
    directory = tmp_path_factory.mktemp("python-etcd")
    directory.chmod(0o755)
    pip("install", f"--target={directory}", "python-etcd==0.4.5")
    return directory


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """pip, which the training image lacks, and what it would find in a package index."""
    directory = tmp_path_factory.mktemp("pip")
    directory.chmod(0o755)
    pip("install", f"--target={directory}", "pip")
    pip("wheel", f"--wheel-dir={directory / 'wheels'}", "python-etcd==0.4.5")
    return directory


def pip(command: str, *arguments: str) -> None:
    subprocess.run((sys.executable, "-m", "pip", command, "--quiet", *arguments), check=True)


@pytest.fixture(scope="session")
def archive(program: Path, images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image that config/etcd names, made here: nothing is pulled."""
    deployment = yaml.safe_load((CONFIG / "etcd" / "deployment.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"].endswith(f":{version(ETCD)}"), "what is tested is what is deployed"
    archive = tmp_path_factory.mktemp("etcd") / "images.tar"
    add_image(images, archive, Image(name=container["image"], files={"usr/local/bin/etcd": program.read_bytes()}))
    return archive


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def deployed(operator: LocalNode, archive: Path) -> LocalNode:
    """The node with config/etcd on it, as it is."""
    await operator.load_image(archive)
    kubectl = operator.control_plane.kubectl
    await kubectl("apply", "--server-side", f"--kustomize={CONFIG / 'etcd'}")
    await kubectl("rollout", "status", "deployment/etcd", "--namespace=etcd-system", timeout_s=120)
    return operator


@pytest.fixture(scope="session")
def queue_spec(torch: Path, client: Path) -> dict[str, Any]:
    """A queue whose workers have PyTorch and python-etcd."""
    brought = {"torch": (torch, TORCH_MOUNT), "etcd-client": (client, CLIENT_MOUNT)}
    return spec_with(brought, f"{TORCH_MOUNT}:{CLIENT_MOUNT}")


def spec_with(brought: dict[str, tuple[Path, str]], python_path: str, **env: str) -> dict[str, Any]:
    mounts = [{"name": name, "mountPath": path, "readOnly": True} for name, (_, path) in brought.items()]
    volumes = [{"name": name, "hostPath": {"path": str(path)}} for name, (path, _) in brought.items()]
    return {
        "image": IMAGE.name,
        "nodeResources": {"gpus": 0, "memory": "1Gi"},
        "env": [{"name": name, "value": value} for name, value in {"PYTHONPATH": python_path, **env}.items()],
        "podTemplate": {"spec": {"containers": [{"name": "trainer", "volumeMounts": mounts}], "volumes": volumes}},
    }


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def place(operator: LocalNode, admin: Client, queue_spec: dict[str, Any]) -> Place:
    await operator.control_plane.kubectl("create", "namespace", NAMESPACE)
    place = Place(admin, NAMESPACE)
    await place.queue(**queue_spec)
    return place


async def submit(place: Place, name: str, **rendezvous: str) -> None:
    args = ["torchrun", "--no-python", "python3", "-c", SCRIPT]
    await place.job(name, args=args, command=None, distributed=rendezvous)


async def logs(node: LocalNode, job: str) -> str:
    selector = f"--selector=torchrun.ai/job-name={job},torchrun.ai/role=worker"
    return await node.control_plane.kubectl("logs", selector, f"--namespace={NAMESPACE}", "--container=trainer")


@pytest.mark.parametrize("backend", ["etcd-v2", "etcd"])
async def test_two_workers_meet_in_the_deployed_etcd(deployed: LocalNode, place: Place, backend: str) -> None:
    """Neither job nor queue names an endpoint: the operator's own default is the Service of config/etcd."""
    await submit(place, backend, rdzvBackend=backend)
    job = await place.reaches(Phase.SUCCEEDED, backend, timeout_s=180)
    assert job.status.master_endpoint == "etcd.etcd-system.svc:2379"
    assert (await logs(deployed, backend)).count("sum 2") == 2


async def test_the_sample_installs_python_etcd_and_meets(
    deployed: LocalNode, place: Place, torch: Path, index: Path
) -> None:
    brought = {"torch": (torch, TORCH_MOUNT), "pip": (index, PIP_MOUNT)}
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": f"{PIP_MOUNT}/wheels"}
    await place.queue("cpu", **spec_with(brought, f"{TORCH_MOUNT}:{PIP_MOUNT}", **offline))
    sample = CONFIG / "samples" / "job-etcd.yaml"
    await deployed.control_plane.kubectl("apply", f"--namespace={NAMESPACE}", "-f", str(sample))
    await place.reaches(Phase.SUCCEEDED, "met-in-etcd", timeout_s=180)
    assert (await logs(deployed, "met-in-etcd")).count("of 2: 2 ranks have met") == 2


@pytest.mark.skipif(not SEEDS, reason="TORCHCTL_SEEDS names no directory with the first documentation")
async def test_a_job_of_the_first_documentation_meets_in_etcd(
    deployed: LocalNode,
    place: Place,
    queue_spec: dict[str, Any],
    authority: Authority,
    repository: tuple[str, str],
) -> None:
    """Its backend and its command are as they were written; hardware, KAI and the uploaded code are not here."""
    queue, job = (yaml.safe_load(block) for block in manifests("000")[:2])
    here = {field: queue["spec"][field] for field in queue["spec"] if field in ("storage",)}
    await place.queue(queue["metadata"]["name"], **queue_spec, **here)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}}
    secret |= {"data": {"ca.crt": base64.b64encode(authority.certificate).decode()}}
    code = {"source": "git", "url": repository[0], "ref": "main", "secretRef": SECRET}
    assert job["spec"]["distributed"]["rdzvBackend"] == "etcd-v2"
    del job["spec"]["numGPUs"]
    job["spec"] |= {"numNodes": 2, "volumes": {"workspace": code}}
    assert job["apiVersion"] == API_VERSION
    for body in (secret, job):
        await deployed.control_plane.kubectl(
            "create", f"--namespace={NAMESPACE}", "--filename=-", input=json.dumps(body)
        )
    await place.reaches(Phase.SUCCEEDED, job["metadata"]["name"], timeout_s=180)
    assert "100 epochs, 2 ranks, total 200" in await logs(deployed, job["metadata"]["name"])


async def test_job_fails_and_names_the_flag_of_etcd(
    operator: LocalNode, place: Place, program: Path, tmp_path: Path
) -> None:
    with etcd(program, tmp_path / "etcd", operator.network.host) as endpoint:
        await submit(place, "off", rdzvBackend="etcd-v2", rdzvEndpoint=endpoint)
        job = await place.reaches(Phase.FAILED, "off", timeout_s=120)
    failed = await place.condition("Failed", "EtcdV2Disabled", "off")
    assert off(endpoint) in failed.message
    assert job.status.restarts.total == 0
