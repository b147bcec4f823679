"""Simulated weeks of a cluster: large gangs do not starve, small ones hardly wait, and the nodes are used.

No gang is ever half placed.
"""

from statistics import mean

from bench.philly import Philly
from bench.trace import WAYS, Tally, play

LARGE = 16
"""GPUs from which on a job counts as large: two nodes and more."""


def played(way: str, trace: Philly) -> Tally:
    """`play` raises if a pod of a gang that was let in finds no node."""
    queues, settings, choose = WAYS[way]
    return play(trace, queues, settings, choose=choose)


def waits_s(tally: Tally, *, large: bool) -> list[float]:
    return [wait for gpus, waits in tally.waits_s.items() if (gpus >= LARGE) is large for wait in waits]


def test_large_gangs_do_not_starve_under_overload() -> None:
    """Without a reservation they wait until hardly anybody else comes."""
    trace = Philly(jobs=700, nodes=24, load=1.2, seed=2)
    without, with_ = played("no reservation", trace), played("coordinator", trace)
    assert (without.unstarted, with_.unstarted) == (0, 0)
    assert max(waits_s(with_, large=True)) < 0.7 * max(waits_s(without, large=True))
    assert mean(waits_s(with_, large=True)) < 0.7 * mean(waits_s(without, large=True))


def test_small_jobs_do_not_pay_for_large_ones() -> None:
    """Room is kept on chosen nodes only, so plain FIFO is where they wait."""
    trace = Philly(jobs=300, nodes=24, load=1.2, seed=2)
    fifo, ours = played("plain FIFO", trace), played("coordinator", trace)
    assert mean(ours.waits_s[1]) < 0.1 * mean(fifo.waits_s[1])


def test_cluster_is_used_no_less_than_under_fifo() -> None:
    """On average: one week alone depends on when its few longest jobs come."""
    weeks = [Philly(jobs=300, nodes=16, load=0.9, seed=seed) for seed in range(1, 7)]
    fifo, ours = [
        mean(played(way, week).utilisation(week.nodes) for week in weeks) for way in ("plain FIFO", "coordinator")
    ]
    assert ours > fifo


def test_preempted_jobs_start_again() -> None:
    tally = played("and preemption", Philly(jobs=400, nodes=8, load=1.2, urgent=0.2, seed=1))
    assert tally.preemptions > 0
    assert tally.unstarted == 0
