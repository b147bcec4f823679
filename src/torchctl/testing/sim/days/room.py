"""The rules of room on a day with the coordinator: who is let in finds places, and places do not stay empty.

They go by the nodes and pods as they are, and count generously: what breaks a rule here is wrong by any count. The
operator sees everything a little later, and nodes not at the same time as pods: there is a watch for each. So the nodes
of a moment ago count as well as those of now, and so do the pods, in any combination. Pure.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import gcd
from typing import Any, NamedTuple

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.kube import POD
from torchctl.api.labels import ATTEMPT, JOB_UID, ROLE, ROLE_WORKER
from torchctl.runtime.clock import Clock
from torchctl.testing.fake.objects import Changed
from torchctl.testing.fleet import GPU
from torchctl.testing.sim.days.gang import Gang
from torchctl.testing.sim.days.jobs import gpus_per_pod
from torchctl.testing.sim.kinds import NODE

__all__ = ["LONGEST_EMPTY_S", "Rooms"]

Json = dict[str, Any]

LONGEST_LATE_S = 600.0
"""The most seconds by which the operator's view may be late: parted for minutes, until a silent watch is given up."""
LONGEST_EMPTY_S = 1200.0
"""Seconds for which the first of a queue may wait although there is room for it and nobody else: a decision may need
another leader, or a job was let in for nothing before."""


class Room(NamedTuple):
    """What was free at a time.

    Args:
        nodes: The GPUs of each node that takes pods.
        used: The GPUs of the pods on each node that has some.
        foreign: Nodes with a pod that has GPUs and is not the coordinator's.
        placed: Pods of each gang that had a node, or were done, by its uid.
    """

    at_s: float
    nodes: Mapping[str, int]
    used: Mapping[str, int]
    foreign: frozenset[str]
    placed: Mapping[str, int]

    @property
    def empty(self) -> int:
        """Nodes without a pod that has GPUs."""
        return sum(map(self.is_empty, self.nodes))

    def is_empty(self, name: str) -> bool:
        """Whether no pod on a node has GPUs."""
        return not self.used.get(name)

    @property
    def free(self) -> dict[str, int]:
        """The GPUs that are free on each node that has some."""
        left = {name: amount - self.used.get(name, 0) for name, amount in self.nodes.items()}
        return {name: gpus for name, gpus in left.items() if gpus > 0}

    @property
    def gpus(self) -> int:
        """GPUs that are free on all nodes together."""
        return sum(amount - self.used.get(name, 0) for name, amount in self.nodes.items())

    @property
    def ours(self) -> int:
        """Nodes without a pod that has GPUs and is not the coordinator's."""
        return len(self.nodes.keys() - self.foreign)


@dataclass(slots=True)
class _Pod:
    node: str
    gpus: int
    gang: str
    attempt: int
    done: bool = False


@dataclass(slots=True)
class Rooms:
    """Follows pods and nodes, and adds to `broken` what breaks a rule.

    Args:
        gangs: The gangs of the coordinator by their uid, which somebody else keeps up to date.
        late_s: Returns the seconds by which the operator's view may be late now.
    """

    clock: Clock
    broken: list[str]
    gangs: Mapping[str, Gang]
    late_s: Callable[[], float]
    _gpus: dict[str, int] = field(default_factory=dict)
    _pods: dict[str, _Pod] = field(default_factory=dict)
    _completed: dict[tuple[str, int], int] = field(default_factory=dict)
    """Pods that succeeded and are gone, by gang and attempt: none is made in their place."""
    _past: deque[Room] = field(default_factory=deque)
    _empty_since_s: dict[str, float] = field(default_factory=dict)

    def on_change(self, changed: Changed) -> None:
        """Sees a change; those of TorchrunJobs before `gangs` is brought up to date with them."""
        if changed.served.kind == NODE:
            self._see_node(changed)
        elif changed.served.kind == POD:
            self._see_pod(changed)
        elif changed.served.kind != TORCHRUN_JOB:
            return
        now = self._now()
        while len(self._past) > 1 and self._past[1].at_s < now.at_s - LONGEST_LATE_S:
            self._past.popleft()
        self._past.append(now)

    def see_let_in(self, gang: Gang) -> None:
        """Judges a gang that has just been let in; one without GPUs, or for which nodes are brought, needs no room."""
        if gang.autoscaled or not gang.gpus:
            return
        others = [one for one in self._being_placed() if one.uid != gang.uid]
        if not any(_fits(gang, room, others) for room in self._views()):
            room = self._past[-1]
            self.broken.append(f"{gang.name}: was let in with {gang.pods} pods; {room.empty} nodes are empty")

    def see_waiting(self, waiting: Iterable[Gang]) -> None:
        """Judges gangs that no quota and nobody before them keeps out."""
        now, there = self._now(), set()
        for gang in waiting:
            if self._has_room(gang, now):
                there.add(gang.uid)
                since_s = self._empty_since_s.setdefault(gang.uid, now.at_s)
                if now.at_s - since_s > LONGEST_EMPTY_S:
                    self.broken.append(f"{gang.name}: waits, and {now.empty} nodes have been empty for long")
        self._empty_since_s = {uid: since_s for uid, since_s in self._empty_since_s.items() if uid in there}

    def surely_fits(self, gang: Gang) -> bool:
        """Whether there is room for a gang now, by any count."""
        return self._has_room(gang, self._now())

    def is_calm(self) -> bool:
        """Whether nothing is still to be placed for which there may be a node."""
        now = self._now()
        return not any(
            one.pods > now.placed.get(one.uid, 0) and (now.gpus or not one.autoscaled) for one in self._being_placed()
        )

    def nodes_of(self, uid: str, attempt: int) -> int:
        """Returns the pods of a gang that have a node now, of an attempt and of those before it."""
        return sum(pod.gang == uid and pod.attempt <= attempt and not pod.done for pod in self._pods.values())

    def waits_for_room(self, gang: Gang) -> bool:
        """Whether a gang has had no room of late, and would have had it if only those stayed that are being placed."""
        return all(
            gang.pods + self._missing(room) <= room.ours and not self._has_room(gang, room) for room in self._of_late()
        )

    def _of_late(self) -> list[Room]:
        """Returns what the operator may think is now, the newest first."""
        since_s, found = self.clock.monotonic() - self.late_s(), list[Room]()
        for room in reversed(self._past):
            found.append(room)
            if room.at_s < since_s:
                break  # it lasted until then
        return found

    def _views(self) -> Iterator[Room]:
        """Yields what the operator may think is now, with nodes that it sees sooner or later than pods."""
        rooms = self._of_late()
        yield from rooms
        nodes = {id(room.nodes): room.nodes for room in rooms}
        yield from (room._replace(nodes=seen) for seen in nodes.values() for room in rooms)

    def _is_coordinated(self, uid: str) -> bool:
        return uid in self.gangs and self.gangs[uid].coordinated

    def _has_room(self, gang: Gang, room: Room) -> bool:
        """Whether the gang fits even if each missing pod of the others takes a whole node."""
        return gang.pods <= room.empty - self._missing(room)

    def _missing(self, room: Room) -> int:
        return sum(max(0, one.pods - room.placed.get(one.uid, 0)) for one in self._being_placed())

    def _being_placed(self) -> Iterable[Gang]:
        """Returns the gangs whose missing pods are still to come."""
        return [one for one in self.gangs.values() if one.holds and not one.leaves]

    def _see_node(self, changed: Changed) -> None:
        name = changed.new["metadata"]["name"]
        others = {other: gpus for other, gpus in self._gpus.items() if other != name}
        if changed.type != "DELETED" and not changed.new.get("spec", {}).get("taints"):
            others[name] = int(changed.new.get("status", {}).get("allocatable", {}).get(GPU, 0))
        if others != self._gpus:
            self._gpus = others  # never altered: what was seen before names the nodes of then

    def _see_pod(self, changed: Changed) -> None:
        pod, uid = changed.new, changed.new["metadata"]["uid"]
        given, phase = pod["metadata"].get("labels", {}), pod["status"].get("phase")
        mine = given.get(ROLE) == ROLE_WORKER
        gang, attempt = (given.get(JOB_UID, ""), int(given.get(ATTEMPT, 0))) if mine else ("", 0)
        if changed.type == "DELETED" or not pod["spec"].get("nodeName"):
            self._pods.pop(uid, None)
            if gang in self.gangs and phase == "Succeeded":
                self._completed[gang, attempt] = self._completed.get((gang, attempt), 0) + 1
            return
        done = phase in ("Succeeded", "Failed")
        self._pods[uid] = _Pod(pod["spec"]["nodeName"], 0 if done else gpus_per_pod(pod), gang, attempt, done)

    def _now(self) -> Room:
        used, placed, foreign = dict[str, int](), dict[str, int](), set[str]()
        for pod in self._pods.values():
            if pod.gpus:
                used[pod.node] = used.get(pod.node, 0) + pod.gpus
                if not self._is_coordinated(pod.gang):
                    foreign.add(pod.node)
            known = self.gangs.get(pod.gang)
            if known is not None and known.attempt == pod.attempt:
                placed[pod.gang] = placed.get(pod.gang, 0) + 1
        for (gang, attempt), pods in self._completed.items():
            if gang in self.gangs and self.gangs[gang].attempt == attempt:
                placed[gang] = placed.get(gang, 0) + pods
        return Room(self.clock.monotonic(), self._gpus, used, frozenset(foreign), placed)


def _fits(gang: Gang, room: Room, others: Iterable[Gang]) -> bool:
    """Whether the gang found room beside the missing pods of others, if all of them were placed as well as can be.

    Nobody waits for those pods of others that find no node themselves. Whole nodes are counted first, and then the GPUs
    of all nodes, as if those of a pod could be on several.
    """
    free = room.free
    lacks = [one for one in others if one.gpus for _ in range(one.pods - room.placed.get(one.uid, 0))]
    unit = gcd(gang.gpus, *(one.gpus for one in lacks))
    mine = [_usable(free, gang)] * gang.pods
    whole = [_usable(free, one) for one in lacks if one.whole_nodes]
    if gang.whole_nodes and not _find_places(mine, whole, {name: int(room.is_empty(name)) for name in free}):
        return False
    units = [_usable(free, one) for one in lacks for _ in range(one.gpus // unit)]
    return _find_places(mine * (gang.gpus // unit), units, {name: gpus // unit for name, gpus in free.items()})


def _usable(free: Mapping[str, int], gang: Gang) -> frozenset[str]:
    """Returns the nodes on which a pod of the gang finds its place."""
    return frozenset(name for name, gpus in free.items() if gang.gpus <= gpus and gang.may_use(name))


def _find_places(mine: Iterable[frozenset[str]], others: Iterable[frozenset[str]], places: Mapping[str, int]) -> bool:
    """Whether all of mine find a place although as many others as can have one, each given by where it may be.

    Whoever has a place keeps one, maybe another one (augmenting paths: Kuhn 1955).
    """
    there: dict[str, list[frozenset[str]]] = {name: [] for name in places}

    def find(one: frozenset[str], tried: set[str]) -> bool:
        for name in one:
            if name in tried:
                continue
            tried.add(name)
            if len(there[name]) < places[name]:
                there[name].append(one)
                return True
            for at, other in enumerate(there[name]):
                if find(other, tried):
                    there[name][at] = one
                    return True
        return False

    for other in others:
        find(other, set())
    return all(find(one, set()) for one in mine)
