"""Draws a day from a seed. Pure."""

import random
from collections.abc import Callable, Iterable, Iterator

from torchctl.testing.sim.days.actions import (
    Action,
    AddNode,
    AdjustQueue,
    BreakWatches,
    Compact,
    Day,
    Delete,
    DeleteChild,
    DeletePod,
    Evict,
    Fail,
    Fate,
    Intrude,
    KillLeader,
    LoseAnswers,
    LoseNode,
    LoseStatus,
    Outage,
    Part,
    Prioritise,
    RemoveNode,
    Resume,
    Scale,
    StopLeader,
    Submit,
    Suspend,
)
from torchctl.testing.sim.days.jobs import AUTOSCALED, COORDINATED, ELASTIC, KINDS, MOST_NODES, SHARED

__all__ = ["NODES", "draw"]

NODES = 8
HOUR_S = 3600.0
EXIT_CODES = (1, 2, 42, 126, 130, 137, 139, 143)

Draw = Callable[[random.Random, float, list[Submit]], Iterator[Action]]


def draw(seed: int, hours: float) -> Day:
    """Returns the day of a seed; on half of the days the coordinator lets jobs in."""
    chance, coordinated = random.Random(f"day {seed}"), seed % 2 == 0
    submits = [*_submits(chance, hours, COORDINATED if coordinated else KINDS)]
    actions: list[Action] = [*submits]
    for per_hour, happens in (*RATES, *(COORDINATED_RATES if coordinated else ())):
        for _ in range(_count(chance, per_hour * hours)):
            at_s = chance.uniform(0, hours * HOUR_S)
            known = [one for one in submits if one.at_s < at_s]
            actions += happens(chance, round(at_s, 3), known[-12:]) if known else ()
    return Day(seed, hours, tuple(sorted(actions, key=lambda action: action.at_s)), coordinated=coordinated)


def _count(chance: random.Random, expected: float) -> int:
    return int(expected) + (chance.random() < expected % 1)


def _submits(chance: random.Random, hours: float, kinds: Iterable[str]) -> Iterator[Submit]:
    names: list[str] = []
    times = sorted(chance.uniform(0, hours * HOUR_S) for _ in range(_count(chance, 14 * hours)))
    for number, at_s in enumerate(times):
        kind = chance.choice([*kinds])
        again = bool(names) and chance.random() < 0.1
        name = chance.choice(names) if again else f"{kind}-{number}"  # again: if it has been deleted by then
        after = chance.choice(names[-5:]) if kind == "chain" and names else ""
        yield Submit(round(at_s, 3), name, kind, chance.randint(1, MOST_NODES), _fate(chance), after=after)
        names.append(name)


def _fate(chance: random.Random) -> Fate:
    return Fate(
        run_s=round(chance.choice((30, 300, 1800, 5400)) * chance.uniform(0.5, 1.5), 3),
        failing_attempts=chance.choice((0, 0, 0, 0, 1, 2, 9)),
        index=chance.randrange(2),
        exit_code=chance.choice(EXIT_CODES),
        after_s=round(chance.uniform(0, 300), 3),
        stop_s=chance.choice((0.0, 0.0, 2.0, 25.0, 60.0)),
    )


def _suspend(chance: random.Random, at_s: float, known: list[Submit]) -> Iterator[Action]:
    job = chance.choice(known).job
    yield Suspend(at_s, job)
    yield Resume(round(at_s + chance.choice((1, 30, 600)) * chance.random(), 3), job)


def _scale(chance: random.Random, at_s: float, known: list[Submit]) -> Iterator[Action]:
    elastic = [one for one in known if one.kind in ELASTIC]
    if elastic:
        yield Scale(at_s, chance.choice(elastic).job, chance.randint(1, MOST_NODES))


def _delete(chance: random.Random, at_s: float, known: list[Submit]) -> Iterator[Action]:
    chosen = chance.choice(known)
    yield Delete(at_s, chosen.job)
    if chance.random() < 0.5:
        again_s = round(at_s + chance.choice((0.1, 5, 120)) * chance.random(), 3)
        yield Submit(again_s, chosen.job, chosen.kind, chosen.nodes, _fate(chance), after="")


def _delete_child(chance: random.Random, at_s: float, known: list[Submit]) -> Iterator[Action]:
    yield DeleteChild(at_s, chance.choice(known).job, chance.choice(("Job", "Service", "PodGroup")))


def _delete_pod(chance: random.Random, at_s: float, known: list[Submit]) -> Iterator[Action]:
    yield DeletePod(at_s, chance.choice(known).job, chance.randrange(MOST_NODES), chance.random() < 0.2)


def _fail(chance: random.Random, at_s: float, known: list[Submit]) -> Iterator[Action]:
    job, index = chance.choice(known).job, chance.randrange(MOST_NODES)
    if chance.random() < 0.25:
        yield Fail(at_s, job, index, 137, "OOMKilled")
    else:
        yield Fail(at_s, job, index, chance.choice(EXIT_CODES))


def _evict(chance: random.Random, at_s: float, known: list[Submit]) -> Iterator[Action]:
    yield Evict(at_s, chance.choice(known).job, chance.randrange(MOST_NODES))


def _lose_node(chance: random.Random, at_s: float, known: list[Submit]) -> Iterator[Action]:
    yield LoseNode(at_s, f"node-{chance.randrange(NODES)}", round(chance.choice((20, 200, 1500)) * chance.random(), 3))


def _replace_node(chance: random.Random, at_s: float, known: list[Submit]) -> Iterator[Action]:
    yield RemoveNode(at_s, f"node-{chance.randrange(NODES)}")
    yield AddNode(round(at_s + chance.choice((10, 600, 3600)) * chance.random(), 3), f"node-{NODES + int(at_s)}")


def _intrude(chance: random.Random, at_s: float, known: list[Submit]) -> Iterator[Action]:
    run_s = round(chance.choice((30, 600, 1800)) * chance.uniform(0.5, 1.5), 3)
    yield Intrude(at_s, chance.randint(1, MOST_NODES), chance.choice((1, 4, 8)), run_s)


def _rush(chance: random.Random, at_s: float, known: list[Submit]) -> Iterator[Action]:
    """Several people want nodes that are not there yet."""
    for number in range(chance.randint(2, 3)):
        kind = chance.choice([*AUTOSCALED])
        submitted_s = round(at_s + chance.choice((0.5, 60, 600)) * chance.random(), 3)
        yield Submit(submitted_s, f"rush-{int(at_s)}-{number}", kind, chance.randint(2, MOST_NODES), _fate(chance))


def _prioritise(chance: random.Random, at_s: float, known: list[Submit]) -> Iterator[Action]:
    yield Prioritise(at_s, chance.choice(known).job, chance.choice((-5, 0, 5, 10, 20)))


def _adjust_queue(chance: random.Random, at_s: float, known: list[Submit]) -> Iterator[Action]:
    yield AdjustQueue(at_s, chance.choice([*SHARED]), chance.randint(1, 5), chance.choice((8, 16, 32, 48, 64)))


def _kill_leader(chance: random.Random, at_s: float, known: list[Submit]) -> Iterator[Action]:
    yield KillLeader(at_s, round(chance.uniform(1, 60), 3))


def _part(chance: random.Random, at_s: float, known: list[Submit]) -> Iterator[Action]:
    yield Part(at_s, round(chance.choice((5, 30, 150)) * chance.random(), 3))


def _outage(chance: random.Random, at_s: float, known: list[Submit]) -> Iterator[Action]:
    yield Outage(at_s, round(chance.choice((3, 30, 120)) * chance.random(), 3))


def _lose_answers(chance: random.Random, at_s: float, known: list[Submit]) -> Iterator[Action]:
    yield LoseAnswers(at_s, round(chance.uniform(10, 300), 3), round(chance.uniform(0.02, 0.3), 3))


def _lose_status(chance: random.Random, at_s: float, known: list[Submit]) -> Iterator[Action]:
    yield LoseStatus(at_s, chance.choice(known).job, round(chance.choice((0, 0, 30, 1800)) * chance.random(), 3))


def _burst(chance: random.Random, at_s: float, known: list[Submit]) -> Iterator[Action]:
    """Several things that happen to one job within seconds, and to the operator."""
    job = [chance.choice(known[-4:])]
    for _ in range(chance.randint(2, 5)):
        happens = chance.choice((*BURSTS, *(happens for _, happens in RATES[1:])))
        yield from happens(chance, round(at_s + chance.choice((0.5, 5, 40)) * chance.random(), 3), job)


BURSTS: tuple[Draw, ...] = (_fail, _fail, _evict, _delete_pod, _delete_pod, _suspend, _scale, _kill_leader, _part)
"""What often happens in a burst."""

RATES: tuple[tuple[float, Draw], ...] = (
    (6.0, _burst),
    (3.0, _suspend),
    (2.0, _scale),
    (2.5, _delete),
    (1.5, _delete_child),
    (4.0, _delete_pod),
    (6.0, _fail),
    (2.0, _evict),
    (1.0, _lose_node),
    (0.7, _replace_node),
    (1.0, _intrude),
    (2.0, _kill_leader),
    (1.5, _part),
    (0.7, lambda chance, at_s, known: iter([StopLeader(at_s)])),
    (4.0, lambda chance, at_s, known: iter([BreakWatches(at_s)])),
    (1.5, lambda chance, at_s, known: iter([Compact(at_s)])),
    (0.8, _outage),
    (1.0, _lose_answers),
    (2.0, _lose_status),
)
"""What happens besides submissions, and how often in an hour."""

COORDINATED_RATES: tuple[tuple[float, Draw], ...] = (
    (3.0, _intrude),
    (4.0, _prioritise),
    (2.0, _adjust_queue),
    (0.7, _rush),
)
"""The same of what happens on days with the coordinator alone."""
