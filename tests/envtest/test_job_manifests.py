"""What a job becomes, held against a real API server: taken without a word, and written back as it was sent."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import yaml
from goldens import KINDS as BY_NAME
from goldens import without_added

from torchctl.runtime.client import requests
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.managed import condense
from torchctl.runtime.client.transport import AiohttpTransport
from torchctl.runtime.drift import DriftDetector
from torchctl.runtime.kinds import ObjectMeta
from torchctl.testing.namespaces import create_namespace, fresh_name

JOBS = Path(__file__).parents[1] / "golden" / "jobs"


KINDS = ("ControllerRevision", "Job", "PersistentVolumeClaim", "Pod", "Service")
"""Not PodGroup: this control plane, which other tests share, does not serve KAI's kinds."""


def children(kinds: tuple[str, ...] = KINDS) -> list[Any]:
    """The golden children as parameters; a ControllerRevision whose data is left out is not one."""
    found = []
    for path in sorted(JOBS.glob("*.yaml")):
        _, _, *objects = yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader)  # each process reads all of them
        found += [
            pytest.param(child, id=f"{path.stem}-{child['kind']}-{child['metadata']['name']}")
            for child in objects
            if isinstance(child.get("data", {}), dict) and child["kind"] in kinds
        ]
    return found


MANAGER = "kubectl"


async def dry_run(transport: AiohttpTransport, body: dict[str, Any]) -> dict[str, Any]:
    """Sends what `kubectl apply --server-side --dry-run=server` sends: kubectl itself takes ten times as long."""
    meta, kind = body["metadata"], BY_NAME[body["kind"]]
    text = json.dumps(body).encode()
    request = requests.apply(kind, meta["name"], text, meta["namespace"], manager=MANAGER, dry_run=True)
    strict = msgspec.structs.replace(request, query=(*request.query, ("fieldValidation", "Strict")))
    answer = await transport.send(strict)
    live: dict[str, Any] = json.loads(answer.body)
    assert answer.status in (200, 201), live
    return live


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def restricted(admin: Client) -> str:
    """A namespace that takes only pods of the restricted standard."""
    name = fresh_name("restricted")
    await create_namespace(admin, name, {"pod-security.kubernetes.io/enforce": "restricted"})
    return name


@pytest.mark.parametrize("child", children())
async def test_a_child_comes_back_as_it_was_sent(child: dict[str, Any], transport: AiohttpTransport) -> None:
    """Else every reconcile would see drift, and write."""
    body = child | {"metadata": child["metadata"] | {"namespace": "default"}}
    live = without_added(await dry_run(transport, body))
    meta = msgspec.json.decode(msgspec.json.encode(live["metadata"]), type=ObjectMeta)
    condense(meta)
    assert not DriftDetector(MANAGER).drifted(body, meta)
    for field in ("spec", "data"):
        assert contains(live.get(field), body.get(field)), "immutable fields too"


def contains(live: Any, sent: Any) -> bool:
    """Whether every field that was sent is there with its value; the server may have added defaults."""
    if isinstance(sent, dict):
        return all(contains((live or {}).get(key), value) for key, value in sent.items())
    if isinstance(sent, list):
        return len(sent) == len(live or ()) and all(map(contains, live or (), sent))
    return bool(live == sent)


@pytest.mark.parametrize("child", children(("Pod", "Job")))
async def test_pods_keep_to_the_restricted_pod_security_standard(
    child: dict[str, Any], transport: AiohttpTransport, restricted: str
) -> None:
    pod = child if child["kind"] == "Pod" else {"metadata": {}, "spec": child["spec"]["template"]["spec"]}
    spec = {key: value for key, value in pod["spec"].items() if key not in ("priorityClassName", "serviceAccountName")}
    if spec.get("hostNetwork"):
        pytest.skip("this queue's podTemplate asks for more than the standard allows")
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": restricted}, "spec": spec}
    assert (await dry_run(transport, body))["spec"]["securityContext"]["runAsNonRoot"] is True
