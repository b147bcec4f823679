"""What a worker finds in its environment, as the pods on the API server have it."""

from collections.abc import Mapping
from typing import Any

import pytest
import pytest_asyncio
from jobs import Place
from waiting import until

from torchctl.api.kube import POD
from torchctl.testing.kubelet import ScriptedKubelet

ETCD = "etcd.etcd-system.svc:2379"
HERE = "$(HOST)"
"""Stands for the fully qualified name of worker 0."""

BACKENDS: dict[str, tuple[Mapping[str, Any], Mapping[str, str]]] = {
    "c10d": (
        {},
        {
            "PET_RDZV_ENDPOINT": f"{HERE}:29500",
            "PET_RDZV_CONF": "read_timeout=600",
            "MASTER_ADDR": HERE,
            "MASTER_PORT": "29500",
        },
    ),
    "etcd-v2": ({}, {"PET_RDZV_ENDPOINT": ETCD, "MASTER_ADDR": HERE, "MASTER_PORT": "29500"}),
    "etcd": (
        {"rdzvEndpoint": "my-etcd:2379", "port": 29400},
        {"PET_RDZV_ENDPOINT": "my-etcd:2379", "MASTER_ADDR": HERE, "MASTER_PORT": "29400"},
    ),
    "static": (
        {"port": 29400, "rdzvConf": {"timeout": "60"}},
        {
            "PET_RDZV_ENDPOINT": f"{HERE}:29400",
            "PET_RDZV_CONF": "timeout=60",
            "PET_MASTER_ADDR": HERE,
            "PET_MASTER_PORT": "29400",
            "MASTER_ADDR": HERE,
            "MASTER_PORT": "29400",
        },
    ),
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(kubelet: ScriptedKubelet, place: Place) -> Place:
    await place.queue(env=[{"name": "NCCL_DEBUG", "value": "WARN"}, {"name": "TEAM", "value": "vision"}])
    return place


async def workers(place: Place, job: str, count: int = 2) -> list[dict[str, Any]]:
    """The job's worker pods, whole, in the order of their index."""

    async def look() -> list[str]:
        labels = f"torchrun-job-name={job},torchrun.ai/role=worker"
        names = [pod.metadata.name for pod in await place.admin.list(POD, namespace=place.namespace, labels=labels)]
        return sorted(names) if len(names) == count else []

    return [await place.admin.get_raw(POD, name, place.namespace) for name in await until(look)]


def environment(pod: dict[str, Any]) -> dict[str, str]:
    """The variables of `trainer`; for one from a field, the field."""
    variables = pod["spec"]["containers"][0]["env"]
    return {it["name"]: it["value"] if "value" in it else it["valueFrom"]["fieldRef"]["fieldPath"] for it in variables}


@pytest.mark.proves(
    "TorchrunJob.spec.distributed.port",
    "TorchrunJob.spec.distributed.rdzvBackend",
    "TorchrunJob.spec.distributed.rdzvEndpoint",
    "TorchrunJob.spec.distributed.rdzvConf",
    "TorchrunJob.status.rendezvousID",
)
@pytest.mark.parametrize("backend", BACKENDS)
async def test_torchrun_finds_its_peers_by_every_backend(place: Place, backend: str) -> None:
    settings, expected = BACKENDS[backend]
    await place.job(backend, distributed={"rdzvBackend": backend, **settings})
    first, second = await workers(place, backend)
    uid = first["metadata"]["labels"]["torchrun.ai/job-uid"]
    host = f"{backend}-0.{backend}.{place.namespace}.svc.cluster.local"
    expected = {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "1",
        "PET_RDZV_BACKEND": backend,
        "PET_RDZV_ID": f"{uid}-0",
        "PET_MAX_RESTARTS": "0",
        **{name: value.replace(HERE, host) for name, value in expected.items()},
    }
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    if backend == "static":
        expected["PET_NODE_RANK"] = index
    found = environment(first)
    assert {name: value for name, value in found.items() if name.startswith(("PET_", "MASTER_"))} == expected
    assert found["NODE_RANK"] == index
    assert environment(second) == found
    assert [pod["spec"]["hostname"] for pod in (first, second)] == [f"{backend}-0", f"{backend}-1"]
    assert first["spec"]["subdomain"] == backend


async def test_the_jobs_variables_win_over_the_queues(place: Place) -> None:
    await place.job("own", numNodes=1, env=[{"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "LR", "value": "0.1"}])
    (worker,) = await workers(place, "own", 1)
    found = environment(worker)
    assert {name: found[name] for name in ("NCCL_DEBUG", "TEAM", "LR")} == {
        "NCCL_DEBUG": "INFO",
        "TEAM": "vision",
        "LR": "0.1",
    }


async def test_datasets_and_checkpoints_are_mounted_and_said(place: Place) -> None:
    await place.queue(
        "volumes",
        storage={
            "checkpoints": {"enabled": True, "size": "1Gi"},
            "datasets": [{"name": "imagenet", "claimName": "imagenet", "mountPath": "/data"}],
        },
    )
    await place.job("volumes", jobQueue="volumes", numNodes=1)
    (worker,) = await workers(place, "volumes", 1)
    claims = {
        volume["name"]: volume["persistentVolumeClaim"]
        for volume in worker["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    }
    mounts = {mount["mountPath"]: mount for mount in worker["spec"]["containers"][0]["volumeMounts"]}
    assert claims[mounts["/data"]["name"]] == {"claimName": "imagenet", "readOnly": True}
    assert claims[mounts["/checkpoints"]["name"]] == {"claimName": "volumes-checkpoints"}
    assert environment(worker)["TORCHRUN_CHECKPOINT_DIR"] == "/checkpoints"
