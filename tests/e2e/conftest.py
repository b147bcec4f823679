"""One control plane and one real node for the whole run, with the operator's image and one to train with."""

import base64
import contextlib
import importlib.util
import json
import os
import shutil
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from gitserver import commit, serve
from jobs import Place
from trainings import NAMESPACE, SECRET

from torchctl.runtime.client.client import Client
from torchctl.testing.assets import Settings
from torchctl.testing.certificates import Authority
from torchctl.testing.controlplane import CommandFailed, ControlPlane
from torchctl.testing.node import LocalNode, Network
from torchctl.testing.node.leftovers import hierarchies, traces
from torchctl.testing.node.network import connected
from torchctl.testing.node.oci import add_image
from torchctl.testing.node.training import IMAGE, TORCH_MOUNT, ensure_torch

CLONE = Path(__file__).parents[2]
REPOSITORY, TAG = "docker.io/torchctl/torchctl", "e2e"
OPERATOR_IMAGE = f"{REPOSITORY}:{TAG}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # The first run of all downloads and builds; the fixtures' time counts as the first test's.
        item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def torch() -> Path:
    """PyTorch for the training image's Python."""
    return ensure_torch()


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with the image of torchctl as it is in this clone, and the training image on the same base."""
    spec = importlib.util.spec_from_file_location("image", CLONE / "hack" / "image.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    directory = tmp_path_factory.mktemp("images")
    operator = module.build(directory / "torchctl.tar", Settings.from_environment().cache / "image", OPERATOR_IMAGE)
    add_image(operator, directory / "both.tar", IMAGE)
    operator.unlink()
    return directory / "both.tar"


@pytest.fixture(scope="session")
def network() -> Network:
    if os.geteuid() != 0:
        pytest.fail("a real node needs root")
    if not shutil.which("containerd"):
        pytest.fail("containerd is missing: run hack/node/install.sh")
    return Network.free()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def control_plane(network: Network) -> AsyncGenerator[ControlPlane]:
    """The plugin's fixture, but for a node."""
    async with ControlPlane(options=network.control_plane_options()) as cluster:
        yield cluster


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def node(control_plane: ControlPlane, network: Network, images: Path) -> AsyncGenerator[LocalNode]:
    """A Ready node. Once it is left, the machine is as it was."""
    before = cgroups()
    async with LocalNode(control_plane, network, sandbox_image=IMAGE.name, images=[images], volumes=96) as node:
        yield node
    assert not connected(network)
    assert not traces(node.directory)
    assert cgroups() <= before


def cgroups() -> set[str]:
    """The top cgroups of this machine, but for those of nodes that others run meanwhile."""
    tops = (path for hierarchy in hierarchies() for path in hierarchy.iterdir() if path.is_dir())
    return {path.name for path in tops if not path.name.startswith("torchctl-node-")}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def operator(node: LocalNode, tmp_path_factory: pytest.TempPathFactory) -> LocalNode:
    """The node with torchctl on it, deployed from its own manifests: two replicas, both ready."""
    config = tmp_path_factory.mktemp("deployed") / "config"
    shutil.copytree(CLONE / "config", config)
    # As config/default says: the image is named in one place.
    kustomization = config / "manager" / "kustomization.yaml"
    content = yaml.safe_load(kustomization.read_text())
    content["images"] = [{"name": "torchctl", "newName": REPOSITORY, "newTag": TAG}]
    kustomization.write_text(yaml.safe_dump(content))
    kubectl = node.control_plane.kubectl
    await kubectl("apply", "--server-side", f"--kustomize={config / 'default'}")
    await kubectl("rollout", "status", "deployment/torchctl", "--namespace=torchctl-system", timeout_s=120)
    return node


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority("git.example.com")


@pytest.fixture(scope="session")
def queue_spec(torch: Path) -> dict[str, Any]:
    """A queue for jobs without GPUs, whose pods find PyTorch."""
    trainer = {"name": "trainer", "volumeMounts": [{"name": "torch", "mountPath": TORCH_MOUNT, "readOnly": True}]}
    volume = {"name": "torch", "hostPath": {"path": str(torch), "type": "Directory"}}
    return {
        "image": IMAGE.name,
        "nodeResources": {"gpus": 0, "memory": "1Gi"},
        "podTemplate": {"spec": {"containers": [trainer], "volumes": [volume]}},
        "storage": {
            "workspace": {"accessModes": ["ReadWriteMany"], "size": "1Gi"},
            "checkpoints": {"enabled": True, "accessModes": ["ReadWriteMany"], "size": "1Gi"},
        },
    }


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def place(operator: LocalNode, admin: Client, authority: Authority, queue_spec: dict[str, Any]) -> Place:
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
    await place.queue(**queue_spec)
    return place


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def repository(
    operator: LocalNode, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[tuple[str, str]]:
    """The URL of a repository with examples/ddp.py and the scripts of these tests, and its commit."""
    directory = tmp_path_factory.mktemp("repositories")
    scripts = (CLONE / "examples" / "ddp.py", *(CLONE / "tests" / "e2e" / "scripts").glob("*.py"))
    revision = commit(directory / "training.git", {script.name: script.read_text() for script in scripts})
    async with serve(directory, operator.network.host, authority) as url:
        yield f"{url}/training.git", revision


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[_FAILED] = report.failed
    return report


_FAILED = pytest.StashKey[bool]()


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def explain(request: pytest.FixtureRequest) -> AsyncGenerator[None]:
    """Shows the cluster as a failed test left it, below that test's traceback."""
    yield
    if request.node.stash.get(_FAILED, False) and "node" in request.fixturenames:
        print(await cluster_state(request.getfixturevalue("control_plane")))


async def cluster_state(cluster: ControlPlane) -> str:
    """Every job and pod, what happened to them, and what the pods said."""
    parts = [await cluster.kubectl("get", "jobs,pods,pvc", "--all-namespaces", "--output=wide")]
    names = 'jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name}{"\\n"}{end}'
    for line in (await cluster.kubectl("get", "pods", "--all-namespaces", f"--output={names}")).splitlines():
        namespace, name = line.split()
        parts.append(await cluster.kubectl("describe", "pod", name, f"--namespace={namespace}"))
        with contextlib.suppress(CommandFailed):  # a container that has not started
            options = (f"--namespace={namespace}", "--all-containers", "--prefix", "--tail=100")
            parts.append(await cluster.kubectl("logs", name, *options))
    return "\n".join(parts)
