"""The kubelets of all nodes: each pod that is bound goes through the play that a script gives it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from torchctl.api.kube import POD, PVC
from torchctl.runtime.kinds import Key
from torchctl.testing.fake.objects import Body, Changed, key_of
from torchctl.testing.nodekinds import Pod
from torchctl.testing.podstatus import Record, status_of
from torchctl.testing.script import LoseNode, Pause, Play, PodReport, Script, Show, Step, finish, overdue, perform
from torchctl.testing.sim.component import Component
from torchctl.testing.sim.controllers.nodes import mark
from torchctl.testing.sim.controllers.volumes import claims_of
from torchctl.testing.sim.reading import read_pod
from torchctl.testing.sim.world import World

__all__ = ["Kubelets"]

MANAGER = "kubelet"
SILENCE_S = 45.0
"""Seconds of silence after which the control plane gives up on a node."""


@dataclass(slots=True, eq=False)
class _Life:
    """One pod on a node, from its binding until it is gone."""

    key: Key
    uid: str
    node: str
    pod: Pod
    play: Play
    record: Record
    steps: Iterator[Step]
    report: PodReport | None = None
    told: PodReport | None = None
    stops: bool = False
    over: bool = False
    deadline_s: int | None = None


class Kubelets(Component):
    """Plays all nodes.

    Attributes:
        script: Decides what happens to pods that begin from now on.
        skew_s: By how much a node's clock is ahead, by the node's name.
    """

    def __init__(self, world: World, script: Script) -> None:
        super().__init__(world, "kubelets", 0.01, 0.5)
        self.script = script
        self.skew_s: dict[str, float] = {}
        self.silent: set[str] = set()
        self._removed: set[str] = set()
        self._lives: dict[str, _Life] = {}
        self._addresses = 0

    def lose(self, node: str) -> None:
        """Silences a node; the control plane notices it later. Its pods run on, and nobody hears of it."""
        self.silent.add(node)
        self.world.agenda.after(SILENCE_S, lambda: self._give_up(node))

    def restore(self, node: str) -> None:
        """Lets a node speak again: it tells what happened meanwhile, and how its pods are if others said otherwise."""
        if node in self._removed:
            return
        self.silent.discard(node)
        mark(self.world, node, answers=True)
        for life in self._lives.values():
            if life.node == node:
                life.told = None
        for pod in self.world.all(POD):
            if pod["spec"].get("nodeName") == node:
                self.wake(pod["metadata"]["uid"])

    def remove(self, node: str) -> None:
        """Silences a node for ever, whose machine is gone."""
        self._removed.add(node)
        self.silent.add(node)

    def fail(self, uid: str, exit_code: int, reason: str | None = None) -> bool:
        """Ends the main containers of a running pod now. Returns False if it does not run."""
        life = self._lives.get(uid)
        if life is None or life.stops or life.over or life.report is None or life.report.phase != "Running":
            return False
        life.over = True
        life.report = finish(life.pod, Play(stop_exit_code=exit_code, reason=reason), life.report)
        self.wake(uid)
        return True

    def evict(self, uid: str, message: str) -> bool:
        """Evicts a running pod for want of a resource. Returns False if it does not run."""
        life = self._lives.get(uid)
        if life is None or not self.fail(uid, 137):
            return False
        assert life.report is not None
        life.report = _evicted(life.report, message)
        return True

    def _give_up(self, node: str) -> None:
        if node in self.silent - self._removed:
            mark(self.world, node, answers=False)

    def on_change(self, changed: Changed) -> None:
        if changed.served.kind == POD and changed.new["spec"].get("nodeName"):
            uid = changed.new["metadata"]["uid"]
            if changed.type == "DELETED":
                self._lives.pop(uid, None)
            elif uid not in self._lives or _asks(changed):
                self.wake(uid)

    def look(self, key: Any) -> None:
        found = self.world.objects.by_uid(key)
        if found is None:
            return
        body = found[1]
        if body["spec"]["nodeName"] in self.silent:
            return
        life = self._lives.get(key) or self._begin(body)
        deadline_s = body["spec"].get("activeDeadlineSeconds")
        if deadline_s is not None and life.deadline_s is None:
            life.deadline_s = deadline_s
            age_s = (self._now(life) - life.record.bound_at).total_seconds()
            self.world.agenda.after(deadline_s - age_s, lambda: self._expire(life))
        if "deletionTimestamp" in body["metadata"] and not life.stops:
            self._stop(life, body)
        if life.report is not None and life.report is not life.told:
            self._tell(life)

    def _begin(self, body: Body) -> _Life:
        self._addresses += 1
        number, node = self._addresses, body["spec"]["nodeName"]
        pod = read_pod(body)
        play = self.script(pod)
        record = Record(f"10.128.{number >> 8 & 255}.{number & 255}", self.world.clock.now())
        life = _Life(key_of(body), pod.metadata.uid, node, pod, play, record, perform(pod, play))
        record.bound_at = self._now(life)
        self._lives[life.uid] = life
        if not pod.is_terminal:
            self._advance(life)
        return life

    def _now(self, life: _Life) -> Any:
        return self.world.clock.now() + timedelta(seconds=self.skew_s.get(life.node, 0.0))

    def _advance(self, life: _Life) -> None:
        """Goes on with a play until it pauses."""
        while not (life.stops or life.over) and life.uid in self._lives:
            if life.report is not None and life.report.phase == "Pending" and not self._has_volumes(life):
                self.world.agenda.after(1.0, lambda: self._advance(life))
                return
            step = next(life.steps, None)
            match step:
                case None:
                    return
                case Pause(seconds):
                    self.world.agenda.after(seconds, lambda: self._advance(life))
                    return
                case Show(report):
                    life.report = report
                    life.over = report.is_terminal
                    self.wake(life.uid)
                case LoseNode():
                    self.lose(life.node)

    def _has_volumes(self, life: _Life) -> bool:
        found = self.world.objects.by_uid(life.uid)
        claims = [self.world.find(PVC, key) for key in claims_of(found[1])] if found is not None else []
        return all(claim is not None and claim["status"].get("phase") == "Bound" for claim in claims)

    def _expire(self, life: _Life) -> None:
        """Ends a pod at the age of its activeDeadlineSeconds."""
        if life.stops or life.over or life.uid not in self._lives:
            return
        ended = finish(life.pod, life.play, life.report)
        life.over = True
        if ended is not None:
            life.report = overdue(ended)
            self.wake(life.uid)

    def _stop(self, life: _Life, body: Body) -> None:
        life.stops = True
        grace_s = float(body["metadata"].get("deletionGracePeriodSeconds") or 0)
        wait_s = 0.0 if life.over else min(life.play.stop_s, grace_s)
        self.world.agenda.after(wait_s, lambda: self._end(life))

    def _end(self, life: _Life) -> None:
        """Tells how a pod that was told to stop has ended, and removes it."""
        if life.uid not in self._lives:
            return
        if self.world.away or life.node in self.silent:
            self.world.agenda.after(1.0, lambda: self._end(life))
            return
        if not life.over:
            life.over = True
            life.report = finish(life.pod, life.play, life.report) or life.report
        if life.report is not None and life.report is not life.told:
            self._tell(life)
        self.world.agenda.after(self.chance.uniform(0.01, 0.5), lambda: self._remove(life))

    def _remove(self, life: _Life) -> None:
        if life.uid not in self._lives:
            return
        if self.world.away or life.node in self.silent:
            self.world.agenda.after(1.0, lambda: self._remove(life))
            return
        self.world.delete(POD, life.key, gracePeriodSeconds=0, preconditions={"uid": life.uid})

    def _tell(self, life: _Life) -> None:
        """Writes the pod's status; conditions of others stay, and a pod that is told of has been scheduled."""
        assert life.report is not None
        report = life.told = life.report
        found = self.world.objects.by_uid(life.uid)
        if found is None:
            return
        old = found[1].get("status", {})
        if old.get("phase") in ("Succeeded", "Failed"):
            return
        now = self._now(life)
        status = status_of(life.pod, report, life.record, now)
        mine = {one["type"] for one in status["conditions"]} | {"PodScheduled"}
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self.world.now}
        others = [one for one in old.get("conditions", ()) if one["type"] not in mine]
        conditions = [*others, scheduled, *status["conditions"]]
        self.world.report(POD, life.key, {**old, **status, "conditions": conditions}, MANAGER)


def _asks(changed: Changed) -> bool:
    """Tells if a change of a pod asks its kubelet for something."""
    assert changed.old is not None
    asked = ("deletionTimestamp" in changed.new["metadata"]) != ("deletionTimestamp" in changed.old["metadata"])
    return asked or bool(changed.new["spec"] != changed.old["spec"])


def _evicted(report: PodReport, message: str) -> PodReport:
    return PodReport("Failed", report.init, report.main, "Evicted", message, "TerminationByKubelet")
