"""Lives through a day: does what it says at its times, watches the rules, and waits for everything to come to rest."""

from collections import Counter
from dataclasses import dataclass
from functools import partial

import anyio

from torchctl.api.job import TORCHRUN_JOB
from torchctl.api.phases import TERMINAL
from torchctl.runtime.kinds import EVENT, LEASE
from torchctl.testing import virtualtime
from torchctl.testing.fake.objects import Changed
from torchctl.testing.fleet import default_nodes
from torchctl.testing.sim.cluster import Cluster
from torchctl.testing.sim.controllers.autoscaler import Autoscaler
from torchctl.testing.sim.days.actions import Day, Fate
from torchctl.testing.sim.days.causes import unfounded
from torchctl.testing.sim.days.doing import Doing
from torchctl.testing.sim.days.drawing import NODES
from torchctl.testing.sim.days.jobs import script
from torchctl.testing.sim.days.letting import Letting
from torchctl.testing.sim.days.losses import Losses
from torchctl.testing.sim.days.resting import Motion
from torchctl.testing.sim.days.rules import Rules, at_rest, without_queues
from torchctl.testing.sim.days.telling import Telling
from torchctl.testing.sim.journal import Journal
from torchctl.testing.sim.operators import operator_of

__all__ = ["Told", "live"]

STEP_S = 60.0
QUIET_S = 600.0


@dataclass(frozen=True, slots=True)
class Told:
    """How a day went.

    Attributes:
        broken: What broke a rule; empty if the day was fine.
        seconds: Its length in simulated seconds, the time until everything was at rest included.
        changes: The number of changes of objects.
        digest: The digest of all changes.
        ends: The number of jobs by their end.
        incidents: The number of incidents by cause.
    """

    broken: tuple[str, ...]
    seconds: float
    changes: int
    digest: str
    ends: Counter[str]
    incidents: Counter[str]


def live(day: Day) -> Told:
    """Lives through a day in virtual time."""
    return virtualtime.run(partial(_live, day))


async def _live(day: Day) -> Told:
    fates, losses = dict[str, Fate](), Losses()
    cluster = Cluster(day.seed, operator_of(day), script=script(fates), nodes=default_nodes(NODES))
    journal, rules = Journal(cluster.world), Rules(losses)
    telling = Telling(rules.broken, losses)
    watching = (rules.on_change, telling.on_change, lambda changed: rules.see_leaders(cluster.leaders))
    cluster.world.objects.listeners += watching
    if day.coordinated:
        Autoscaler(cluster.world, cluster.add_node, cluster.remove_node)
        letting = Letting(cluster.world.clock, rules.broken, partial(_behind_s, cluster), losses)
        cluster.world.objects.listeners.append(letting.on_change)
    broken: list[str] = []
    async with cluster.run(replicas=2):
        doing = Doing(cluster, fates, losses)
        doing.begin(day)
        await _until(day.hours * 3600.0, rules)
        if day.rests and not rules.broken:
            broken = await _come_to_rest(cluster, doing, rules)
        seconds = anyio.current_time()
    causes = rules.causes
    broken += unfounded(day, causes)
    incidents = sum(causes.values(), Counter[str]())
    return Told((*rules.broken, *broken), seconds, journal.changes, journal.digest, rules.ends, incidents)


def _behind_s(cluster: Cluster) -> float:
    """Returns the seconds by which the leader's view may be old because a watch of it was silent."""
    return max((leader.wire.behind_s for leader in cluster.leaders), default=0.0)


async def _until(seconds: float, rules: Rules) -> None:
    """Waits for a moment, or until a rule is broken."""
    while anyio.current_time() < seconds and not rules.broken:  # noqa: ASYNC110 - in virtual time it costs nothing
        await anyio.sleep(min(STEP_S, seconds - anyio.current_time()))


async def _come_to_rest(cluster: Cluster, doing: Doing, rules: Rules) -> list[str]:
    """Ends all trouble, waits until all jobs have ended, and looks for what goes on or is left all the same."""
    doing.tidy_up()
    motion = Motion(cluster.world.clock)
    cluster.world.objects.listeners.append(motion.on_change)
    while not (motion.is_in_vain or rules.broken) and _has_work(cluster):
        await anyio.sleep(STEP_S)
        doing.delete_waiting()
    if rules.broken:
        return []
    await anyio.sleep(QUIET_S)
    broken = [*await _unrest(cluster), *at_rest(cluster.world.objects, cluster.world.server.kinds)]
    if not broken:
        doing.delete_queues()
        await anyio.sleep(QUIET_S)
        broken += without_queues(cluster.world.objects, cluster.world.server.kinds)
    return broken


async def _unrest(cluster: Cluster) -> list[str]:
    """Returns the writes of ten minutes in which nothing is to be done, and how many reads there were."""
    world = cluster.world
    seen: list[str] = []

    def note(changed: Changed) -> None:
        if changed.served.kind not in (EVENT, LEASE):
            seen.append(f"{changed.served.kind} {changed.new['metadata']['name']}: was {changed.type} at rest")

    world.objects.listeners.append(note)
    before = len(world.server.requests)
    await anyio.sleep(QUIET_S)
    world.objects.listeners.remove(note)
    requests = [*world.server.requests][before:]
    asked = [one for one in requests if "/leases/" not in one.path and "watch" not in dict(one.query)]
    return [*seen, *(f"{one.method} {one.path} at rest" for one in asked if one.method != "GET")]


def _has_work(cluster: Cluster) -> bool:
    jobs = cluster.world.all(TORCHRUN_JOB)
    return any(job.get("status", {}).get("phase") not in TERMINAL for job in jobs)
