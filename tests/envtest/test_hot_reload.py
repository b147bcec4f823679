"""A job that takes up new code while it runs, on the real control plane: the companion stays and is replaced."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from jobs import Place, a_job
from operators import background_operator
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import JOB, POD, SERVICE
from torchctl.api.labels import JOB_NAME, ROLE, ROLE_WORKER
from torchctl.api.phases import Phase
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.errors import Invalid
from torchctl.testing.kubelet import Play, ScriptedKubelet
from torchctl.testing.namespaces import NAMESPACE, create_namespace, fresh_name
from torchctl.testing.nodekinds import Pod
from torchctl.testing.script import Part, default_play, inside

FIRST, SECOND, THIRD = (f"sha256:{digit * 64}" for digit in "123")


def played(pod: Pod) -> Play:
    """Workers run until they are told to end. A companion says what the claim has: the first one an upload, a later
    one what was sent meanwhile; the first is not ready, as if workers ran older code."""
    if pod.metadata.labels.get(ROLE) == ROLE_WORKER:
        return Play(run_s=None)
    first = pod.metadata.name.endswith("-sync-0")
    said = f'{{"revision":"{FIRST if first else SECOND}","digest":"{FIRST if first else SECOND}","files":3}}'
    parts = {"serve": Part(run_s=None, ready=not first)}
    return replace(default_play(pod), messages={"fetch": said}, parts=parts)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(operator_account: Connection, admin: Client, kubelet: ScriptedKubelet) -> AsyncGenerator[Place]:
    namespace = fresh_name("reload")
    before = kubelet.script
    kubelet.script = before.when(inside(namespace), played)
    await create_namespace(admin, namespace)
    here = Place(admin, namespace)
    await here.queue()
    async with background_operator(operator_account, namespace):
        yield here
    kubelet.script = before
    await admin.delete(NAMESPACE, namespace)


async def workers(place: Place, name: str) -> dict[str, str]:
    """The uids of a job's worker pods, by name."""
    labels = f"{JOB_NAME}={name},{ROLE}={ROLE_WORKER}"
    return {
        p.metadata.name: p.metadata.uid for p in await place.admin.list(POD, namespace=place.namespace, labels=labels)
    }


async def send(place: Place, name: str, revision: str) -> None:
    body = {"spec": {"volumes": {"workspace": {"revision": revision}}}}
    await place.admin.merge_patch(TORCHRUN_JOB, name, body, namespace=place.namespace)


@pytest.mark.proves(
    "TorchrunJob.spec.hotReload",
    "TorchrunJob.spec.volumes.workspace.revision",
    "TorchrunJob.status.workspace.sentTime",
)
async def test_new_code_reaches_running_workers_and_outlives_the_companion(
    place: Place, kubelet: ScriptedKubelet
) -> None:
    """The same pods all the time, and no incident, whatever happens to the companion."""
    await place.job("hot", hotReload="Restart", volumes={"workspace": {"source": "zip"}})
    await place.reaches(Phase.RUNNING, "hot")
    there = await workers(place, "hot")
    await send(place, "hot", SECOND)
    found = await place.condition("WorkspaceReady", "Reloading", "hot")
    assert (found.status, f"not every worker runs revision {SECOND} yet" in found.message) == ("True", True)
    await place.admin.delete(POD, "hot-sync-0", namespace=place.namespace)
    found = await place.condition("WorkspaceReady", "WorkspaceReady", "hot")
    assert found.message == f"pod hot-sync-1 has brought the workspace at {SECOND}"
    job = await place.admin.get(TORCHRUN_JOB, "hot", place.namespace)
    assert job.status.workspace is not None
    assert (job.status.workspace.requested, job.status.workspace.revision) == (SECOND, SECOND)
    assert job.status.workspace.sent_time is not None
    companion = await place.admin.get_raw(POD, "hot-sync-1", place.namespace)
    assert companion["spec"]["initContainers"][0]["args"][0] == "receive"
    assert companion["spec"]["containers"][0]["args"][0] == "companion"
    assert (await place.admin.get(SERVICE, "hot-workspace", place.namespace)).spec["publishNotReadyAddresses"] is True
    trainer = (await place.admin.get(JOB, "hot", place.namespace)).spec["template"]["spec"]["containers"][0]
    assert trainer["command"][:2] == ["python3", "/torchrun-launcher/launcher.py"]
    await send(place, "hot", THIRD)

    async def runs_the_third() -> bool:
        now = (await place.admin.get(TORCHRUN_JOB, "hot", place.namespace)).status.workspace
        return now is not None and now.revision == THIRD

    await until(runs_the_third)
    assert await workers(place, "hot") == there
    for name in there:
        kubelet.end(place.namespace, name)
    job = await place.reaches(Phase.SUCCEEDED, "hot")
    assert (job.status.attempt, job.status.restarts.total) == (0, 0)
    await place.gone(POD, "hot-sync-1")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"launcher": "none"}, "hotReload needs launcher torchrun"),
        ({"volumes": {"workspace": {"source": "existing", "claimName": "c"}}}, "does not go with source existing"),
        ({"volumes": {"workspace": {"subPath": "a"}}}, "does not go with volumes.workspace.subPath"),
        ({"hotReload": "On"}, "spec.hotReload"),
    ],
)
async def test_what_cannot_be_reloaded_is_refused(place: Place, spec: dict[str, Any], says: str) -> None:
    with pytest.raises(Invalid, match=says):
        await place.admin.create(TORCHRUN_JOB, a_job(place.namespace, "refused", **({"hotReload": "Restart"} | spec)))


async def test_it_is_chosen_when_the_job_is_made(place: Place) -> None:
    await place.job("late", suspend=True)
    with pytest.raises(Invalid, match="hotReload is immutable"):
        await place.admin.merge_patch(
            TORCHRUN_JOB, "late", {"spec": {"hotReload": "Restart"}}, namespace=place.namespace
        )
