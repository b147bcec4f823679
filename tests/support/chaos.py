"""What happens to the jobs of a mixture while they run: kills, deletions, edits, an API server that goes away.

All of it is drawn from one seed and told to a log, line by line. What the dice fall on is what is there at that moment,
so two runs of one seed are alike, and not the same.
"""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from mixture import (
    GONE,
    IN_AT_ONCE,
    URGENT,
    YIELDS,
    Deeds,
    Member,
    end_of,
    holds_place,
    is_uninvited,
    preemptions,
    wrong_with,
)
from playedkueue import admit, evict, has_ended, is_active, take_up
from replicas import Replicas
from waiting import until

from torchctl.api.capacity import BOUND, BOUND_POD, BoundPod
from torchctl.api.job import TORCHRUN_JOB, JobStatus, TorchrunJob
from torchctl.api.kube import JOB, KAI_PODGROUP, POD, SERVICE, Job
from torchctl.api.labels import JOB_NAME, KUEUE_QUEUE
from torchctl.api.names import FIELD_MANAGER
from torchctl.api.phases import Phase
from torchctl.api.volcano import VOLCANO_PODGROUP
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import ApiError, NotFound
from torchctl.runtime.kinds import Kind
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.persist import Persistence

__all__ = ["CHILDREN", "OURS", "Chaos", "Ledger"]

OURS = f"app.kubernetes.io/managed-by={FIELD_MANAGER}"
CHILDREN: dict[Kind[Any], int] = {POD: 72, SERVICE: 14, KAI_PODGROUP: 6, VOLCANO_PODGROUP: 4, JOB: 4}
"""What a person deletes, and how often of a hundred times."""

LOOK_S = 0.5
SHARE = 0.5
"""Of the moments at which somebody looks, those at which he acts."""
MOST_EVICTIONS = 5
"""Evictions of one job by Kueue at most."""
MOST_OF_ONE = 10
"""Children of one job that are deleted at most: fewer than its restarts, so that it can end."""


@dataclass(eq=False)
class Ledger:
    """What is known of each job: the last that was seen of it, and what was done to it."""

    members: dict[str, Member]
    statuses: dict[str, JobStatus] = field(default_factory=lambda: defaultdict(JobStatus))
    deeds: dict[str, Deeds] = field(default_factory=lambda: defaultdict(Deeds))
    ends: dict[str, str] = field(default_factory=dict)
    turned: list[str] = field(default_factory=list)
    most_in: Counter[str] = field(default_factory=Counter)
    """Jobs of each queue of the coordinator that had a place at the same time."""
    uninvited: set[str] = field(default_factory=set)
    """Jobs that had pods on nodes before they were let in."""
    preemptors: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """For whom places were taken back, by the job that had to leave, as far as somebody looked in time."""

    def see(self, jobs: Iterable[TorchrunJob], before: Collection[BoundPod], after: Collection[BoundPod]) -> None:
        """Takes note of all jobs that there are. One that was there and is no more is gone.

        Args:
            before: Pods that take room on nodes, read before the jobs.
            after: The same, read after them.
        """
        present = {job.metadata.name: job for job in jobs}
        self.most_in |= Counter(job.spec.job_queue for job in present.values() if holds_place(job, after))
        self.uninvited |= {name for name, job in present.items() if is_uninvited(job, before)}
        for there in present.values():
            if there.status.admission is not None and there.status.admission.preempted_for:
                self.preemptors[there.metadata.name].add(there.status.admission.preempted_for.rpartition("/")[2])
        for name in {*self.statuses, *present}:
            job = present.get(name)
            if job is not None:
                self.statuses[name] = job.status
            end = end_of(job)
            if end and (end == GONE or self.members[name].kind.end != GONE):
                self._ends(name, end)

    def _ends(self, name: str, end: str) -> None:
        known = self.ends.setdefault(name, end)
        if known != end:
            self.turned.append(f"{name} had ended as {known}, and then as {end}")

    def unfinished(self) -> list[str]:
        return [name for name in self.members if name not in self.ends]

    def wrong(self) -> list[str]:
        """What is not as it should be, now that all have ended."""
        urgent = self.urgent_starts()
        return [
            *self.turned,
            *(f"{name} had pods on nodes and was not let in" for name in sorted(self.uninvited)),
            *(
                f"{count} jobs of queue {queue} had a place at once"
                for queue, count in self.most_in.items()
                if count > IN_AT_ONCE.get(queue, count)
            ),
            *(
                f"{name} had to leave for {other}"
                for name, others in self.preemptors.items()
                for other in others
                if (self.members[name].kind, self.members[other].kind) != (YIELDS, URGENT)
            ),
            *([f"{self.preempted()} preemptions for {urgent} starts"] if self.preempted() > urgent else []),
            *(
                [f"nobody had to leave, in {urgent} starts"]
                if self._should_have_left() and not self.preempted()
                else []
            ),
            *(
                line
                for name, member in self.members.items()
                for line in wrong_with(
                    member,
                    self.ends[name],
                    self.statuses[name],
                    self.deeds[name],
                    self.ends.get(member.upstream, ""),
                    urgent,
                )
            ),
        ]

    def urgent_starts(self) -> int:
        """How often urgent jobs were let in: once in each attempt. Each time one other job has to leave at most."""
        return sum(self.statuses[name].attempt + 1 for name, member in self.members.items() if member.kind is URGENT)

    def preempted(self) -> int:
        """How often jobs that yield lost their place to an urgent one."""
        return sum(preemptions(self.statuses[name]) for name, member in self.members.items() if member.kind is YIELDS)

    def _should_have_left(self) -> bool:
        """Whether an urgent job came while one ran that yields, of which nothing had been deleted."""
        calm = [m for m in self.members.values() if m.kind is YIELDS and not self.deeds[m.name].deleted]
        return bool(calm) and self.urgent_starts() > 0

    def by_kind(self) -> dict[str, Counter[str]]:
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for name, end in self.ends.items():
            found[self.members[name].kind.name][end] += 1
        return dict(found)

    def incidents(self) -> Counter[str]:
        return sum((Counter(status.restarts.by_cause) for status in self.statuses.values()), Counter[str]())

    def deletions(self) -> Counter[str]:
        return sum((deeds.deleted for deeds in self.deeds.values()), Counter[str]())


@dataclass(eq=False)
class Chaos:
    """Acts on one namespace of a control plane until every job of the ledger has ended.

    Args:
        every_s: Seconds between two deletions, on average.
        deletions: How many there are at most: jobs must be able to end.
        kills: How many leaders are killed at most.
        kill_every_s: Seconds for which a replica leads until it is killed, on average.
        outages: Restarts of the API server, spread over the submissions.
    """

    plane: ControlPlane
    admin: Client
    namespace: str
    ledger: Ledger
    group: Replicas
    chance: random.Random
    log: Path
    submit_every_s: float
    every_s: float
    deletions: int
    kill_every_s: float
    kills: int
    outages: int
    restarted: int = 0
    _bound: tuple[BoundPod, ...] = ()
    _began: float = field(default_factory=time.monotonic)
    _persist: Persistence = field(default_factory=lambda: Persistence(8))

    async def run(self) -> None:
        """Submits the jobs and returns when they have ended."""
        await until(self.group.leads, timeout_s=120)
        self._began = time.monotonic()
        async with anyio.create_task_group() as tasks:
            for task in (self._delete_things, self._kill_leaders, self._admit_jobs):
                tasks.start_soon(task)
            tasks.start_soon(self._submit)
            while self.ledger.unfinished():
                await anyio.sleep(LOOK_S)
                await self._look()
            tasks.cancel_scope.cancel()

    def told(self, what: str) -> None:
        with self.log.open("a") as log:
            log.write(f"{time.monotonic() - self._began:8.2f} {what}\n")

    async def _submit(self) -> None:
        members = [*self.ledger.members.values()]
        gap = len(members) // (self.outages + 1)
        for number, member in enumerate(members, 1):
            await self._apply(member.body(self.namespace))
            await anyio.sleep(self.chance.uniform(0, 2 * self.submit_every_s))
            if number % gap == 0 and self.restarted < self.outages:
                await self._restart_api_server()

    async def _apply(self, body: dict[str, Any]) -> None:
        await self._persist(lambda: self.admin.apply(TORCHRUN_JOB, body, field_manager="person"))

    async def _restart_api_server(self) -> None:
        self.restarted += 1
        self.told("restarts kube-apiserver")
        await self.plane.restart("kube-apiserver")
        self.told("kube-apiserver is back")

    async def _kill_leaders(self) -> None:
        while self.group.kills < self.kills:
            await until(self.group.leads, timeout_s=300)
            await anyio.sleep(self.chance.uniform(0, 2 * self.kill_every_s))
            if await self.group.kill_leader():
                self.told("kills the leader")

    async def _delete_things(self) -> None:
        while self.ledger.deletions().total() < self.deletions:
            await anyio.sleep(self.chance.uniform(0, 2 * self.every_s))
            (kind,) = self.chance.choices([*CHILDREN], [*CHILDREN.values()])
            with suppress(ApiError):  # who meets an API server that is away looks again later
                await self._delete_one(kind)

    async def _delete_one(self, kind: Kind[Any]) -> None:
        found = await self.admin.list(kind, namespace=self.namespace, labels=OURS)
        patient = {name for name in self.ledger.unfinished() if self.ledger.deeds[name].deleted.total() < MOST_OF_ONE}
        there = sorted(
            (one for one in found if one.metadata.labels[JOB_NAME] in patient), key=lambda one: one.metadata.name
        )
        if not there:
            return
        chosen = self.chance.choice(there)
        job = chosen.metadata.labels[JOB_NAME]
        # Noted before: whether a request that was not answered was carried out nobody knows.
        deeds = self.ledger.deeds[job]
        deeds.deleted[kind.kind] += 1
        if kind is JOB:
            deeds.jobs.add(chosen.metadata.name)
        self.told(f"deletes {kind.kind} {chosen.metadata.name}")
        with suppress(NotFound):
            await self.admin.delete(kind, chosen.metadata.name, namespace=self.namespace, uid=chosen.metadata.uid)

    async def _admit_jobs(self) -> None:
        """Plays Kueue, whose manager looks at everything again and again."""
        while True:
            await anyio.sleep(LOOK_S)
            with suppress(ApiError):
                jobs = await self.admin.list(JOB, namespace=self.namespace, labels=KUEUE_QUEUE)
                going = [job for job in jobs if not has_ended(job) and not job.metadata.deletion_timestamp]
                for job in going:
                    await self._serve(job)

    async def _serve(self, job: Job) -> None:
        await take_up(self.admin, job)
        active, held = await is_active(self.admin, job), bool(job.spec.get("suspend"))
        deeds = self.ledger.deeds[job.metadata.labels[JOB_NAME]]
        if active and held:
            await admit(self.admin, job)
        elif not active and not held:
            await evict(self.admin, job, "Deactivated", "The workload is deactivated")
        elif not held and job.status.ready and deeds.evicted < MOST_EVICTIONS and self.chance.random() < SHARE:
            deeds.evicted += 1
            self.told(f"evicts {job.metadata.name}")
            await evict(self.admin, job, "Preempted", "Preempted to accommodate a workload")

    async def _look(self) -> None:
        try:
            jobs = await self.admin.list(TORCHRUN_JOB, namespace=self.namespace)
            bound = tuple(await self.admin.list(BOUND_POD, namespace=self.namespace, fields=BOUND))
        except ApiError:
            return
        self.ledger.see(jobs, self._bound, bound)
        self._bound = bound
        for job in jobs:
            act = self._ACTS.get(self.ledger.members[job.metadata.name].kind.name)
            if act is not None and self.chance.random() < SHARE:
                await act(self, job)

    async def _pause(self, job: TorchrunJob) -> None:
        deeds = self.ledger.deeds[job.metadata.name]
        if job.status.phase == Phase.RUNNING and not job.spec.suspend and deeds.suspended < 2:
            deeds.suspended += 1
            await self._edit(job, suspend=True)
        elif job.spec.suspend:
            await self._edit(job, suspend=False)

    async def _hurry(self, job: TorchrunJob) -> None:
        """An urgent job comes while one runs that yields to it, or once there is none any more."""
        left = {name for name in self.ledger.unfinished() if self.ledger.members[name].kind is YIELDS}
        runs = any(self.ledger.statuses[name].phase == Phase.RUNNING for name in left & self.ledger.statuses.keys())
        if job.spec.suspend and (runs or not left):
            await self._edit(job, suspend=False)

    async def _scale(self, job: TorchrunJob) -> None:
        if job.status.phase == Phase.RUNNING:
            await self._edit(job, numNodes=self.chance.randint(1, 3))

    async def _edit(self, job: TorchrunJob, **spec: Any) -> None:
        self.told(f"edits {job.metadata.name}: {spec}")
        with suppress(NotFound):
            await self._persist(
                lambda: self.admin.merge_patch(
                    TORCHRUN_JOB, job.metadata.name, {"spec": spec}, namespace=self.namespace
                )
            )

    _ACTS: "dict[str, Callable[[Chaos, TorchrunJob], Awaitable[None]]]" = field(
        default_factory=lambda: {"pauses": Chaos._pause, "elastic": Chaos._scale, URGENT.name: Chaos._hurry}
    )
