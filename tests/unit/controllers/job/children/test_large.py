"""A job of 64 nodes with 8 GPUs each, as 512 ranks will find it."""

from typing import Any

import pytest
from world import World

from torchctl.api import names

NODES, GPUS = 64, 8
QUEUE = "{image: a:1, kaiQueue: gpus, nodeResources: {gpus: 8}, storage: {shmSizePerGPU: 8Gi}}"
LONGEST_JOB, LONGEST_NAMESPACE = "j" * names.MAX_JOB_NAME, "n" * 63
LAST_ATTEMPT = 99_999

Json = dict[str, Any]


def whole(world: type[World], backend: str) -> World:
    w = world(
        f"{{jobQueue: research, numGPUs: 512, command: python train.py, distributed: {{rdzvBackend: {backend}}}}}",
        QUEUE,
    )
    w.settle()
    return w


def pods(job: Json) -> list[Json]:
    """The environment of each worker as its containers see it: what the Job controller and the kubelet fill in."""
    trainer = job["template"]["spec"]["containers"][0]
    found = []
    for index in range(job["completions"]):
        fields = {
            "status.podIP": f"10.0.0.{index}",
            "metadata.annotations['batch.kubernetes.io/job-completion-index']": str(index),
        }
        found.append(
            {
                variable["name"]: variable.get("value") or fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
                for variable in trainer["env"]
            }
        )
    return found


@pytest.mark.parametrize("backend", ["c10d", "static", "etcd-v2", "etcd"])
def test_512_ranks_are_one_world(world: type[World], backend: str) -> None:
    w = whole(world, backend)
    job = w.spec("Job", "demo")
    assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", NODES, NODES)
    workers = pods(job)
    assert [int(worker["NODE_RANK"]) for worker in workers] == list(range(NODES))
    assert sum(int(worker["PET_NPROC_PER_NODE"]) for worker in workers) == 512 == w.status.gpus
    assert {worker["PET_NNODES"] for worker in workers} == {"64"}
    ranks = [int(worker["NODE_RANK"]) * GPUS + local for worker in workers for local in range(GPUS)]
    assert ranks == list(range(512))
    # All else is the same for all: they meet at one place, under one id, and nobody is told to be the first.
    alike = [{name: value for name, value in worker.items() if name not in OWN} for worker in workers]
    assert all(one == alike[0] for one in alike)
    assert w.spec("PodGroup", f"pg-demo-{w.seen.job.metadata.uid}")["minMember"] == NODES


OWN = {"POD_IP", "NODE_RANK", "PET_NODE_RANK"}


@pytest.mark.parametrize(
    ("backend", "endpoint"),
    [
        ("c10d", "demo-0.demo.team.svc.cluster.local:29500"),
        ("static", "demo-0.demo.team.svc.cluster.local:29500"),
        ("etcd-v2", "etcd.etcd-system.svc:2379"),
        ("etcd", "etcd.etcd-system.svc:2379"),
    ],
)
def test_workers_meet_at_one_endpoint_with_nccls_variables(world: type[World], backend: str, endpoint: str) -> None:
    job = whole(world, backend).spec("Job", "demo")
    worker = pods(job)[63]
    assert (worker["PET_RDZV_BACKEND"], worker["PET_RDZV_ENDPOINT"]) == (backend, endpoint)
    assert (worker["MASTER_ADDR"], worker["MASTER_PORT"]) == ("demo-0.demo.team.svc.cluster.local", "29500")
    assert worker["TORCHRUN_BACKEND"] == "nccl"
    assert worker["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "1"
    assert worker["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert (worker.get("PET_NODE_RANK") == "63") is (backend == "static")
    spec = job["template"]["spec"]
    assert spec["subdomain"] == "demo"
    assert spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert {"name": "torchrun-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}} in spec["volumes"]
    assert spec["containers"][0]["command"] == ["sh", "-c", "exec torchrun train.py"]


@pytest.mark.parametrize("index", [0, 9, 63, NODES * 1000])
@pytest.mark.parametrize("attempt", [0, 1, LAST_ATTEMPT])
def test_the_longest_names_are_names_that_dns_has(index: int, attempt: int) -> None:
    child = names.worker_job(LONGEST_JOB, attempt)
    host = names.pod_host(child, index, LONGEST_JOB, LONGEST_NAMESPACE, "cluster.local")
    assert all(len(label) <= 63 for label in host.split("."))
    assert len(host) <= 253
    assert len(f"{host}:29500") <= 261, "what an endpoint may have"
