"""`kubectl torchrun` is killed at any of its requests; the same line again ends as it would have ended at once."""

import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from clusters import clear
from errands import Gated, Person, SyncPods, digest_of, report_of
from forks import Forks
from gates import Gate, Step, each, gate, sample, steps_of
from jobs import Place
from operators import running_operator
from receivers import contents
from snapshots import READINESS, differences, read_namespace, snapshot_of
from waiting import until

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import POD, PVC
from torchctl.api.labels import ROLE, ROLE_WORKER
from torchctl.api.phases import Phase
from torchctl.cli.exits import Exit
from torchctl.client.submit import SUBMISSION
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.transport import AiohttpTransport
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import Part, Play, ScriptedKubelet
from torchctl.testing.namespaces import create_namespace, fresh_name
from torchctl.testing.nodekinds import Pod
from torchctl.testing.proxy import FaultProxy
from torchctl.testing.script import inside
from torchctl.workspace.marker import Marker, write_marker

OF_EACH = os.environ.get("TORCHCTL_SWEEP", "1")
"""So many requests of each line are swept, or `all` (`make sweep`)."""
WHOLE = OF_EACH == "all"
AT_ONCE = 6
POLLS = 2
KILLED = -9
STILL_S = 1.0
MISSED = 0.3
"""Share of the requests that need not come again: it is a matter of time how often a job is looked at."""
FIRST = "sha256:01a88ad4cb5a"
"""The revision of `project`."""
MASKED = READINESS | {f"metadata.annotations.{SUBMISSION}"}


@dataclass
class Scene:
    """A namespace with a queue and an operator, somebody's directory, and pods that are played."""

    place: Place
    person: Person
    pods: SyncPods
    transport: AiohttpTransport

    async def job(self) -> dict[str, Any]:
        return await self.place.admin.get_raw(TORCHRUN_JOB, "job", self.place.namespace)


@dataclass(frozen=True)
class Errand:
    """A line, what was before it, and what is there in the end."""

    line: tuple[str, ...]
    before: Callable[[Scene], Awaitable[None]]
    end: Callable[[Scene], Awaitable[dict[str, Any]]]
    workers_end: bool = False
    done: Exit = Exit.DONE
    """The status of the line if its work is done already."""


async def nothing(scene: Scene) -> None:
    """There is only the queue."""


async def whole_namespace(scene: Scene) -> dict[str, Any]:
    await scene.place.reaches(Phase.SUCCEEDED)
    pages = await read_namespace(scene.transport, scene.place.namespace)
    snapshot = snapshot_of(pages, scene.place.namespace, {}, MASKED)
    return {"claim": {name: str(content) for name, content in contents(scene.pods.claim("job")).items()}, **snapshot}


async def runs_older_code(scene: Scene) -> None:
    """A job runs that takes up new code."""
    claim = scene.pods.claim("job")
    (claim / "train.py").write_text("print(1)\n")
    revision = await digest_of(claim)
    write_marker(claim, Marker(revision=revision, digest=revision, bytes=9, files=1, source="zip"))
    await scene.place.job(numNodes=1, hotReload="Restart", volumes={"workspace": {"source": "zip"}})
    await scene.place.reaches(Phase.RUNNING)


async def newer_code(scene: Scene) -> dict[str, Any]:
    job = await scene.job()
    claim = scene.pods.claim("job")
    return {
        "spec": job["spec"],
        "annotations": job["metadata"]["annotations"],
        "claim": {name: str(content) for name, content in contents(claim).items()},
        "worker": {name: str(content) for name, content in contents(scene.pods.worker("job")).items()},
        "left": [str(path) for path in (claim / ".torchctl-staging").rglob("*")],
    }


async def runs(scene: Scene) -> None:
    """A job runs."""
    await scene.place.job(numNodes=1)
    await scene.place.reaches(Phase.RUNNING)


async def runs_again(scene: Scene) -> dict[str, Any]:
    """Another attempt runs; a line that is repeated once it has done its work makes one more."""

    async def another() -> dict[str, Any] | None:
        job = await scene.job()
        return job if job["status"]["phase"] == "Running" and job["status"]["attempt"] else None

    job = await until(another)
    assert job is not None
    labels = f"{ROLE}={ROLE_WORKER}"
    pods = await scene.place.admin.list(POD, namespace=scene.place.namespace, labels=labels)
    alive = [pod for pod in pods if pod.metadata.deletion_timestamp is None and pod.status.phase == "Running"]
    annotations = job["metadata"].get("annotations", {})
    return {"spec": job["spec"], "restarts": job["status"]["restarts"], "alive": len(alive), "notes": annotations}


async def runs_newer_code(scene: Scene) -> None:
    """A job runs, to which code was sent twice."""
    await runs_older_code(scene)
    newer = scene.person.scratch / "newer"
    shutil.copytree(scene.person.directory, newer)
    (newer / "train.py").write_text("print(3)\n")
    for directory in (scene.person.directory, newer):
        scene.person.directory = directory
        sent = await scene.person.begins("sync", "job")
        assert await sent.wait() == 0, sent.said


async def ended_with_checkpoints(scene: Scene) -> None:
    """A job has ended, whose checkpoints outlive it."""
    await scene.place.job(numNodes=1, volumes={"checkpoints": {"size": "1Gi"}})
    await scene.place.reaches(Phase.SUCCEEDED)


async def what_is_left(scene: Scene) -> dict[str, Any]:
    await scene.place.gone(TORCHRUN_JOB, "job")
    await scene.place.gone(PVC, "job-checkpoints")
    pages = await read_namespace(scene.transport, scene.place.namespace)
    return dict(snapshot_of(pages, scene.place.namespace, {}, MASKED))


ERRANDS = {
    "submit": Errand(
        ("submit", "--queue", "queue", "--nodes", "1", "--name", "job", "python train.py"),
        nothing,
        whole_namespace,
        workers_end=True,
    ),
    "sync": Errand(("sync", "job"), runs_older_code, newer_code),
    "restart": Errand(("restart", "job"), runs, runs_again),
    "rollback": Errand(("rollback", "job", "--to", FIRST), runs_newer_code, newer_code),
    "delete": Errand(
        ("delete", "job", "--checkpoints"), ended_with_checkpoints, what_is_left, workers_end=True, done=Exit.NOT_FOUND
    ),
}


@dataclass
class Telling:
    """What became of one errand."""

    at: Step | None
    seen: Counter[str] = field(default_factory=Counter)
    was_killed: bool = False
    statuses: list[int] = field(default_factory=list)
    said: str = ""
    end: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Somebody's directory."""
    found = tmp_path / "project"
    (found / "data").mkdir(parents=True)
    (found / "train.py").write_text("print(2)\n")
    (found / "data" / "large").write_bytes(b"0123456789" * 30_000)
    return found


@dataclass
class Stage:
    """All that tellings share."""

    admin: Client
    transport: AiohttpTransport
    kubelet: ScriptedKubelet
    starts: Forks
    operator: Connection
    control_plane: ControlPlane
    project: Path
    scratch: Path
    said: str

    @asynccontextmanager
    async def scene(self, namespace: str, guard: Gate, *, workers_end: bool) -> AsyncIterator[Scene]:
        """A namespace of its own; its sync pods run until their process ends."""
        scratch = self.scratch / namespace
        scratch.mkdir()
        place, before = Place(self.admin, namespace), self.kubelet.script
        self.kubelet.script = before.when(inside(namespace), partial(self._played, workers_end))
        await create_namespace(self.admin, namespace)
        await place.queue()
        async with AsyncExitStack() as stack:
            proxy = await stack.enter_async_context(FaultProxy(self.control_plane.connection()))
            proxy.add(Gated(guard, namespace))
            kubeconfig = await proxy.kubeconfig(self.control_plane.connection())
            await stack.enter_async_context(running_operator(self.operator, namespace))
            pods = SyncPods(place, self.kubelet, self.starts, scratch, guard)
            await stack.enter_async_context(pods.played())
            person = Person(self.starts, kubeconfig, namespace, self.project, scratch)
            yield Scene(place, person, pods, self.transport)
        await clear(self.admin, namespace)

    def _played(self, workers_end: bool, pod: Pod) -> Play:
        if "-sync-" not in pod.metadata.name:
            return Play(run_s=0.1 if workers_end else None)
        return Play(run_s=None, messages={"fetch": self.said}, parts={"serve": Part(run_s=None)})


@pytest.fixture
async def stage(
    admin: Client,
    transport: AiohttpTransport,
    kubelet: ScriptedKubelet,
    starts: Forks,
    operator_account: Connection,
    control_plane: ControlPlane,
    project: Path,
    tmp_path: Path,
    own_script: None,
) -> Stage:
    said = await report_of(project)
    assert FIRST in said
    return Stage(admin, transport, kubelet, starts, operator_account, control_plane, project, tmp_path, said)


async def tell(stage: Stage, errand: Errand, at: Step | None, normal: Telling | None = None) -> Telling:
    """Sends somebody on an errand, and again with the same line if the plugin was killed."""
    found, namespace = Telling(at), fresh_name("killed")
    async with gate() as guard, stage.scene(namespace, guard, workers_end=errand.workers_end) as scene:
        try:
            await errand.before(scene)
            guard.seen.clear()
            guard.at = at
            first = await scene.person.begins(*errand.line)
            guard.kill = first.kill
            found.statuses.append(await first.wait())
            found.seen, found.was_killed = Counter(guard.seen), guard.reached.is_set()
            if at is not None:
                again = await scene.person.begins(*errand.line)
                found.statuses.append(await again.wait())
            found.said = "\n".join(run.said for run in scene.person.runs)
            if normal is None:
                found.end = await quiet(scene, errand)
            else:
                found.problems += await settled(scene, errand, normal.end)
        except AssertionError as error:
            found.problems.append(str(error))
    if found.statuses[:1] != [KILLED if found.was_killed else 0] or not {*found.statuses[1:]} <= {0, errand.done}:
        found.problems.append(f"exit statuses {found.statuses}")
    found.problems = [f"{at}: {problem}\n{found.said}" for problem in found.problems]
    return found


async def quiet(scene: Scene, errand: Errand) -> dict[str, Any]:
    """What is there once nothing changes any more."""
    before: dict[str, Any] = {}
    while (now := await errand.end(scene)) != before:
        before = now
        await anyio.sleep(STILL_S)
    return now


async def settled(scene: Scene, errand: Errand, wanted: dict[str, Any]) -> list[str]:
    """The differences that stay."""
    left: list[str] = ["nobody has looked"]

    async def same() -> bool:
        left[:] = differences(wanted, await errand.end(scene))
        return not left

    try:
        await until(same, timeout_s=20)
    except AssertionError:
        return left
    return []


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ERRANDS)
async def test_same_line_again_takes_over_from_a_killed_one(
    stage: Stage, name: str, report: Callable[[str], None]
) -> None:
    errand = ERRANDS[name]
    normal = await tell(stage, errand, None)
    assert normal.problems == []
    steps = steps_of([normal.seen], POLLS)
    chosen = steps if WHOLE else sample(steps, int(OF_EACH), list(ERRANDS).index(name))

    async def swept(at: Step) -> Telling:
        return await tell(stage, errand, at, normal)

    tellings = await each(chosen, swept, at_once=AT_ONCE)
    wrong = [problem for telling in tellings for problem in telling.problems]
    missed = [str(telling.at) for telling in tellings if not telling.was_killed]
    rest = f"{len(wrong)} differences, {len(missed)} missed"
    report(f"plugin killed in `{name}` at {len(chosen)} of {len(steps)} steps: {rest}")
    assert wrong == []
    assert len(missed) <= MISSED * len(chosen)
