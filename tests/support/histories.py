"""Random histories of a lost attempt, each with the truth about it: what was lost first, and who has to pay.

A history is made from what really happened, in exact time. What the API server holds of it comes later and less exact:
each node reports when it gets to it, by a clock of its own and in whole seconds; deletions have the API server's clock,
the Job's conditions kube-controller-manager's. What the operator sees of that depends on the order of seeing. Pure, and
the same for the same seed.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

import msgspec

from torchctl.api.causes import Budget, Cause
from torchctl.api.kube import (
    ContainerState,
    ContainerStatus,
    Job,
    JobStatus,
    KaiPodGroup,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    Running,
    Terminated,
)
from torchctl.api.names import JOB_TRACKING
from torchctl.controllers.job.pods import INDEX_KEY
from torchctl.runtime.kinds import Condition, ObjectMeta

__all__ = ["EPOCH", "History", "Order", "Root", "Sight", "Version", "Worker", "history", "sight", "state"]

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SKEW_S = 2.0
"""How far a node's clock may be ahead of the API server's, or behind it."""
CONTROL_SKEW_S = 1.0
"""The same of kube-controller-manager's clock."""
GRACE_S = 30
_REPORTS = Path(__file__).parents[1] / "unit" / "controllers" / "job" / "reports"


def _report(case: str, worker: int = 1) -> str:
    return (_REPORTS / case / f"worker-{worker}.exit-1.txt").read_text()


ERRORS = tuple(map(_report, ("exit-42", "exception", "exception-recorded", "segfault", "sigkill", "abort")))
NOTICED = (_report("worker-1-lost", 0), _report("exit-42", 0))
NO_STORE = _report("worker-0-lost-with-the-store")
STOPPED = tuple(map(_report, ("agent-sigterm", "agent-sigterm-recorded")))
UNKNOWN_WORDS = "Traceback (most recent call last):\nRuntimeError: a worker of the data service does not answer"
"""What a program of its own making says of a peer that is gone."""


class Root(StrEnum):
    """What really happened first."""

    ERROR = "error"
    BARE_ERROR = "error without a report"
    OOM = "out of memory"
    WORKSPACE = "no workspace"
    PEER = "collective timed out"
    DRAINED = "evicted by the API"
    TAINTED = "node tainted"
    PRESSURE = "node pressure"
    SHUTDOWN = "node shut down"
    NODE_GONE = "node deleted"
    REJECTED = "rejected"
    PREEMPTED = "preempted"
    KAI = "preempted by KAI"
    DELETED = "deleted"
    LIMIT = "above a volume's limit"
    REBOOTED = "node rebooted"
    HOOK = "runtime hook"
    HELPER = "sidecar of a done worker"


class Order(StrEnum):
    """In which order the operator sees what the API server has."""

    IN_ORDER = "in order"
    ANY = "any order"
    AT_ONCE = "all at once"
    JOB_FIRST = "Job before pods"
    PODS_FIRST = "pods before Job"
    BATCHES = "batches"
    AWAY = "away and back"


@dataclass(frozen=True, slots=True)
class Truth:
    cause: Cause
    target: str = ""
    reason: str = ""
    message: str = ""
    weight: float = 1.0

    @property
    def budget(self) -> Budget:
        return self.cause.budget


_LOW = "The node was low on resource: memory. Container trainer was using 63Gi, request is 0."
_LIMIT = 'Usage of EmptyDir volume "scratch" exceeds the limit "10Gi". '
_IMMINENT = "Pod was terminated in response to imminent node shutdown."

TRUTHS = {
    Root.ERROR: Truth(Cause.ERROR, weight=6),
    Root.BARE_ERROR: Truth(Cause.ERROR, weight=2),
    Root.OOM: Truth(Cause.OOM_KILLED, weight=3),
    Root.WORKSPACE: Truth(Cause.WORKSPACE_LOST, weight=0.5),
    Root.PEER: Truth(Cause.PEER_LOST, weight=2),
    Root.DRAINED: Truth(Cause.EVICTED, "EvictionByEvictionAPI", weight=3),
    Root.TAINTED: Truth(Cause.NODE_LOST, "DeletionByTaintManager"),
    Root.PRESSURE: Truth(Cause.EVICTED, "TerminationByKubelet", "Evicted", _LOW),
    Root.SHUTDOWN: Truth(Cause.NODE_LOST, "TerminationByKubelet", "Terminated", _IMMINENT),
    Root.NODE_GONE: Truth(Cause.NODE_LOST, "DeletionByPodGC"),
    Root.REJECTED: Truth(Cause.REJECTED, reason="OutOfnvidia.com/gpu", message="Node didn't have enough resource"),
    Root.PREEMPTED: Truth(Cause.PREEMPTED, "PreemptionByScheduler", weight=2),
    Root.KAI: Truth(Cause.PREEMPTED, weight=2),
    Root.DELETED: Truth(Cause.DELETED, weight=3),
    Root.LIMIT: Truth(Cause.LIMIT_EXCEEDED, "TerminationByKubelet", "Evicted", _LIMIT, weight=0.5),
    Root.REBOOTED: Truth(Cause.NODE_LOST, weight=0.5),
    Root.HOOK: Truth(Cause.REJECTED, weight=0.5),
    Root.HELPER: Truth(Cause.ERROR, weight=1),
}
TOLD = (Root.DRAINED, Root.TAINTED, Root.PREEMPTED, Root.KAI, Root.DELETED)
"""The pod is told to stop, and its trainer answers."""
KILLED = (Root.PRESSURE, Root.SHUTDOWN, Root.LIMIT)
"""The kubelet ends the pod without telling the API server first."""
OWN = (Root.ERROR, Root.BARE_ERROR, Root.OOM, Root.PEER)
"""The trainer's own end."""
BEFORE = (Root.WORKSPACE, Root.REJECTED, Root.HOOK)
"""Before any trainer began: no peer notices."""


@dataclass(slots=True)
class Worker:
    """What really happens to one worker, in exact time of the API server; None: never."""

    index: int
    skew_s: float
    late_s: float
    sidecar: bool
    outlasts_s: float
    ended: float | None = None
    code: int = 0
    reason: str = "Error"
    message: str = ""
    told: float | None = None
    timeless: bool = False
    init_failed: bool = False
    root: Root | None = None

    @property
    def reported(self) -> float | None:
        """When the API server has its end."""
        return None if self.ended is None else self.ended + self.late_s

    @property
    def over(self) -> float | None:
        """When the pod is over: its sidecar goes on until the pod is told to stop."""
        if not self.sidecar or self.ended is None:
            return self.ended
        return max(self.ended, self.told + self.outlasts_s) if self.told is not None else None

    @property
    def failed(self) -> float | None:
        """When the Job controller sees a failed pod; one that was told to stop does not count before it has ended."""
        over = self.code != 0 or self.root in (*KILLED, Root.NODE_GONE, Root.HELPER)
        return self.over + self.late_s if over and self.over is not None else None

    @property
    def tells(self) -> bool:
        """Whether its end says what happened first: a torchrun that was stopped meanwhile says nothing else."""
        return self.root is not None and (self.root not in OWN or (self.message not in STOPPED and self.code != 0))

    def end(self, at: float, code: int, message: str = "", reason: str = "Error") -> None:
        """The trainer ends, unless it has before."""
        if self.ended is None or at < self.ended:
            self.ended, self.code, self.message, self.reason = at, code, message, reason if code else "Completed"


@dataclass(frozen=True, slots=True)
class Version:
    """What the API server has from a moment on: an object by its key, None once it is gone.

    Args:
        tells: Whether it says what happened first.
        lets_go: Whether a pod that has ended goes with it, and the time at which it was told to stop.
    """

    at: float
    key: str
    value: Pod | Job | KaiPodGroup | None
    tells: bool = False
    lets_go: bool = False


@dataclass(frozen=True, slots=True)
class History:
    """A lost attempt and the truth about it.

    Args:
        worker: Index of the worker that was lost first.
        versions: By time.
        counts: Whether it is an incident at all: an elastic job goes on without a worker that the cluster took.
    """

    root: Root
    worker: int
    nodes: int
    elastic: bool
    versions: tuple[Version, ...]
    counts: bool
    workers: tuple[Worker, ...] = field(repr=False)

    @property
    def cause(self) -> Cause:
        return TRUTHS[self.root].cause


def stamp(at: float) -> datetime:
    """Kubernetes' times have no parts of seconds."""
    return EPOCH + timedelta(seconds=int(at))


def history(seed: int, *, stays: bool = False) -> History:
    """The history of a seed.

    Args:
        stays: Every pod stays as it ended: the kubelet and the Job controller do not come to let it go.
    """
    rng = random.Random(seed)
    root = rng.choices(list(TRUTHS), [truth.weight for truth in TRUTHS.values()])[0]
    nodes, elastic = rng.randint(2, 4), rng.random() < 0.25 and root not in (*BEFORE, Root.HELPER)
    workers = [
        Worker(
            index,
            skew_s=rng.uniform(-SKEW_S, SKEW_S),
            late_s=rng.uniform(0.1, 1.5),
            sidecar=rng.random() < 0.15,
            outlasts_s=rng.uniform(0.1, 2.0),
        )
        for index in range(nodes)
    ]
    first = workers[0 if elastic and root is Root.KAI else rng.randrange(nodes)]
    first.sidecar &= root not in (*BEFORE, Root.HELPER)
    at = 100 + rng.random()
    hidden = _strikes(rng, root, first, workers, at)
    host_lost = elastic and first.index == 0
    if not elastic or host_lost or root is Root.PEER:
        _peers(rng, root, first, workers, hidden, host_lost=host_lost)
    stops = None if elastic else _stops(rng, workers)
    host = workers[0].ended is not None or workers[0].told is not None
    counts = not elastic or host or TRUTHS[root].budget is Budget.USER
    versions = sorted(_versions(rng, root, workers, at, stops), key=lambda version: version.at)
    kept = (version for version in versions if not (stays and version.lets_go))
    return History(root, first.index, nodes, elastic, tuple(kept), counts, tuple(workers))


# What really happens.


def _strikes(rng: random.Random, root: Root, first: Worker, workers: list[Worker], at: float) -> float | None:
    """The first loss. Returns when the worker's ranks are gone, which its peers can notice; None: never."""
    first.root = root
    agent_s = rng.uniform(0.1, 1.0) if rng.random() < 0.85 else rng.uniform(1.0, 6.0)
    if root is Root.ERROR:
        first.end(at + agent_s, 1, rng.choice(ERRORS))
        return at
    if root is Root.BARE_ERROR:
        first.end(at, rng.choice((1, 2, 42, 139)), rng.choice(("", "boom", UNKNOWN_WORDS)))
    elif root is Root.OOM:
        first.end(at, 137, reason="OOMKilled")
    elif root in BEFORE:
        first.end(at, 1, "fetch: no route to the workspace")
        first.init_failed = root is Root.WORKSPACE
        if root is Root.HOOK:
            first.end(at - 0.1, 128, "OCI runtime create failed: nvidia-container-cli: nvml error", "StartError")
        return None
    elif root is Root.HELPER:
        first.end(at, 0)  # its peers go on without it
        return None
    elif root is Root.PEER:
        first.end(at + agent_s, 1, rng.choice(NOTICED))
    elif root in KILLED:
        first.end(at, rng.choice((0, 137, 143)))
        first.timeless = rng.random() < 0.3
    elif root in (Root.NODE_GONE, Root.REBOOTED):
        first.end(at, 255, reason="Unknown")
        first.late_s = rng.uniform(0.5, 4.0)
    else:
        told = [first] if root is not Root.KAI or rng.random() < 0.4 else workers
        for worker in told:
            worker.told = at + (0 if worker is first else rng.uniform(0, 0.5))
            _answers(rng, worker)
    return first.ended


def _answers(rng: random.Random, worker: Worker) -> None:
    """The trainer is told to stop: it saves and exits, its torchrun says so, or it takes no notice."""
    assert worker.told is not None
    at = worker.told + rng.uniform(0.1, 4.0)
    match rng.choices(("saves", "agent", "plain", "nothing"), (35, 35, 10, 20))[0]:
        case "saves":
            worker.end(at, 0)
        case "agent":
            worker.end(at, 1, rng.choice(STOPPED))
        case "plain":
            worker.end(at, 143)
        case _:
            worker.end(worker.told + GRACE_S, 137)


def _peers(
    rng: random.Random, root: Root, first: Worker, workers: list[Worker], hidden: float | None, *, host_lost: bool
) -> None:
    """The others notice, or hang; where the store is lost nobody can meet again."""
    for peer in workers:
        if peer is first or hidden is None or rng.random() < 0.15:
            continue
        notices = hidden + rng.uniform(0.02, 2.5)
        said = NO_STORE if host_lost else rng.choice(NOTICED)
        if rng.random() < 0.05 and root is not Root.PEER:
            said = UNKNOWN_WORDS
        peer.end(notices + rng.uniform(0.1, 1.5), 1, said)


@dataclass(frozen=True, slots=True)
class _Stops:
    """When the Job controller gave the Job up, and when it said that it had; its clock."""

    at: float
    failed: float
    skew_s: float


def _stops(rng: random.Random, workers: list[Worker]) -> _Stops | None:
    """The Job controller sees a pod that failed, and stops those that are left (podReplacementPolicy Failed)."""
    seen = [worker.failed for worker in workers if worker.failed is not None]
    if not seen:
        return None
    acts = min(seen) + rng.uniform(0.05, 1.2)
    for worker in workers:
        over = worker.reported is not None and worker.reported <= acts and not worker.sidecar
        if worker.told is None and not over:
            worker.told = acts + rng.uniform(0, 0.1)
            if worker.ended is None or (worker.ended > worker.told and rng.random() < 0.3):
                _answers(rng, worker)
    ends = [worker.ended for worker in workers if worker.ended is not None]
    return _Stops(acts, max((acts, *ends)) + rng.uniform(0.2, 1.5), rng.uniform(-CONTROL_SKEW_S, CONTROL_SKEW_S))


# What the API server has of it.


def _versions(
    rng: random.Random, root: Root, workers: list[Worker], at: float, stops: _Stops | None
) -> Iterator[Version]:
    name = "demo"
    yield Version(0.0, "job", _job(name, ()))
    if stops is not None:
        target = Condition("FailureTarget", "True", "BackoffLimitExceeded", "", stamp(stops.at + stops.skew_s))
        yield Version(stops.at + rng.uniform(0.05, 0.4), "job", _job(name, (target,)))
        moment = stamp(stops.failed + stops.skew_s)
        failed = Condition("Failed", "True", "BackoffLimitExceeded", "Job has reached", moment)
        yield Version(stops.failed + 0.05, "job", _job(name, (target, failed)))
    if root is Root.KAI:
        said = {"kai.scheduler/last-eviction-timestamp": stamp(at).isoformat()}
        yield Version(0.0, "group", KaiPodGroup(ObjectMeta(name="pg")))
        yield Version(at + rng.uniform(0.0, 1.0), "group", KaiPodGroup(ObjectMeta(name="pg", annotations=said)), True)
    for worker in workers:
        yield from _pod_versions(rng, worker)


def _pod_versions(rng: random.Random, worker: Worker) -> Iterator[Version]:
    key, truth = f"pod-{worker.index}", TRUTHS[worker.root] if worker.root is not None else None
    began = worker.root not in BEFORE
    running = ContainerState(running=Running(stamp(10))) if began else ContainerState()
    yield Version(1.0, key, _pod(worker, running, "Running" if began else "Pending"))
    reported = worker.reported
    gone_with_node = worker.root is Root.NODE_GONE
    if gone_with_node and reported is not None and worker.told is None:
        worker.told = reported
    if worker.told is not None and (reported is None or worker.told < reported):
        tells = truth is not None and worker.root in TOLD
        yield Version(worker.told, key, _pod(worker, running, "Running", told=True, truth=truth), tells)
    if worker.ended is None or reported is None:
        return
    told = worker.told is not None and worker.told < reported
    state = _terminated(worker, running)
    phase = (
        "Running"
        if worker.sidecar and not told
        else "Failed"
        if worker.code or (truth and truth.reason)
        else "Succeeded"
    )
    if worker.root in (*KILLED, Root.REJECTED, Root.HELPER) or gone_with_node:
        phase = "Failed"
    after = _pod(worker, state, phase, told=told, truth=truth)
    yield Version(reported, key, after, worker.tells)
    if worker.told is None:
        return
    over = worker.ended
    if worker.told > reported:
        yield Version(worker.told, key, _pod(worker, state, phase, told=True, truth=truth), worker.tells)
    if worker.sidecar:
        over = worker.over or over
        phase = "Failed" if worker.code or phase == "Failed" else "Succeeded"
    final = max(worker.told, reported, over) + rng.uniform(0.05, 0.6)
    again = max(worker.told, over)
    yield Version(final, key, _pod(worker, state, phase, told=True, truth=truth, again=again), worker.tells, True)
    if rng.random() < 0.5:
        yield Version(final + rng.uniform(0.3, 3.0), key, None, lets_go=True)


def _terminated(worker: Worker, running: ContainerState) -> ContainerState:
    assert worker.ended is not None
    if worker.root in (Root.NODE_GONE, Root.REJECTED) or worker.init_failed:
        return running
    if worker.timeless:
        return ContainerState(terminated=Terminated(137, reason="ContainerStatusUnknown"))
    at = stamp(worker.ended + worker.skew_s)
    return ContainerState(
        terminated=Terminated(worker.code, reason=worker.reason, message=worker.message, finished_at=at)
    )


def _pod(
    worker: Worker,
    state: ContainerState,
    phase: str,
    *,
    told: bool = False,
    truth: Truth | None = None,
    again: float | None = None,
) -> Pod:
    until, grace = None, None
    if told and worker.told is not None:
        until = stamp(worker.told) + timedelta(seconds=GRACE_S) if again is None else stamp(again)
        grace = GRACE_S if again is None else 0
    elif again is not None:
        until, grace = stamp(again), 0
    over = truth is not None and (told or phase in ("Failed", "Succeeded") or state.terminated is not None)
    target = truth.target if truth is not None and over else ""
    conditions = (PodCondition("DisruptionTarget", "True", target),) if target else ()
    ended = truth is not None and phase == "Failed"
    statuses = [ContainerStatus("trainer", state=state)]
    if worker.sidecar:
        statuses.append(ContainerStatus("logs", state=ContainerState(running=Running(stamp(10)))))
    if worker.root is Root.HELPER and state.terminated is not None:
        dead = msgspec.structs.replace(state.terminated, exit_code=3, reason="Error")
        statuses.append(ContainerStatus("logs", state=ContainerState(terminated=dead)))
    init: tuple[ContainerStatus, ...] | None = None
    if worker.init_failed and phase == "Failed" and worker.ended is not None:
        at = stamp(worker.ended + worker.skew_s)
        init = (
            ContainerStatus(
                "workspace", state=ContainerState(terminated=Terminated(1, 0, "Error", worker.message, None, at))
            ),
        )
    return Pod(
        ObjectMeta(
            name=f"demo-{worker.index}-x",
            uid=f"uid-{worker.index}",
            creation_timestamp=stamp(5),
            deletion_timestamp=until,
            deletion_grace_period_seconds=grace,
            finalizers=() if told and worker.root is None else (JOB_TRACKING,),  # its Job stops it, or somebody else
            annotations={INDEX_KEY: str(worker.index), "pod-group-name": "pg"},
        ),
        PodSpec(node_name=f"node-{worker.index}"),
        PodStatus(
            phase=phase,
            reason=truth.reason if truth is not None and ended else "",
            message=truth.message if truth is not None and ended else "",
            start_time=stamp((worker.ended or 7) + worker.skew_s) if worker.root is Root.REJECTED else stamp(7),
            conditions=conditions,
            container_statuses=tuple(statuses),
            init_container_statuses=init,
        ),
    )


def _job(name: str, conditions: tuple[Condition, ...]) -> Job:
    meta = ObjectMeta(name=name, uid="uid-job", creation_timestamp=stamp(4))
    return Job(meta, {"completions": 2}, JobStatus(conditions=conditions))


# What the operator sees of it.


@dataclass(frozen=True, slots=True)
class Sight:
    """What one operator sees of a history.

    Args:
        moments: When something is heard of, or the operator looks anyway.
        back: When it is there again, if it was away since `left`.
    """

    heard: tuple[tuple[float, Version], ...]
    moments: tuple[float, ...]
    left: float = 0.0
    back: float = 0.0

    def at(self, moment: float) -> tuple[Version, ...]:
        """What has been heard of until then, in the order of hearing."""
        return tuple(version for at, version in self.heard if at <= moment)


def sight(found: History, order: Order, seed: int) -> Sight:
    """What an operator sees, from when the workers run until well after the last of it."""
    rng = random.Random(seed)
    lag = {key: rng.uniform(0, 3) for key in sorted({version.key for version in found.versions})}
    heard = []
    for version in found.versions:
        late = 0.05
        if order is Order.ANY:
            late += lag[version.key]
        if order is Order.JOB_FIRST and version.key != "job":
            late += 3
        if order is Order.PODS_FIRST and version.key == "job":
            late += 3
        heard.append((version.at + late, version))
    heard.sort(key=lambda one: one[0])
    start = 50.0
    events = [moment for moment, _ in heard if moment > start]
    left = back = 0.0
    if order is Order.AT_ONCE:
        left, back = start + 1, max(events[0], rng.uniform(103, 112))
    if order is Order.AWAY:
        left = rng.choice(events)
        back = left + rng.uniform(0.5, 6)
    step = rng.uniform(0.4, 2.0)
    moments = [start + step * number for number in range(200)] if order is Order.BATCHES else [start, *events]
    here = (moment for moment in (*moments, back) if moment and not left < moment < back)
    return Sight(tuple(heard), tuple(sorted(here)), left, back)


def state(heard: tuple[Version, ...]) -> dict[str, Pod | Job | KaiPodGroup]:
    """The newest of each object that is there."""
    newest = {version.key: version.value for version in heard}
    return {key: value for key, value in newest.items() if value is not None}
