"""What the operator writes and reads of Kueue's Workloads is what Kueue's own CRD has."""

import os

import pytest
import pytest_asyncio
from clusters import KUEUE_CRDS, install_kueue
from contracts import missing, schema_of

from torchctl.api.kueue import KUEUE_WORKLOAD, KueueWorkloadSpec, KueueWorkloadStatus
from torchctl.api.labels import KUEUE_PAUSED
from torchctl.runtime.client.client import Client
from torchctl.testing.controlplane import ControlPlane

pytestmark = pytest.mark.skipif(
    not os.environ.get(KUEUE_CRDS), reason=f"{KUEUE_CRDS} names no directory with Kueue's CRDs"
)

CONTAINER = {"name": "trainer", "image": "trainer:1"}
POD_SET = {"name": "main", "count": 2, "template": {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}}


@pytest_asyncio.fixture(scope="module", loop_scope="session", autouse=True)
async def installed(control_plane: ControlPlane) -> None:
    """Kueue's CRDs, as it ships them."""
    await install_kueue(control_plane)


@pytest.mark.parametrize(
    ("field", "struct"),
    [("spec", KueueWorkloadSpec), ("status", KueueWorkloadStatus)],
    ids=["spec", "status"],
)
def test_each_field_that_is_read_exists_in_kueue(field: str, struct: type) -> None:
    assert missing(struct, schema_of(os.environ[KUEUE_CRDS], KUEUE_WORKLOAD, field), field) == []


async def test_pause_of_a_workload_is_kept(admin: Client, namespace: str) -> None:
    """Kueue's own defaults make a new Workload active."""
    body = {
        "apiVersion": KUEUE_WORKLOAD.api_version,
        "kind": KUEUE_WORKLOAD.kind,
        "metadata": {"name": "job-demo", "namespace": namespace},
        "spec": {"podSets": [POD_SET]},
    }
    made = await admin.create(KUEUE_WORKLOAD, body)
    assert made.spec.active
    patch = {"metadata": {"annotations": {KUEUE_PAUSED: "true"}}, "spec": {"active": False}}
    await admin.merge_patch(KUEUE_WORKLOAD, "job-demo", patch, namespace=namespace)
    live = await admin.get(KUEUE_WORKLOAD, "job-demo", namespace)
    assert (live.spec.active, live.metadata.annotations) == (False, {KUEUE_PAUSED: "true"})
