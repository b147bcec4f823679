"""Jobs of every kind, how their pods are played, and how they may end given what was done to them. Pure."""

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from jobs import a_job, a_queue

from torchctl.api.capacity import BoundPod
from torchctl.api.causes import Cause
from torchctl.api.job import JobStatus, TorchrunJob
from torchctl.api.labels import ATTEMPT, JOB_NAME, ROLE, ROLE_WORKER
from torchctl.api.phases import TERMINAL, Phase
from torchctl.runtime.conditions import find
from torchctl.testing.nodekinds import Pod
from torchctl.testing.script import Play, Script

__all__ = [
    "GONE",
    "IN_AT_ONCE",
    "URGENT",
    "YIELDS",
    "Deeds",
    "Kind",
    "Member",
    "end_of",
    "holds_place",
    "is_uninvited",
    "mixture",
    "preemptions",
    "queues",
    "script",
    "wrong_with",
]

Json = dict[str, Any]
GONE = "gone"
SUCCEEDED = "Succeeded"
DISAPPEARED = "Failed JobDisappeared"
GIT = {"workspace": {"source": "git", "url": "https://git.example.com/team/code.git", "ref": "main"}}
CODE = 42


@dataclass(frozen=True, slots=True)
class Kind:
    """Jobs that are alike.

    Args:
        plays: What happens to a worker, given attempt and index; None: it runs for a while and succeeds.
        end: How such a job ends when nobody does anything to it.
        own: Incidents of its own, whatever anybody does.
        links: So many jobs, of which each depends on the one before.
    """

    name: str
    spec: Json = field(default_factory=dict)
    plays: Callable[[int, int], Play | None] = lambda attempt, index: None
    end: str = SUCCEEDED
    own: int = 0
    links: int = 1


@dataclass(frozen=True, slots=True)
class Member:
    """One job of the mixture. `upstream`: the job that it depends on, empty without."""

    name: str
    kind: Kind
    upstream: str = ""

    def body(self, namespace: str) -> Json:
        needs = {"dependsOn": [{"job": self.upstream}]} if self.upstream else {}
        return a_job(namespace, self.name, **{"jobQueue": "plain", **self.kind.spec, **needs})


@dataclass(slots=True)
class Deeds:
    """What was done to one job: its children that were deleted, by their kind; how often it was suspended, and evicted.

    Attributes:
        jobs: Names of the worker Jobs among these children.
    """

    deleted: Counter[str] = field(default_factory=Counter)
    jobs: set[str] = field(default_factory=set)
    suspended: int = 0
    evicted: int = 0


def _fails(code: int, *, attempts: int = 1, index: int = 1) -> Callable[[int, int], Play | None]:
    """One worker of the first attempts ends so; the others of these wait for it in vain."""

    def play(attempt: int, at: int) -> Play | None:
        if attempt >= attempts:
            return None
        return Play(run_s=0.5, exit_code=code) if at == index else Play(run_s=None)

    return play


def _evicted(attempt: int, index: int) -> Play | None:
    return Play(run_s=0.5, evicted="The node was low on resource: memory.") if (attempt, index) == (0, 1) else None


def _long_at_first(attempt: int, index: int) -> Play | None:
    """Long enough for an urgent job to come even if nobody leads, and for a look while the checkpoint is saved."""
    return Play(run_s=30.0, stop_s=2.0) if attempt == 0 else None


EVER = 1000
YIELDS = Kind("yields", {"jobQueue": "ranked"}, _long_at_first)
"""Jobs that the coordinator takes the room from, for urgent ones alone."""
URGENT = Kind("urgent", {"jobQueue": "ranked", "priority": 10, "suspend": True})
"""Jobs that nobody takes the room from; each is resumed while one runs that yields to it."""
KINDS = (
    Kind("plain"),
    Kind("git", {"jobQueue": "code", "volumes": GIT}),
    Kind("gang", {"jobQueue": "gang"}),
    Kind("admitted", {"jobQueue": "quota"}),
    Kind("grouped", {"jobQueue": "groups"}),
    Kind("elastic", {"elastic": {"minNodes": 1, "maxNodes": 3}}),
    Kind("recovers", plays=_fails(CODE), own=1),
    Kind(
        "uses-up",
        {"runPolicy": {"maxRestarts": 1}},
        _fails(CODE, attempts=EVER),
        end="Failed RestartsExhausted",
        own=2,
    ),
    Kind("never", {"runPolicy": {"restartPolicy": "Never"}}, _fails(3), end="Failed WorkerFailed", own=1),
    Kind("evicted", plays=_evicted, own=1),
    Kind("saves"),
    Kind("pauses"),
    Kind("short", {"runPolicy": {"ttlSecondsAfterFinished": 1}}, end=GONE),
    Kind(
        "deadline",
        {"runPolicy": {"activeDeadlineSeconds": 4}},
        lambda attempt, index: Play(run_s=None),
        end="Failed DeadlineExceeded",
    ),
    Kind("chain", links=3),
    YIELDS,
    URGENT,
)
_BY_NAME = {kind.name: kind for kind in KINDS}


IN_AT_ONCE = {"plain": 10, "ranked": 1}
"""Jobs of these queues that run at once: the coordinator lets no more of them in."""
COORDINATED = (*IN_AT_ONCE, "code")


def queues(namespace: str) -> list[Json]:
    """The queues of the mixture. Kueue admits jobs of `quota`, the coordinator lets those of COORDINATED in."""
    claim = {"enabled": True, "size": "1Gi", "accessModes": ["ReadWriteMany"]}
    return [
        a_queue(namespace, "plain", quota={"jobs": IN_AT_ONCE["plain"]}),
        a_queue(namespace, "ranked", quota={"jobs": IN_AT_ONCE["ranked"]}, preemption="WithinQueue"),
        a_queue(namespace, "code", storage={"workspace": claim}),
        a_queue(namespace, "gang", kaiQueue=namespace, nodeResources={"gpus": 1}),
        a_queue(namespace, "quota", scheduling={"kueueQueue": "train"}),
        a_queue(namespace, "groups", scheduling={"volcanoQueue": "default"}),
    ]


def mixture(count: int, chance: random.Random, names: Collection[str] = _BY_NAME) -> list[Member]:
    """So many jobs: of each kind about as many, in any order, a chain's links behind each other.

    Args:
        names: Those of the kinds.
    """
    members: list[Member] = []
    kinds = [kind for kind in KINDS if kind.name in names]
    while len(members) < count:
        for kind in chance.sample(kinds, len(kinds)):
            members += _links(kind, len(members), min(kind.links, count - len(members)))
    return members


def _links(kind: Kind, number: int, count: int) -> Iterator[Member]:
    names = [f"{kind.name}-{number + link}" for link in range(count)]
    for name, upstream in zip(names, ["", *names], strict=False):
        yield Member(name, kind, upstream)


def script(seed: int) -> Script:
    """How the pods of all kinds are played."""
    return Script().when(_is_worker, lambda pod: _play(pod, seed))


def _is_worker(pod: Pod) -> bool:
    return pod.metadata.labels.get(ROLE) == ROLE_WORKER


def _play(pod: Pod, seed: int) -> Play:
    labels = pod.metadata.labels
    job = labels[JOB_NAME]
    kind = _BY_NAME[job.rpartition("-")[0]]
    told = kind.plays(int(labels[ATTEMPT]), int(labels["batch.kubernetes.io/job-completion-index"]))
    if told is not None:
        return told
    run_s = random.Random(f"{seed} {job}").uniform(2.0, 7.0)
    if kind.name == "saves":
        return Play(run_s=run_s, stop_exit_code=0, stop_s=0.5)
    return Play(run_s=run_s)


def end_of(job: TorchrunJob | None) -> str:
    """How a job has ended, in words; empty where it has not."""
    if job is None:
        return GONE
    status = job.status
    if status.phase not in TERMINAL:
        return ""
    failed = find(status.conditions, "Failed")
    return SUCCEEDED if status.phase == Phase.SUCCEEDED or failed is None else f"Failed {failed.reason}"


def holds_place(job: TorchrunJob, bound: Iterable[BoundPod]) -> bool:
    """Whether a job has a place that the coordinator gave it, until the last pod is gone if it was taken back.

    Args:
        bound: Pods that take room on nodes, read after the job.
    """
    status, record = job.status, job.status.admission
    if job.spec.job_queue not in COORDINATED or record is None or record.let_in_time is None:
        return False
    if record.attempt == status.attempt and status.phase not in (*TERMINAL, Phase.SUSPENDED):
        return True
    return record.taken_back_time is not None and any(_is_of(pod, job, record.attempt) for pod in bound)


def is_uninvited(job: TorchrunJob, bound: Iterable[BoundPod]) -> bool:
    """Whether a job has pods of its attempt on nodes and was not let in.

    Args:
        bound: Pods that take room on nodes, read before the job.
    """
    record, attempt = job.status.admission, job.status.attempt
    was_let_in = record is not None and record.attempt == attempt and record.let_in_time is not None
    is_coordinated = job.spec.job_queue in COORDINATED
    return is_coordinated and not was_let_in and any(_is_of(pod, job, attempt) for pod in bound)


def _is_of(pod: BoundPod, job: TorchrunJob, attempt: int) -> bool:
    labels = pod.metadata.labels
    found = (labels.get(JOB_NAME), labels.get(ROLE), labels.get(ATTEMPT))
    return found == (job.metadata.name, ROLE_WORKER, str(attempt))


def preemptions(status: JobStatus) -> int:
    """How often a job of the queue with preemption has lost its place: one that had not trained has no incident."""
    others = status.restarts.total - status.restarts.by_cause.get(Cause.PREEMPTED, 0)
    return status.attempt - others


def wrong_with(
    member: Member, end: str, status: JobStatus, deeds: Deeds, upstream_end: str, urgent: int = 0
) -> list[str]:
    """What is not as it should be with a job that has ended; `status` is the last that was seen of it.

    Args:
        urgent: How often urgent jobs were let in: it was preempted no more often, and only if it yields to them.
    """
    wrong = []
    allowed, taken = _ends(member, deeds, upstream_end), urgent if member.kind is YIELDS else 0
    if end not in allowed:
        wrong.append(f"{member.name} ended as {end!r}, not as {sorted(allowed)}; done to it: {deeds}")
    total, causes = status.restarts.total, status.restarts.by_cause
    if total != sum(causes.values()):
        wrong.append(f"{member.name}: {total} restarts, by cause {causes}")
    if end != GONE and not _attempts_add_up(status, end, deeds, taken):
        wrong.append(f"{member.name} ended as {end} in attempt {status.attempt} after {total} incidents, {deeds}")
    most, preempted = member.kind.own + deeds.deleted["Pod"], causes.get(Cause.PREEMPTED, 0)
    if causes.get(Cause.ERROR, 0) > member.kind.own:
        wrong.append(f"{member.name}: its program is blamed for what was done to it: {causes}, {deeds}")
    if total - preempted > most:
        wrong.append(f"{member.name}: {causes}, but there were {most} reasons at most: {deeds}")
    if preempted > taken:
        wrong.append(f"{member.name}: {causes}, but urgent jobs have taken its place {taken} times at most")
    return wrong


def _ends(member: Member, deeds: Deeds, upstream_end: str) -> set[str]:
    if upstream_end.startswith("Failed"):
        return {"Failed DependencyFailed"}
    if member.kind.end == GONE:
        return {GONE}
    return {member.kind.end, DISAPPEARED} if deeds.deleted["Job"] else {member.kind.end}


def _attempts_add_up(status: JobStatus, end: str, deeds: Deeds, taken: int) -> bool:
    """Each incident is followed by an attempt, save the one that ended the job.

    Each resumption by one, too; each eviction of a gang of which a worker is done; and each loss of its place before it
    has trained, of which there are `taken` at most.
    """
    last = end in ("Failed RestartsExhausted", "Failed WorkerFailed")
    resumed = status.attempt + last - status.restarts.total
    return 0 <= resumed <= deeds.suspended + deeds.evicted + taken
