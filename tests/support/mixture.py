"""Jobs of every kind, how their pods are played, and how they may end given what was done to them. Pure."""

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from jobs import a_job, a_queue

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
    "Deeds",
    "Kind",
    "Member",
    "end_of",
    "is_let_in",
    "mixture",
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


EVER = 1000
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
)
_BY_NAME = {kind.name: kind for kind in KINDS}


IN_AT_ONCE = 10
"""Jobs of the plain queue that run at once: the coordinator lets no more of them in."""


def queues(namespace: str) -> list[Json]:
    """The queues of the mixture. Jobs of the first two are let in by the coordinator; Kueue admits those of `quota`."""
    claim = {"enabled": True, "size": "1Gi", "accessModes": ["ReadWriteMany"]}
    return [
        a_queue(namespace, "plain", quota={"jobs": IN_AT_ONCE}),
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


def is_let_in(job: TorchrunJob) -> bool:
    """Whether a job of the plain queue holds a place that the coordinator gave it."""
    status, record = job.status, job.status.admission
    if job.spec.job_queue != "plain" or record is None or record.let_in_time is None:
        return False
    return record.attempt == status.attempt and status.phase not in (*TERMINAL, Phase.SUSPENDED)


def wrong_with(member: Member, end: str, status: JobStatus, deeds: Deeds, upstream_end: str) -> list[str]:
    """What is not as it should be with a job that has ended; `status` is the last that was seen of it."""
    wrong = []
    allowed = _ends(member, deeds, upstream_end)
    if end not in allowed:
        wrong.append(f"{member.name} ended as {end!r}, not as {sorted(allowed)}; done to it: {deeds}")
    total, causes = status.restarts.total, status.restarts.by_cause
    if total != sum(causes.values()):
        wrong.append(f"{member.name}: {total} restarts, by cause {causes}")
    if end != GONE and not _attempts_add_up(status, end, deeds):
        wrong.append(f"{member.name} ended as {end} in attempt {status.attempt} after {total} incidents, {deeds}")
    most = member.kind.own + deeds.deleted["Pod"]
    if causes.get(Cause.ERROR, 0) > member.kind.own:
        wrong.append(f"{member.name}: its program is blamed for what was done to it: {causes}, {deeds}")
    if total > most:
        wrong.append(f"{member.name}: {causes}, but there were {most} reasons at most: {deeds}")
    return wrong


def _ends(member: Member, deeds: Deeds, upstream_end: str) -> set[str]:
    if upstream_end.startswith("Failed"):
        return {"Failed DependencyFailed"}
    if member.kind.end == GONE:
        return {GONE}
    return {member.kind.end, DISAPPEARED} if deeds.deleted["Job"] else {member.kind.end}


def _attempts_add_up(status: JobStatus, end: str, deeds: Deeds) -> bool:
    """Each incident is followed by an attempt, save the one that ended the job.

    Each resumption by one, too; and each eviction of a gang of which a worker is done.
    """
    last = end in ("Failed RestartsExhausted", "Failed WorkerFailed")
    resumed = status.attempt + last - status.restarts.total
    return 0 <= resumed <= deeds.suspended + deeds.evicted
