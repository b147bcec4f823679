"""What can become of a job, from its creation until nothing more follows: each flow as its user goes through it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from bench.cluster import NAMESPACE, Cluster, job_body
from torchctl.api.job import TORCHRUN_JOB, JobStatus
from torchctl.api.kube import POD
from torchctl.api.labels import ATTEMPT, JOB_NAME, ROLE, ROLE_WORKER
from torchctl.api.phases import Phase
from torchctl.runtime.client.errors import NotFound
from torchctl.testing.kubelet import ScriptedKubelet
from torchctl.testing.nodekinds import Pod
from torchctl.testing.script import Play, Script

__all__ = ["FLOWS", "SCRIPT", "Flow"]

PERIOD_S = 0.05
DEADLINE_S = 300.0
INDEX = "batch.kubernetes.io/job-completion-index"
FOR_EVER = Play(run_s=None)

Step = Callable[["Walk"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Walk:
    """One job on its way."""

    server: Cluster
    kubelet: ScriptedKubelet
    name: str

    async def until(self, reached: Callable[[JobStatus], bool]) -> None:
        """Raises SystemExit where the job fails on its way."""
        with anyio.fail_after(DEADLINE_S):
            while not reached(status := (await self.server.admin.get(TORCHRUN_JOB, self.name, NAMESPACE)).status):
                if status.phase == Phase.FAILED:
                    raise SystemExit(f"{self.name} failed: {status.failure}")
                await anyio.sleep(PERIOD_S)

    async def edit(self, **spec: Any) -> None:
        await self.server.admin.merge_patch(TORCHRUN_JOB, self.name, {"spec": spec}, namespace=NAMESPACE)

    async def delete(self) -> None:
        await self.server.admin.delete(TORCHRUN_JOB, self.name, namespace=NAMESPACE)

    async def end_first_worker(self) -> None:
        found = await self.server.admin.list(POD, namespace=NAMESPACE, labels=f"{JOB_NAME}={self.name}")
        first = next(pod for pod in found if pod.metadata.name.startswith(f"{self.name}-0-"))
        self.kubelet.end(NAMESPACE, first.metadata.name)

    async def gone(self) -> None:
        """Waits until nothing of the job is left that others could mind: its pods go last."""
        with anyio.fail_after(DEADLINE_S):
            while await self._is_there():  # noqa: ASYNC110 - the other side is another program
                await anyio.sleep(PERIOD_S)

    async def _is_there(self) -> bool:
        try:
            await self.server.admin.get(TORCHRUN_JOB, self.name, NAMESPACE)
        except NotFound:
            return bool(await self.server.admin.list(POD, namespace=NAMESPACE, labels=f"{JOB_NAME}={self.name}"))
        return True


@dataclass(frozen=True, slots=True)
class Flow:
    """Args: `queue` and `spec`, the job's; `steps`, what its user waits for and does."""

    name: str
    steps: tuple[Step, ...]
    queue: str = "plain"
    nodes: int = 2
    spec: dict[str, Any] = field(default_factory=dict)

    async def walk(self, server: Cluster, kubelet: ScriptedKubelet, number: int) -> None:
        """Takes one job through the flow."""
        walk = Walk(server, kubelet, f"{self.name}-{number}")
        body: dict[str, Any] = job_body(walk.name, queue=self.queue, nodes=self.nodes)
        body["spec"] |= self.spec
        await server.admin.create(TORCHRUN_JOB, body)
        for step in self.steps:
            await step(walk)


def _phase(phase: Phase) -> Step:
    return lambda walk: walk.until(lambda status: status.phase == phase)


def _ready(nodes: int) -> Step:
    return lambda walk: walk.until(lambda status: (status.nodes.ready, status.workers.running) == (nodes, nodes))


def _edits(**spec: Any) -> Step:
    return lambda walk: walk.edit(**spec)


SUCCEEDS = _phase(Phase.SUCCEEDED)
FLOWS = (
    Flow("plain", (SUCCEEDS,)),
    Flow("git", (SUCCEEDS,), queue="code"),
    Flow("restart", (SUCCEEDS,)),
    Flow(
        "suspend",
        (_phase(Phase.RUNNING), _edits(suspend=True), _phase(Phase.SUSPENDED), _edits(suspend=False), SUCCEEDS),
    ),
    Flow(
        "elastic",
        (_ready(1), _edits(numNodes=3), _ready(3), _edits(numNodes=1), _ready(1), Walk.end_first_worker, SUCCEEDS),
        nodes=1,
        spec={"elastic": {"minNodes": 1, "maxNodes": 3}},
    ),
    Flow("deletion", (_phase(Phase.RUNNING), Walk.delete, Walk.gone)),
    Flow("ttl", (Walk.gone,), spec={"runPolicy": {"ttlSecondsAfterFinished": 1}}),
)


def _plays(pod: Pod) -> Play:
    """In the flows in which something happens to running workers, they run until it does."""
    labels = pod.metadata.labels
    flow, first, index = labels[JOB_NAME].rpartition("-")[0], labels[ATTEMPT] == "0", labels[INDEX]
    if flow == "restart" and first and index == "1":
        return Play(exit_code=1)
    stays = flow in ("elastic", "deletion") or (flow in ("restart", "suspend") and first)
    return FOR_EVER if stays else Play()


SCRIPT = Script().when(lambda pod: pod.metadata.labels.get(ROLE) == ROLE_WORKER, _plays)
