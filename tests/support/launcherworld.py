"""Launchers and a companion without processes, network or clock: the real rules of both sides under any history.

Each launcher is its real `Core`, the companion its real `Membership`. What a history does with them is a list of
moves; each is small, so that anything may happen between any two.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from torchctl.launcher.launcher import Core
from torchctl.workspace.membership.core import Membership, Settings, Target
from torchctl.workspace.membership.messages import Order, OrderKind, Report

__all__ = ["MOVES", "Node", "Scene"]

WAIT = Order(OrderKind.WAIT)
SETTINGS = Settings()


class Node:
    """A launcher, and what it waits for."""

    def __init__(self, scene: "Scene", index: int, incarnation: str, revision: str) -> None:
        self.scene, self.index = scene, index
        self.facts: dict[str, Any] = {
            "index": index,
            "incarnation": incarnation,
            "started": int(scene.now * 1000),
            "attempt": 0,
            "nodes": scene.size + scene.room,
            "expected": scene.expected,
            "least": scene.least,
            "address": f"10.0.0.{index}",
            "port": 29500,
            "budget": scene.budget,
        }
        self.core = Core(self.facts, revision, scene.now)
        self.seq = 0
        self.tasks: list[tuple[str, str]] = []
        self.stopping = False
        self.ended = False
        self.starts: list[dict[str, Any] | None] = []

    def report(self) -> Report:
        self.seq += 1
        return msgspec.convert(self.core.report() | {"seq": self.seq}, Report)

    def obey(self, order: Order) -> None:
        self.do(self.core.answer(msgspec.to_builtins(order), self.scene.now))

    def do(self, actions: Iterable[Any]) -> None:
        for kind, *args in actions:
            if kind == "start":
                self.starts.append(args[0])
                self.scene.started(self, args[0])
            elif kind in ("stage", "swap"):
                self.tasks = [task for task in self.tasks if task[0] != "stage" or kind != "stage"]
                self.tasks.append((kind, args[0]))
            elif kind == "stop":
                self.stopping = True
            elif kind in ("exit", "fail"):
                self.ended = True

    def finish_task(self, error: str = "") -> None:
        if self.tasks:
            kind, revision = self.tasks.pop(0)
            if kind == "stage":
                stale = "" if revision == self.scene.claim else "another revision"
                self.do(self.core.staged_or_not(revision, error or stale, self.scene.now))
            else:
                self.do(self.core.swapped(revision, "", self.scene.now))

    def program_ends(self, code: int) -> None:
        if self.core.child:
            self.stopping = False
            self.do(self.core.gone(code, self.scene.now))

    def finish_stop(self) -> None:
        if self.stopping:
            self.program_ends(1)


class Scene:
    """A job of `size` nodes, with the claim's tree and, most of the time, a companion.

    Args:
        room: how many nodes more it may have.
        expected: how many it began with; 0 if the launchers do not know.
    """

    def __init__(self, size: int, least: int, budget: int = 0, *, room: int = 0, expected: int = 0) -> None:
        self.size, self.least, self.budget, self.room, self.expected = size, least, budget, room, expected
        self.now = 1000.0
        self.claim = "r1"
        self.restart = True
        self.companion: Membership | None = None
        self.made = self.revisions = 1
        self.worlds: dict[str, dict[int, str]] = {}
        self.shapes: dict[str, tuple[object, ...]] = {}
        self.late: list[Report] = []
        self.nodes = [self.node(index) for index in range(size)]
        self.companion_starts()

    def node(self, index: int) -> Node:
        self.made += 1
        return Node(self, index, f"i{self.made}", self.claim)

    def started(self, node: Node, world: dict[str, Any] | None) -> None:
        """The promise: one id stands for one tree, one list of members, and one start of each."""
        if world is None:
            return
        assert node.core.revision == world["revision"], "another tree is in place"
        assert not node.stopping
        shape = (world["revision"], world["nodes"], world["master"], world["port"], world["epoch"])
        assert self.shapes.setdefault(world["id"], shape) == shape, "one id, two worlds"
        members = self.worlds.setdefault(world["id"], {})
        assert world["rank"] not in members, "one rank, two launchers, or one that starts twice"
        assert node.facts["incarnation"] not in members.values()
        members[world["rank"]] = node.facts["incarnation"]
        assert world["rank"] < world["nodes"]

    # The moves

    def speak(self, node: Node) -> None:
        """A whole exchange: the report arrives, and the order too."""
        self.hear(node.report(), node)

    def ask(self, node: Node) -> None:
        """The report arrives, the order does not."""
        if self.companion:
            self.companion.heard(node.report(), self.now)
            self.companion.orders(self.now)

    def delay(self, node: Node) -> None:
        """The report is on its way for long; the launcher has given it up."""
        self.late = [*self.late[-3:], node.report()]

    def arrive(self, node: Node) -> None:
        """A late or repeated report arrives, whose answer nobody waits for."""
        if self.companion:
            for report in self.late:
                self.companion.heard(report, self.now)
            self.companion.orders(self.now)

    def drop(self, node: Node) -> None:
        if self.companion:
            self.companion.dropped(node.facts["incarnation"], node.seq, self.now)

    def hear(self, report: Report, node: Node) -> None:
        if self.companion and self.companion.heard(report, self.now) and not node.ended:
            order = self.companion.orders(self.now).get(report.incarnation, WAIT)
            if order.name != report.order:
                node.obey(order)

    def work(self, node: Node) -> None:
        node.finish_task()

    def fail_work(self, node: Node) -> None:
        node.finish_task("the disk is full" if node.tasks and node.tasks[0][0] == "stage" else "")

    def stop(self, node: Node) -> None:
        node.finish_stop()

    def crash(self, node: Node) -> None:
        if not node.stopping:
            node.program_ends(1)

    def replace(self, node: Node) -> None:
        """The pod is lost, and another one takes its index."""
        self.nodes[node.index] = self.node(node.index)

    def companion_dies(self, node: Node | None = None) -> None:
        self.companion, self.late = None, []

    def companion_starts(self, node: Node | None = None) -> None:
        if self.companion is None:
            self.companion = Membership(self.now, self.target(), SETTINGS)

    def commit(self, node: Node) -> None:
        self.revisions += 1
        self.claim = f"r{self.revisions}"
        if self.companion:
            self.companion.commit(self.target())

    def second(self, node: Node | None = None) -> None:
        self.wait(1)

    def minute(self, node: Node) -> None:
        self.wait(60)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for node in self.nodes:
            if not node.ended:
                node.do(node.core.tick(self.now))
        if self.companion:
            self.companion.orders(self.now)

    def target(self) -> Target:
        return Target(self.claim, self.restart)

    # What follows once nothing goes wrong any more

    def calm(self, rounds: int = 200) -> bool:
        """Let everybody work until all run in one world with the claim's tree; False if that does not come about."""
        self.companion_starts()
        for _ in range(rounds):
            for index, node in enumerate(self.nodes):
                if node.ended:
                    self.nodes[index] = self.node(index)
            for node in self.nodes:
                node.finish_task()
                node.finish_stop()
                if not node.ended:
                    self.speak(node)
            if self.together():
                return True
            self.wait(0.5)
        return False

    def together(self) -> bool:
        worlds = {node.core.world["id"] if node.core.world else None for node in self.nodes}
        running = all(node.core.state == "running" and node.core.runs == self.claim for node in self.nodes)
        return running and len(worlds) == 1


MOVES = (
    *("speak",) * 6,
    *("work",) * 3,
    *("stop",) * 2,
    "ask",
    "delay",
    "arrive",
    "drop",
    "fail_work",
    "crash",
    "replace",
    "companion_dies",
    "companion_starts",
    "commit",
    "second",
    "minute",
)
