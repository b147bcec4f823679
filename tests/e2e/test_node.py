"""The node by itself, without torchctl: what the other tests stand on."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchctl.testing.node import LocalNode
from torchctl.testing.node.training import IMAGE, TORCH_MOUNT

EXAMPLES = Path(__file__).parents[2] / "examples"


async def test_a_plain_indexed_job_trains_with_real_torchrun(node: LocalNode, torch: Path) -> None:
    kubectl = node.control_plane.kubectl
    script = (EXAMPLES / "ddp.py").read_text()
    objects = [_config_map("plain", {"ddp.py": script}), _service("plain"), _job("plain", torch)]
    await kubectl("apply", "--filename=-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    await kubectl("wait", "job/plain", "--for=condition=Complete", "--timeout=180s", timeout_s=190)
    log = await kubectl("logs", "--selector=job-name=plain,batch.kubernetes.io/job-completion-index=0")
    assert "world size 2" in log


def _config_map(name: str, data: Mapping[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": dict(data)}


def _service(name: str) -> dict[str, Any]:
    spec = {"clusterIP": "None", "selector": {"job-name": name}, "publishNotReadyAddresses": True}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def _job(name: str, torch: Path) -> dict[str, Any]:
    environment = {
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "1",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{name}-0.{name}.default.svc.cluster.local:29500",
        "PET_RDZV_ID": name,
    }
    container = {
        "name": "trainer",
        "image": IMAGE.name,
        "command": ["torchrun", "/scripts/ddp.py"],
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "volumeMounts": [
            {"name": "torch", "mountPath": TORCH_MOUNT, "readOnly": True},
            {"name": "scripts", "mountPath": "/scripts"},
        ],
    }
    pod = {
        "restartPolicy": "Never",
        "subdomain": name,
        "containers": [container],
        "volumes": [
            {"name": "torch", "hostPath": {"path": str(torch)}},
            {"name": "scripts", "configMap": {"name": name}},
        ],
    }
    spec = {
        "completionMode": "Indexed",
        "completions": 2,
        "parallelism": 2,
        "backoffLimit": 0,
        "template": {"spec": pod},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
