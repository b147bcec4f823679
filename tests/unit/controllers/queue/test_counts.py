"""What a queue says of its jobs, after whatever happened to them: the controller at work in virtual time."""

from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import anyio
import msgspec
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from torchctl.api.job import TORCHRUN_JOB, JobSpec, JobStatus, TorchrunJob
from torchctl.api.phases import TERMINAL, Phase
from torchctl.api.queue import TORCHRUN_QUEUE, QueueSpec, QueueStatus, TorchrunQueue
from torchctl.controllers.queue.reconciler import setup
from torchctl.controllers.settings import OperatorSettings
from torchctl.runtime.cache.barrier import Barrier
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.controller import Controller
from torchctl.runtime.kinds import ObjectMeta
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.runner import Runner
from torchctl.runtime.watch.events import Applied, Init, InitDone, Removed
from torchctl.testing import virtualtime

PERIOD_S = 1.0
QUEUES = ("one", "two")


@dataclass
class Team:
    """A namespace with two queues, and jobs that come, change and go; the API server takes every status."""

    version: int = 0
    jobs: dict[str, TorchrunJob] = field(default_factory=dict)
    written: Counter[str] = field(default_factory=Counter)
    status: dict[str, QueueStatus] = field(default_factory=dict)

    def __post_init__(self) -> None:
        clock, metrics = virtualtime.VirtualClock(), Metrics(CollectorRegistry(), process=False)
        self.cache = Cache(None, metrics=metrics, clock=clock)  # type: ignore[arg-type]  # it takes no requests
        controllers: list[Controller] = []
        events = SimpleNamespace(event=lambda *said: None)
        manager: Any = SimpleNamespace(
            cache=self.cache, client=self, events=events, clock=clock, applier=None, add=controllers.append
        )
        setup(manager, OperatorSettings(image="torchctl:test", queue_status_period_s=PERIOD_S))
        for source in controllers[0].sources:
            self.cache.register(source.kind, labels=source.labels, optional=source.optional)
        barrier = Barrier(self.cache, clock=clock, timeout_s=5.0)
        self.runner = Runner(
            controllers[0], cache=self.cache, barrier=barrier, metrics=metrics.for_controller("c"), clock=clock
        )

    async def begin(self) -> None:
        for informer in self.cache.all():
            await informer.feed(Init())
            await informer.feed(InitDone("1"))
        for name in QUEUES:
            await self._queue(name)

    async def _queue(self, name: str) -> None:
        meta = ObjectMeta(name=name, namespace="team", uid=f"uid-{name}", resource_version=self._next())
        queue = TorchrunQueue(meta, QueueSpec(), self.status.get(name, QueueStatus()))
        await self.cache.informer(TORCHRUN_QUEUE).feed(Applied(queue))

    async def apply(self, kind: Any, body: Any, **options: Any) -> None:
        """The write of a status."""
        name = body["metadata"]["name"]
        self.written[name] += 1
        self.status[name] = msgspec.convert(body["status"], QueueStatus)
        await self._queue(name)

    async def job(self, name: str, queue: str, phase: str, gpus: int) -> None:
        spec = JobSpec.model_validate({"jobQueue": queue, "numNodes": 1, "command": "true"})
        meta = ObjectMeta(name=name, namespace="team", uid=f"uid-{name}", resource_version=self._next())
        self.jobs[name] = TorchrunJob(meta, spec, JobStatus(phase=phase, gpus=gpus))
        await self.cache.informer(TORCHRUN_JOB).feed(Applied(self.jobs[name]))

    async def gone(self, name: str) -> None:
        job = self.jobs.pop(name, None)
        if job is not None:
            await self.cache.informer(TORCHRUN_JOB).feed(Removed(job))

    def _next(self) -> str:
        self.version += 1
        return str(self.version)

    def recount(self, queue: str) -> tuple[dict[str, int], int, int]:
        """By a person: one after the other, each phase under its own name."""
        counts: dict[str, int] = {}
        requested = running = 0
        for job in self.jobs.values():
            if job.spec.job_queue != queue:
                continue
            phase = job.status.phase.lower() or "pending"
            phase = "running" if phase in ("starting", "restarting") else phase
            counts[phase] = counts.get(phase, 0) + 1
            if job.status.phase not in (*TERMINAL, "Suspended"):
                requested += job.status.gpus
            if job.status.phase == "Running":
                running += job.status.gpus
        return counts, requested, running


HAPPENING = st.one_of(
    st.tuples(
        st.just("job"),
        st.sampled_from("abcdef"),
        st.sampled_from(QUEUES),
        st.sampled_from(["", *Phase]),
        st.integers(0, 8),
    ),
    st.tuples(st.just("gone"), st.sampled_from("abcdef")),
    st.tuples(st.just("later"), st.sampled_from([0.01, 0.4, 3.0])),
)


@given(happenings=st.lists(HAPPENING, max_size=40))
@settings(max_examples=examples(60))
def test_counts_equal_a_recount_with_one_write_a_period(happenings: Any) -> None:
    """Whatever happens to the jobs, the counts follow soon, with at most one write a period."""

    async def main() -> None:
        team, changes = Team(), 0
        await team.begin()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(team.runner.run)
            await anyio.sleep(5)
            begun = team.written.copy()
            started = anyio.current_time()
            for what, *how in happenings:
                match what:
                    case "job":
                        await team.job(*how)
                        changes += 1
                    case "gone":
                        await team.gone(*how)
                    case "later":
                        await anyio.sleep(*how)
            await anyio.sleep(2 * PERIOD_S)
            for name in QUEUES:
                status = team.status[name]
                counts = {key: count for key, count in msgspec.to_builtins(status.jobs).items() if count}
                assert (counts, status.gpus.requested, status.gpus.running) == team.recount(name)
                assert team.written[name] - begun[name] <= 1 + (anyio.current_time() - started) / PERIOD_S
            settled = team.written.copy()
            await anyio.sleep(60)
            assert team.written == settled, "at rest nothing is written"
            team.runner.close()

    virtualtime.run(main)


def test_a_job_recreated_elsewhere_counts_in_one_queue() -> None:
    """A job that is deleted and made again under its name in another queue is counted in that one only."""

    async def main() -> None:
        team = Team()
        await team.begin()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(team.runner.run)
            await team.job("a", "one", Phase.RUNNING, 8)
            await anyio.sleep(3)
            await team.job("a", "two", Phase.RUNNING, 8)
            await anyio.sleep(3)
            assert [team.status[name].jobs.running for name in QUEUES] == [0, 1]
            team.runner.close()

    virtualtime.run(main)
