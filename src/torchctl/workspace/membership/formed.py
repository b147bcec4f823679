"""Forms worlds: who is in one, by rank, and the name that nothing but these members, their addresses and tree has."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from .messages import Order, OrderKind, Report, State, World

__all__ = ["Formed", "form", "half_told", "is_startable"]

_PORTS = 8
"""Ports that worlds use in turn, from the job's port on: an orphan of one world must not be in the next one's way."""
_LAST_PORT = 65535


@dataclass(frozen=True)
class Formed:
    """A world that was formed here, with the reports of its members by rank."""

    world: World
    members: tuple[Report, ...]

    def order(self, incarnation: str) -> Order | None:
        """Returns what a member is told, None for others."""
        for rank, member in enumerate(self.members):
            if member.incarnation == incarnation:
                return Order(OrderKind.RUN, world=msgspec.structs.replace(self.world, rank=rank))
        return None

    def can_come_about(self, reports: Mapping[str, Report]) -> bool:
        """Whether each member, by its report of now, runs in the world already or still can."""
        there = (reports.get(member.incarnation) for member in self.members)
        return all(report is not None and _can_join(report, self.world) for report in there)

    def has_come_about(self, reports: Mapping[str, Report]) -> bool:
        """Whether each member has taken up its order."""
        there = (reports.get(member.incarnation) for member in self.members)
        return all(report is not None and report.epoch == self.world.epoch for report in there)


def form(members: list[Report], goal: str) -> Formed:
    """Forms the next world of these members, rank by rank, with the tree `goal`."""
    epoch = max(report.epoch for report in members) + 1
    first = members[0]
    worlds = [report.world for report in members if report.world]
    failed = any(report.state is State.EXITED and report.exit and report.runs == goal for report in members)
    restarts = max((world.restarts for world in worlds if world.revision == goal), default=0) + failed
    world = World(
        id=_name(members, epoch, goal),
        epoch=epoch,
        revision=goal,
        nodes=len(members),
        rank=0,
        master=first.address,
        port=min(first.port, _LAST_PORT - _PORTS + 1) + epoch % _PORTS,
        restarts=restarts,
    )
    return Formed(world, tuple(members))


def half_told(candidates: list[Report], goal: str, dissolved: set[str]) -> Formed | None:
    """Returns the world that a companion before this one formed, and told only some of its members of."""
    worlds = {report.world.id: report.world for report in candidates if report.state is State.RUNNING and report.world}
    if len(worlds) != 1 or worlds.keys() & dissolved or not any(map(is_startable, candidates)):
        return None
    [world] = worlds.values()
    same = world.id == _name(candidates, world.epoch, goal)
    return Formed(world, tuple(candidates)) if same and all(_can_join(one, world) for one in candidates) else None


def is_startable(report: Report) -> bool:
    """Whether a launcher waits to be told to run."""
    return report.state in (State.READY, State.EXITED)


def _name(members: list[Report], epoch: int, goal: str) -> str:
    """Returns the id of a world: each other member and each other address makes another one."""
    named = "".join(f"{report.index} {report.incarnation} {report.address}\n" for report in members)
    digest = hashlib.sha256(f"{goal}\n{named}".encode()).hexdigest()[:12]
    return f"{members[0].attempt}-{epoch}-{digest}"


def _can_join(report: Report, world: World) -> bool:
    """Whether a launcher runs in a world already, or still can. The world was formed on an earlier report of it."""
    if report.epoch == world.epoch:
        return report.state is State.RUNNING
    return report.epoch < world.epoch and is_startable(report) and report.revision == world.revision
