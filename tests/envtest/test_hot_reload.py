"""A job that takes up new code while it runs, on the real control plane: the companion stays and is replaced."""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio
from clusters import clear
from jobs import Place, a_job
from operators import background_operator
from receivers import plant
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import JOB, POD, SERVICE
from torchctl.api.labels import FILES_ONLY, JOB_NAME, ROLE, ROLE_WORKER
from torchctl.api.names import SERVE_PORT, UPLOAD_PORT
from torchctl.api.phases import Phase
from torchctl.client.cluster import Cluster
from torchctl.client.code import DirectoryCode, read_code
from torchctl.client.delivery import Silent
from torchctl.client.errors import RequestRefused, TimedOut, UsageError
from torchctl.client.handles import JobHandle
from torchctl.client.jobs import get_job
from torchctl.client.receiving import Receiver
from torchctl.client.rollback import rollback
from torchctl.client.sync import sync
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.errors import Invalid
from torchctl.runtime.kinds import Key
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import Play, ScriptedKubelet
from torchctl.testing.namespaces import create_namespace, fresh_name
from torchctl.testing.nodekinds import Pod
from torchctl.testing.script import Part, default_play, inside
from torchctl.workspace.companion import Companion
from torchctl.workspace.companionserver import Uploads, application, receiving
from torchctl.workspace.core import Limits
from torchctl.workspace.membership.core import Settings, Target
from torchctl.workspace.membership.messages import Report, State, Trouble
from torchctl.workspace.serve import running
from torchctl.workspace.wanted import read_target

FIRST, SECOND, THIRD = (f"sha256:{digit * 64}" for digit in "123")


def played(pod: Pod) -> Play:
    """Workers run until they are told to end. A companion says what the claim has: the first one an upload, a later
    one what was sent meanwhile; the first is not ready, as if workers ran older code, unless only files may change."""
    if pod.metadata.labels.get(ROLE) == ROLE_WORKER:
        return Play(run_s=None)
    first = pod.metadata.name.endswith("-sync-0")
    said = f'{{"revision":"{FIRST if first else SECOND}","digest":"{FIRST if first else SECOND}","files":3}}'
    parts = {"serve": Part(run_s=None, ready=not first or pod.metadata.name.startswith("files"))}
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
    await clear(admin, namespace)


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
    service = await place.admin.get_raw(SERVICE, "hot-workspace", place.namespace)
    assert service["spec"]["publishNotReadyAddresses"] is True
    trainer = (await place.admin.get_raw(JOB, "hot", place.namespace))["spec"]["template"]["spec"]["containers"][0]
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


# A person and a real companion.


@dataclass
class Worker:
    """The launcher of worker 0, as the companion hears of it: it takes whatever is wanted, unless it is stuck."""

    companion: Companion
    stuck: bool = False
    runs: str = ""
    seq: int = 0

    async def live(self) -> None:
        while True:
            target = self.companion.membership.target
            if target is not None and not self.stuck:
                self.runs = target.revision if target.restart or not self.runs else self.runs
                self.speak(target.revision)
            await anyio.sleep(0.02)

    def speak(self, revision: str, trouble: Trouble | None = None) -> None:
        self.seq += 1
        said = Report(
            index=0,
            incarnation="a",
            started=1,
            attempt=0,
            seq=self.seq,
            state=State.RUNNING,
            nodes=1,
            least=1,
            address="127.0.0.1",
            port=29500,
            revision=revision,
            runs=self.runs,
            trouble=trouble,
        )
        self.companion.membership.heard(said, time.monotonic())


@asynccontextmanager
async def accompanied(
    place: Place, kubelet: ScriptedKubelet, name: str, root: Path, **spec: Any
) -> AsyncGenerator[Worker]:
    """A job that runs, whose companion is a real one in this process, with one worker."""
    await place.job(
        name, **{"hotReload": "Restart", "numNodes": 1, "volumes": {"workspace": {"source": "zip"}}, **spec}
    )
    await place.reaches(Phase.RUNNING, name)
    key = Key(place.namespace, f"{name}-sync-0")
    job = await place.admin.get(TORCHRUN_JOB, name, place.namespace)
    pod = await place.admin.get(POD, key.name, place.namespace)
    made = Companion(partial(read_target, root), time.monotonic, Settings(learn_s=0))
    worker, app = Worker(made), application(root, made, limits=Limits(), key=job.metadata.uid)
    in_place = spec.get("hotReload") == "Files"
    uploads = Uploads(port=0, token=pod.metadata.uid, cache_bytes=2**20, in_place=in_place)
    async with (
        running(app, host="127.0.0.1", port=0) as port,
        receiving(root, made, uploads, Limits()) as upload_port,
        anyio.create_task_group() as tasks,
    ):
        kubelet.ports.open |= {(key, SERVE_PORT): port, (key, UPLOAD_PORT): upload_port}
        if not in_place:  # else no launcher reports
            tasks.start_soon(worker.live)
        yield worker
        tasks.cancel_scope.cancel()


@dataclass
class Overtaken:
    """Code whose sender is overtaken: somebody else sends other code before it has written what it sent."""

    code: DirectoryCode
    other: DirectoryCode
    job: JobHandle

    def __post_init__(self) -> None:
        self.digest = self.code.digest

    async def send(self, receiver: Receiver) -> None:
        await self.code.send(receiver)
        await sync(JobHandle.of(self.job), self.other, Silent())


class Died(Exception):
    """The end of somebody who sends code."""


@dataclass
class Killed:
    """Code whose sender dies as soon as the job has it."""

    code: DirectoryCode

    def __post_init__(self) -> None:
        self.digest = self.code.digest

    async def send(self, receiver: Receiver) -> None:
        await self.code.send(receiver)
        raise Died


async def test_people_sync_with_and_without_a_restart(
    place: Place, kubelet: ScriptedKubelet, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Also two at once, with a worker that is stuck, and back again: spec and conditions follow what the claim has."""
    cluster, code = Cluster(place.admin, control_plane.connection(), place.namespace, "the admin"), tmp_path / "code"

    async def read(text: str) -> DirectoryCode:
        return await read_code(cluster, place.namespace, plant(code, {"train.py": text.encode()}))

    async with accompanied(place, kubelet, "synced", plant(tmp_path / "claim", {})) as worker:
        job = JobHandle.of(await get_job(cluster, Key(place.namespace, "synced")))

        async def has(digest: str, *, restart: bool) -> bool:
            there = await place.admin.get(TORCHRUN_JOB, "synced", place.namespace)
            assert there.spec.volumes.workspace is not None
            noted = there.metadata.annotations.get(FILES_ONLY)
            assert (there.spec.volumes.workspace.revision, noted) == (digest, None if restart else digest)
            return read_target(tmp_path / "claim") == Target(digest, restart)

        first, second, third = [await read(text) for text in ("one", "two", "three")]
        with pytest.raises(Died):
            await sync(job, Killed(await read("one")), Silent())
        assert read_target(tmp_path / "claim") == Target(first.digest)
        assert (await job.sync(code)).workers == 1  # whoever died before spec was written can do it again
        assert await has(first.digest, restart=True)
        await read("two")
        assert (await job.sync(code, restart=False)).revision == second.digest
        assert await has(second.digest, restart=False)
        assert worker.runs == first.digest
        found = await place.condition("WorkspaceReady", "Reloading", "synced")
        assert found.status == "True"
        worker.stuck = True
        worker.speak(second.digest, Trouble(third.digest, "disk full"))
        await read("three")
        with pytest.raises(TimedOut, match=r"some workers do not have the new code: worker 0 \(disk full\)"):
            await job.sync(code, timeout_s=1)

        async def is_named() -> bool:
            seen = await place.condition("WorkspaceReady", "Reloading", "synced")
            return f"revision {third.digest} yet: worker 0 (disk full) when `sync` looked last" in seen.message

        await until(is_named)
        worker.stuck = False
        back = await rollback(job, Silent(), to=first.digest)
        assert (back.revision, back.workers) == (first.digest, 1)
        assert await has(first.digest, restart=True)
        await read("two")
        mine = await read_code(cluster, place.namespace, code)
        await read("three")
        with pytest.raises(RequestRefused, match=rf"has other code by now \({third.digest}\)"):
            await sync(job, Overtaken(mine, third, job), Silent())
        assert await has(third.digest, restart=True)
    for name in await workers(place, "synced"):
        kubelet.end(place.namespace, name)
    await place.reaches(Phase.SUCCEEDED, "synced")
    with pytest.raises(UsageError, match="has ended"):
        await job.sync(code)


@pytest.mark.proves("TorchrunJob.spec.hotReload")
async def test_files_change_on_a_claim_that_workers_mount(
    place: Place, kubelet: ScriptedKubelet, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Distribution shared: no launcher, no restart, and what a program made is its own. A restart is refused."""
    cluster, code = Cluster(place.admin, control_plane.connection(), place.namespace, "the admin"), tmp_path / "code"
    storage = {"workspace": {"accessModes": ["ReadWriteMany"], "distribution": "shared"}}
    await place.queue("mounted", storage=storage)
    claim, spec = plant(tmp_path / "claim", {}), {"jobQueue": "mounted", "launcher": "none", "hotReload": "Files"}
    async with accompanied(place, kubelet, "files", claim, **spec):
        job = JobHandle.of(await get_job(cluster, Key(place.namespace, "files")))
        there = await workers(place, "files")
        pod = (await place.admin.get_raw(JOB, "files", place.namespace))["spec"]["template"]["spec"]
        mounted = [
            one["persistentVolumeClaim"]["claimName"] for one in pod["volumes"] if "persistentVolumeClaim" in one
        ]
        assert (mounted, "initContainers" in pod) == (["files-workspace"], False)

        async def sends(text: str) -> str:
            plant(code, {"train.py": text.encode()})
            done = await job.sync(code, restart=False)
            assert done.shared
            return done.revision

        async def has(revision: str) -> bool:
            now = (await place.admin.get(TORCHRUN_JOB, "files", place.namespace)).status.workspace
            return now is not None and (now.requested, now.revision) == (revision, revision)

        first = await sends("one")
        plant(claim, {"out": b"mine"})
        second = await sends("two")
        await until(lambda: has(second))
        assert ((claim / "train.py").read_bytes(), (claim / "out").read_bytes()) == (b"two", b"mine")
        found = await place.condition("WorkspaceReady", "WorkspaceReady", "files")
        assert found.message.endswith("go on with what they had loaded (sync --no-restart)")
        for restarting in (job.sync(code), rollback(job, Silent())):
            with pytest.raises(UsageError, match=r"share one tree.*Add --no-restart"):
                await restarting
        assert (await rollback(job, Silent(), restart=False)).revision == first
        await until(lambda: has(first))
        assert ((claim / "train.py").read_bytes(), (claim / "out").read_bytes()) == (b"one", b"mine")
        assert await workers(place, "files") == there
    for name in there:
        kubelet.end(place.namespace, name)
    job_ended = await place.reaches(Phase.SUCCEEDED, "files")
    assert (job_ended.status.attempt, job_ended.status.restarts.total) == (0, 0)
