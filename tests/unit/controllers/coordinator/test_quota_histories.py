"""Random histories of queues, cohorts and a ResourceQuota: nothing is exceeded, and owners get back what they own."""

import random
from collections.abc import Iterator
from dataclasses import replace

from effort import examples
from gangs_waiting import NOW_S, after, gang, nodes, placed, state, without
from hypothesis import given, settings
from hypothesis import strategies as st

from torchctl.controllers.coordinator.core import decide
from torchctl.controllers.coordinator.decision import Decision
from torchctl.controllers.coordinator.values import (
    Demand,
    Holding,
    Limits,
    NamespaceQuota,
    Preemption,
    Queue,
    State,
    Waiting,
)

STEPS = 25
COHORTS = ("", "c", "d")


class History:
    """A cluster while people submit, jobs end, and an administrator changes quotas."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._number = 0
        self._hard = self.rng.choice([6, 12, 1000])
        queues = [self._queue(f"q{at}") for at in range(self.rng.randint(1, 4))]
        self.now = state([], nodes(self.rng.randint(2, 8)), queues=queues)

    def step(self) -> tuple[State, Decision]:
        """Lets something happen; returns the state that was decided on, and the decision."""
        self.rng.choice([self._submit, self._submit, self._end, self._change])()
        leaving = [held.key for held in self.now.holdings if held.leaving_for and self.rng.random() < 0.7]
        self.now = replace(without(self.now, leaving), now_s=self.now.now_s + self.rng.choice([1, 60, 700]))
        self.now = replace(self.now, namespace_quotas=(self._namespace_quota(),))
        before = self.now
        decision = decide(before)
        self.now = placed(after(before, decision), self.rng)
        return before, decision

    def _submit(self) -> None:
        self.now = replace(
            self.now, waiting=(*self.now.waiting, *(self._gang() for _ in range(self.rng.randint(1, 5))))
        )

    def _gang(self) -> Waiting:
        self._number += 1
        pods, gpus = self.rng.randint(1, 4), self.rng.choice([0, 1, 2, 8])
        queue = self.rng.choice(self.now.queues).key
        asked = gang(
            f"g{self._number}",
            pods,
            gpus,
            queue=queue,
            since_s=self.now.now_s,
            priority=self.rng.randrange(3),
            namespace_demand=(("pods", pods),),
            lasts_s=self.rng.choice([None, 300.0]),
        )
        demand = Demand(gpus=pods * gpus, cpus=pods * self.rng.choice([0, 1000]), memory=pods * self.rng.choice([0, 1]))
        return replace(asked, demand=demand)

    def _end(self) -> None:
        if self.now.holdings:
            self.now = without(self.now, [self.rng.choice(self.now.holdings).key])

    def _change(self) -> None:
        """Changes a queue; a quota may then be below what the queue holds."""
        changed = self.rng.choice(self.now.queues).key
        self.now = replace(
            self.now, queues=tuple(self._queue(q.key) if q.key == changed else q for q in self.now.queues)
        )

    def _queue(self, key: str) -> Queue:
        def bound(*amounts: int) -> int | None:
            return self.rng.choice([None, *amounts])

        return Queue(
            key=key,
            weight=self.rng.randrange(4),
            quota=Limits(bound(0, 4, 8, 16, 24), bound(2000, 4000), bound(2, 4), bound(0, 1, 3)),
            cohort=self.rng.choice(COHORTS),
            borrowing=Limits(bound(0, 8), bound(0, 2000), bound(0, 2), bound(0, 1)),
            preemption=self.rng.choice([*Preemption]),
            max_nodes=bound(1, 2, 8),
        )

    def _namespace_quota(self) -> NamespaceQuota:
        pods = sum(held.pods for held in self.now.holdings)
        return NamespaceQuota(namespace="team", name="n", hard={"pods": self._hard}, left={"pods": self._hard - pods})


def bounds(now: State) -> Iterator[tuple[str, int, int]]:
    """Returns each bound there is: its name, what is held against it, and what it allows."""
    held: dict[str, Demand] = {q.key: _sum(h for h in now.holdings if h.queue == q.key) for q in now.queues}
    for at, resource in enumerate(Demand._fields):
        bounded = [q for q in now.queues if q.quota[at] is not None]
        for q in bounded:
            own, more = q.quota[at] or 0, q.borrowing[at]
            if not q.cohort or more is not None:
                yield f"{resource} of {q.key}", held[q.key][at], own + (more or 0 if q.cohort else 0)
        for cohort in {q.cohort for q in bounded} - {""}:
            members = [q for q in bounded if q.cohort == cohort]
            there = sum(q.quota[at] or 0 for q in members)
            yield f"{resource} of cohort {cohort}", sum(held[q.key][at] for q in members), there
    for quota in now.namespace_quotas:
        yield f"pods of {quota.name}", sum(h.pods for h in now.holdings), quota.hard["pods"]


def _sum(holdings: Iterator[Holding]) -> Demand:
    return Demand(*map(sum, zip(Demand(0, 0, 0, 0), *(held.demand for held in holdings), strict=True)))


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(60))
def test_no_bound_is_exceeded_by_who_is_let_in(seed: int) -> None:
    """Whatever was changed before: what is above its bound already may stay, and gets no more."""
    history = History(seed)
    for _ in range(STEPS):
        before, decision = history.step()
        was = {name: used for name, used, _ in bounds(before)}
        for name, used, allowed in bounds(replace(history.now, namespace_quotas=before.namespace_quotas)):
            assert used <= max(allowed, was[name]), name
        of = {q.key: q for q in before.queues}
        pods = {waiting.key: waiting.pods for waiting in before.waiting}
        for letting in decision.let_in:
            most = of[letting.queue].max_nodes
            assert most is None or pods[letting.key] <= most


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(60))
def test_who_leaves_may_leave_by_the_rules_of_the_queues(seed: int) -> None:
    """Within a queue for a higher priority; else only what the victim's queue has borrowed of its own cohort."""
    history = History(seed)
    for _ in range(STEPS):
        before, decision = history.step()
        of = {q.key: q for q in before.queues}
        waiting, there = {w.key: w for w in before.waiting}, {h.key: h for h in before.holdings}
        for key, preemptor in decision.preempt:
            victim, winner = there[key], waiting[preemptor]
            rule = of[winner.queue].preemption
            assert rule is not Preemption.NEVER
            if victim.queue == winner.queue:
                assert victim.priority < winner.priority
            else:
                assert rule is Preemption.RECLAIM
                assert of[victim.queue].cohort == of[winner.queue].cohort != ""


@given(
    own=st.sampled_from([8, 16, 32]),
    others=st.lists(st.sampled_from([8, 16]), min_size=1, max_size=3),
    gangs=st.lists(st.tuples(st.integers(1, 4), st.sampled_from([1, 4, 8]), st.integers(0, 2)), max_size=20),
    pods=st.integers(1, 4),
)
@settings(max_examples=examples(60))
def test_an_owner_gets_what_it_owns_although_borrowers_never_end(
    own: int, others: list[int], gangs: list[tuple[int, int, int]], pods: int
) -> None:
    owner = Queue(key="owner", quota=Limits(gpus=own), cohort="c", preemption=Preemption.RECLAIM)
    queues = [owner, *(Queue(key=f"q{at}", quota=Limits(gpus=gpus), cohort="c") for at, gpus in enumerate(others))]
    waiting = [gang(f"g{at}", p, g, queue=f"q{q % len(others)}") for at, (p, g, q) in enumerate(gangs)]
    rng, now = random.Random(0), state(waiting, nodes(20), queues=queues)
    for _ in range(3):
        now = placed(after(now, decide(now)), rng)
    wanted = gang("wanted", pods, own // pods if pods < 5 else 1, queue="owner", since_s=NOW_S)
    wanted = replace(wanted, shape=gang("x", 1, min(8, own // pods)).shape, demand=Demand(gpus=pods * (own // pods)))
    now = replace(now, waiting=(wanted,))
    for _ in range(4):
        now = placed(after(now, decide(now)), rng)
        now = without(now, [held.key for held in now.holdings if held.leaving_for])
    assert "wanted" in {held.key for held in now.holdings}
