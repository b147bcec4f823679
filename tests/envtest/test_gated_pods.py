"""Pods of a job that somebody else holds by a scheduling gate: the job says which gate, and goes on once it is gone."""

import functools
import json
from collections.abc import AsyncGenerator

import pytest_asyncio
from clusters import clear
from jobs import Place
from mutating import mutating_policy
from operators import background_operator
from waiting import until

from torchctl.api.kube import JOB, POD
from torchctl.api.phases import Phase
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import ScriptedKubelet
from torchctl.testing.namespaces import create_namespace, fresh_name

GATE = "example.com/approval"
GATES = f'Object{{spec: Object.spec{{schedulingGates: [Object.spec.schedulingGates{{name: "{GATE}"}}]}}}}'
OPEN = {"spec": {"schedulingGates": None}}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(
    control_plane: ControlPlane, operator_account: Connection, admin: Client, kubelet: ScriptedKubelet
) -> AsyncGenerator[Place]:
    """A namespace in which admission puts a gate on every pod."""
    namespace = fresh_name("gated")
    await create_namespace(admin, namespace)
    policy = mutating_policy(namespace, GATES)
    await control_plane.kubectl("apply", "-f", "-", input=policy)
    await until(functools.partial(gates, control_plane, namespace))
    here = Place(admin, namespace)
    await here.queue()
    async with background_operator(operator_account, namespace):
        yield here
    await control_plane.kubectl("delete", "-f", "-", input=policy)
    await clear(admin, namespace)


async def gates(control_plane: ControlPlane, namespace: str) -> bool:
    """Whether the API server knows of the policy by now."""
    asked = ("run", "x", "--image=x", f"--namespace={namespace}", "--dry-run=server", "-ojson")
    return bool(json.loads(await control_plane.kubectl(*asked))["spec"].get("schedulingGates"))


async def test_job_names_the_gate_that_holds_a_pod(place: Place) -> None:
    """First that of its sync pod, then that of its worker; it ends well once both were let through."""
    await place.job(numNodes=1, volumes={"workspace": {"source": "git", "url": "https://git.example.com/a.git"}})
    said = await place.condition("WorkspaceReady", "SchedulingGated")
    held = f"held by scheduling gate {GATE}, which the controller of example.com removes; see what that controller says"
    assert said.message.startswith(f"pod job-sync-0: {held}")
    assert not await place.exists(JOB, "job")
    await place.admin.merge_patch(POD, "job-sync-0", OPEN, namespace=place.namespace)
    said = await place.condition("WorkersReady", "SchedulingGated")
    (worker,) = await place.admin.list(POD, namespace=place.namespace, labels="torchrun.ai/role=worker")
    assert said.message.startswith(f"pod {worker.metadata.name}: {held}")
    await place.admin.merge_patch(POD, worker.metadata.name, OPEN, namespace=place.namespace)
    await place.reaches(Phase.SUCCEEDED)
