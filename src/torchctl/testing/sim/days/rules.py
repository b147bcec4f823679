"""The rules that hold after every change of every object, and at rest: what docs/design/simulator.md lists. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import CONFIG_MAP, JOB, KAI_QUEUE, POD, PVC, SERVICE
from torchctl.api.labels import ATTEMPT, JOB_UID, ROLE, ROLE_SYNC, ROLE_WORKER
from torchctl.api.phases import TERMINAL
from torchctl.api.queue import TORCHRUN_QUEUE
from torchctl.testing.fake.objects import Changed, Objects
from torchctl.testing.fake.served import Served
from torchctl.testing.gangs import POD_GROUP_NAME as GANG
from torchctl.testing.sim.days.gang import taken_back
from torchctl.testing.sim.days.losses import Losses

__all__ = ["Rules", "at_rest", "without_queues"]

Json = dict[str, Any]


@dataclass(slots=True)
class _Known:
    """What is known of one TorchrunJob."""

    name: str
    ended: str = ""
    incidents: int = 0
    attempt: int = 0
    resumes: int = 0
    losses_of_room: int = 0
    unknown: int = 0
    """Attempts before the status was lost, for which it does not say any more why there were so many."""
    forgotten: int | None = None
    """The attempt that runs, until a status is written again that was lost."""
    over: str = ""
    """How it had ended before its status was lost, if a child tells that it was started."""
    complete: str = ""
    """A Job of which all workers are done."""
    doubted: set[int] = field(default_factory=set)
    """Attempts of which a pod that exited 0 was deleted: it may have been told to stop first (`pods.told_to_stop`)."""
    troubled: set[int] = field(default_factory=set)
    counted: Counter[int] = field(default_factory=Counter)
    made: set[str] = field(default_factory=set)
    there: set[str] = field(default_factory=set)
    """The Jobs and the Service that are there."""
    pods: dict[str, int] = field(default_factory=dict)
    placed: dict[int, set[str]] = field(default_factory=dict)
    least: int = 1
    causes: Counter[str] = field(default_factory=Counter)


class Rules:
    """Follows all changes and notes what breaks a rule.

    Attributes:
        broken: What has broken a rule, in the order of time.
    """

    def __init__(self, losses: Losses | None = None) -> None:
        self.broken: list[str] = []
        self._losses = losses or Losses()
        self.ends: Counter[str] = Counter()
        self._known: dict[str, _Known] = {}

    @property
    def causes(self) -> dict[str, Counter[str]]:
        """The incidents of each job by their cause; jobs of one name together."""
        found: dict[str, Counter[str]] = {}
        for known in self._known.values():
            found[known.name] = found.get(known.name, Counter()) + known.causes
        return found

    def on_change(self, changed: Changed) -> None:
        kind = changed.served.kind
        if kind == TORCHRUN_JOB:
            self._see_torchrun_job(changed)
            return
        known = self._known.get(changed.new["metadata"].get("labels", {}).get(JOB_UID, ""))
        if known is None:
            return
        if kind == POD:
            self._see_pod(known, changed)
        elif kind in (JOB, SERVICE):
            self._see_child(known, changed)

    def see_leaders(self, leaders: Sequence[object]) -> None:
        if len(leaders) > 1:
            self.broken.append(f"{len(leaders)} replicas lead at once")

    def _break(self, known: _Known, what: str) -> None:
        self.broken.append(f"{known.name}: {what}")

    def _see_torchrun_job(self, changed: Changed) -> None:
        meta, status = changed.new["metadata"], changed.new.get("status", {})
        known = self._known.setdefault(meta["uid"], _Known(meta["name"]))
        if self._losses.concerns(meta["uid"]):
            if known.ended:
                self.ends[known.ended] -= 1  # it will end again
            _forget(known, status)
            return
        known.least = changed.new["spec"].get("elastic", {}).get("minNodes", changed.new["spec"]["numNodes"])
        if changed.old is not None and changed.old["spec"].get("suspend") and not changed.new["spec"].get("suspend"):
            known.resumes += 1
        if changed.old is not None and taken_back(changed.new) not in ("", taken_back(changed.old)):
            known.losses_of_room += 1
            known.troubled.add(status["admission"].get("attempt", 0))
        if known.forgotten is not None and _without_admission(changed.old) != _without_admission(changed.new):
            if status.get("attempt", 0) != known.forgotten:
                self._break(known, f"lost its status, and attempt {known.forgotten} is taken for another one")
            known.forgotten = None
        self._see_end(known, status.get("phase", ""))
        attempt = status.get("attempt", 0)
        restarts = status.get("restarts", {})
        total, by_cause = restarts.get("total", 0), restarts.get("byCause", {})
        if total != sum(by_cause.values()):
            self._break(known, f"{total} incidents, and {by_cause} by cause")
        self._see_incidents(known, total, attempt, elastic="elastic" in changed.new["spec"])
        known.causes = Counter(by_cause)
        if attempt < known.attempt:
            self._break(known, f"attempt {attempt} follows attempt {known.attempt}")
        if attempt > total + known.resumes + known.losses_of_room + known.unknown:
            why = f"{total} incidents, {known.resumes} resumes and {known.losses_of_room} losses of room"
            self._break(known, f"attempt {attempt} after {why}")
        known.attempt = attempt

    def _see_end(self, known: _Known, phase: str) -> None:
        if known.ended and phase != known.ended:
            self._break(known, f"had ended as {known.ended}, and is {phase}")
        if phase in TERMINAL and not known.ended:
            known.ended = phase
            self.ends[phase] += 1

    def _see_incidents(self, known: _Known, total: int, attempt: int, *, elastic: bool) -> None:
        new = total - known.incidents
        if new < 0:
            self._break(known, f"{known.incidents} incidents became {total}")
        known.counted[known.attempt] += new
        if new > 1 or (known.counted[known.attempt] > 1 and not elastic):
            self._break(known, f"{known.counted[known.attempt]} incidents in attempt {known.attempt}")
        if new > 0 and known.attempt not in known.troubled:
            self._break(known, f"an incident in attempt {known.attempt}, of which nothing was lost")
        known.incidents = total

    def _see_pod(self, known: _Known, changed: Changed) -> None:
        meta = changed.new["metadata"]
        if meta["labels"].get(ROLE) == ROLE_SYNC:
            self._see_sync_pod(known, changed)
        if meta["labels"].get(ROLE) != ROLE_WORKER:
            return
        if _is_trouble(changed):
            known.troubled.add(int(meta["labels"][ATTEMPT]))
        if changed.type == "DELETED" or changed.new["status"].get("phase") in ("Succeeded", "Failed"):
            known.pods.pop(meta["uid"], None)
            if changed.new["status"].get("phase") == "Succeeded" and "deletionTimestamp" in meta:
                known.doubted.add(int(meta["labels"][ATTEMPT]))
        else:
            known.pods[meta["uid"]] = int(meta["labels"][ATTEMPT])
            if GANG in meta.get("annotations", {}):
                self._see_member(known, changed.new)

    def _see_sync_pod(self, known: _Known, changed: Changed) -> None:
        """A try has a name of its own, but nobody can count those that others have removed."""
        child = f"sync pod {changed.new['metadata']['name']}"
        if changed.type == "ADDED":
            self._see_new(known, child)
        elif changed.type == "DELETED" and "DisruptionTarget" in _true_in(changed.new["status"]):
            known.made.discard(child)

    def _see_member(self, known: _Known, pod: Json) -> None:
        """A pod of a gang: none runs before as many are placed as the gang needs."""
        placed = known.placed.setdefault(int(pod["metadata"]["labels"][ATTEMPT]), set())
        if pod["spec"].get("nodeName"):
            placed.add(pod["metadata"]["uid"])
        if pod["status"].get("phase") == "Running" and len(placed) < known.least:
            self._break(known, f"{pod['metadata']['name']} runs, and {len(placed)} of {known.least} have a node")

    def _see_child(self, known: _Known, changed: Changed) -> None:
        child = f"{changed.served.kind.kind} {changed.new['metadata']['name']}"
        if changed.type == "DELETED":
            known.there.discard(child)
        else:
            known.there.add(child)
        if changed.served.kind == JOB:
            self._see_worker_job(known, changed)

    def _see_worker_job(self, known: _Known, changed: Changed) -> None:
        name, attempt = changed.new["metadata"]["name"], int(changed.new["metadata"]["labels"][ATTEMPT])
        if _is_trouble(changed):
            known.troubled.add(attempt)
        if changed.type == "DELETED" and attempt == known.forgotten:
            known.forgotten = None
        if "Complete" in _true_in(changed.new.get("status", {})) and attempt not in known.doubted:
            known.complete = name
        if changed.type != "ADDED":
            return
        self._see_new(known, f"Job {name}")
        if known.complete:
            self._break(known, f"Job {name} was created although all workers of Job {known.complete} were done")
        if earlier := sorted({other for other in known.pods.values() if other < attempt}):
            self._break(known, f"Job {name} was created while pods of attempt {earlier[0]} had not ended")

    def _see_new(self, known: _Known, child: str) -> None:
        """A child whose name belongs to one attempt, or to one try of the workspace."""
        if child in known.made:
            self._break(known, f"{child} was created twice")
        known.made.add(child)
        if known.ended or known.over:
            self._break(known, f"had ended as {known.ended or known.over}, and {child} was created")


def _forget(known: _Known, status: Json) -> None:
    """Takes note that the status is another one: it counts from there, in the attempt that runs or a later one."""
    restarts, attempt = status.get("restarts", {}), max((known.attempt, *known.pods.values()))
    known.incidents, known.causes = restarts.get("total", 0), Counter(restarts.get("byCause", {}))
    known.unknown = max(0, attempt - known.incidents)
    known.forgotten = None if known.ended else attempt
    known.over, known.ended = known.ended if known.there else "", ""
    if not known.there:  # nothing tells a job that was ended from one that never began
        known.made.clear()
        known.complete = ""
    known.resumes = known.losses_of_room = 0
    known.attempt = status.get("attempt", 0)
    known.counted.clear()


def _without_admission(job: Json | None) -> Json:
    """Returns what the job's own reconciler writes of a status."""
    status = (job or {}).get("status", {})
    return {field: value for field, value in status.items() if field != "admission"}


def _is_trouble(changed: Changed) -> bool:
    """Tells if a change shows that a worker, or its Job, failed, is being deleted or cannot be reached."""
    if changed.type == "DELETED" or "deletionTimestamp" in changed.new["metadata"]:
        return True
    before, after = ((body or {}).get("status", {}) for body in (changed.old, changed.new))
    turned = _true_in(after)
    failed = after.get("phase") == "Failed" or not turned.isdisjoint(("Failed", "FailureTarget"))
    return failed or ("Ready" in _true_in(before) and "Ready" not in turned)


def _true_in(status: Json) -> set[str]:
    """Returns the types of the conditions that are true."""
    return {one["type"] for one in status.get("conditions", ()) if one["status"] == "True"}


def at_rest(objects: Objects, kinds: Iterable[Served]) -> list[str]:
    """Returns what is left that should not be, once all jobs have ended."""
    return [*_unfinished(objects, kinds), *_leaked(objects)]


def without_queues(objects: Objects, kinds: Iterable[Served]) -> list[str]:
    """Returns what is left of the queues a while after all of them were deleted."""
    made = [served for served in kinds if served.kind in (TORCHRUN_QUEUE, KAI_QUEUE, CONFIG_MAP)]
    return [
        f"{served.kind} {body['metadata']['name']}: is there although all queues were deleted"
        for served in made
        for body in objects.all(served)
    ]


def _unfinished(objects: Objects, kinds: Iterable[Served]) -> Iterable[str]:
    served = next(one for one in kinds if one.kind == TORCHRUN_JOB)
    for job in objects.all(served):
        phase = job.get("status", {}).get("phase", "")
        if phase not in TERMINAL:
            conditions = job.get("status", {}).get("conditions", ())
            told = [f"{one['type']}={one['reason']}" for one in conditions if one["status"] != "True"]
            yield f"{job['metadata']['name']}: is {phase or 'new'} at the end of the day: {', '.join(told)}"


def _leaked(objects: Objects) -> Iterable[str]:
    for uid in objects.uids():
        served, body = objects.by_uid(uid) or (None, {})
        if served is None:
            continue
        meta, name = body["metadata"], f"{served.kind} {body['metadata']['name']}"
        for owner in meta.get("ownerReferences", ()):
            if objects.by_uid(owner["uid"]) is None:
                yield f"{name}: its owner {owner['kind']} {owner['name']} is gone"
        job_uid = meta.get("labels", {}).get(JOB_UID)
        if job_uid and objects.by_uid(job_uid) is None and served.kind != PVC:
            yield f"{name}: its TorchrunJob is gone"
        if job_uid and served.kind == POD and body["status"].get("phase") not in ("Succeeded", "Failed"):
            yield f"{name}: runs although its job has ended"
        if "deletionTimestamp" in meta:
            yield f"{name}: is being deleted for ever"
