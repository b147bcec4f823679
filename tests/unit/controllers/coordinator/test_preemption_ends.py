"""Whole lives of clusters with preemption: no livelock, no quota exceeded, whatever is written late or not at all."""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from effort import examples
from gangs_waiting import NOW_S, after, gang, node, nodes, placed, shape, state, without
from hypothesis import given, settings
from hypothesis import strategies as st

from torchctl.controllers.coordinator.core import decide
from torchctl.controllers.coordinator.decision import Decision
from torchctl.controllers.coordinator.values import Limits, Preemption, Queue, State, Waiting
from torchctl.controllers.settings import CoordinatorSettings

QUEUES = (
    Queue(key="owner", cohort="c", quota=Limits(gpus=24), preemption=Preemption.RECLAIM),
    Queue(key="lender", cohort="c", quota=Limits(gpus=16, jobs=3), preemption=Preemption.RECLAIM, weight=3),
    Queue(key="ranked", quota=Limits(gpus=32), preemption=Preemption.WITHIN_QUEUE),
    Queue(key="free"),
)
Job = tuple[int, int, int, str, str]
"""Pods, GPUs of each, priority, queue, and the pool of nodes that it chooses; empty: any."""

JOBS = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.sampled_from([2, 4, 8]),
        st.integers(0, 3),
        st.sampled_from([q.key for q in QUEUES]),
        st.sampled_from(["", "a", "b"]),
    ),
    min_size=2,
    max_size=14,
)
ROUNDS, ROUND_S = 600, 30.0


class Lives:
    """A cluster in rounds: gangs come, are let in, placed, told to leave, go, come back, and end."""

    def __init__(self, jobs: list[Job], rng: random.Random) -> None:
        self.rng = rng
        self.coming = [
            gang(
                f"g{at}",
                pods,
                gpus,
                queue=queue,
                priority=priority,
                since_s=NOW_S + rng.randrange(10) * ROUND_S,
                shape=shape(gpus, selector=(("pool", pool),)) if pool else shape(gpus),
            )
            for at, (pods, gpus, priority, queue, pool) in enumerate(jobs)
        ]
        self.known = {one.key: one for one in self.coming}
        self.work = {one.key: rng.randint(1, 8) for one in self.coming}
        self.preempted = Counter[str]()
        there = [node(f"n{at}", labels={"pool": "ab"[at % 2]}) for at in range(6)]
        self.now = state([], there, queues=QUEUES, settings=CoordinatorSettings(reserve_after_s=120))

    def live(self) -> None:
        for _ in range(ROUNDS):
            self._arrive()
            decision = self._written(decide(self.now))
            self.preempted.update(given.leaving_for for given in decision.preempt)
            self.now = after(self.now, decision)
            self._leave(given.key for given in decision.take_back)
            self.now = placed(self.now, self.rng) if self.rng.random() < 0.7 else self.now
            self._leave(held.key for held in self.now.holdings if held.leaving_for and self.rng.random() < 0.5)
            self._run()
            assert exceeded(self.now) == []
            if not (self.coming or self.now.waiting or self.now.holdings):
                return
            self.now = replace(self.now, now_s=self.now.now_s + ROUND_S)
        raise AssertionError(f"{[one.key for one in self.now.waiting]} wait for ever")

    def _written(self, decision: Decision) -> Decision:
        """Returns what could be written before the operator was killed."""
        if self.rng.random() < 0.7:
            return decision
        if self.rng.random() < 0.5:
            return replace(decision, preempt=decision.preempt[:1], reserved=())
        return replace(decision, let_in=decision.let_in[:1], take_back=(), preempt=(), reserved=())

    def _arrive(self) -> None:
        there = [one for one in self.coming if one.since_s <= self.now.now_s]
        self.coming = [one for one in self.coming if one not in there]
        self.now = replace(self.now, waiting=(*self.now.waiting, *there))

    def _leave(self, keys: Iterable[str]) -> None:
        gone = {held.key for held in self.now.holdings} & set(keys)
        back: list[Waiting] = [self.known[key] for key in sorted(gone)]
        self.now = without(self.now, gone)
        self.now = replace(self.now, waiting=(*self.now.waiting, *back))

    def _run(self) -> None:
        running = [held.key for held in self.now.holdings if held.has_run and not held.leaving_for]
        for key in running:
            self.work[key] -= 1
        self.now = without(self.now, [key for key in running if self.work[key] <= 0])


def exceeded(now: State) -> list[str]:
    """Returns the queues, and the cohort, whose gangs hold more than their quotas."""
    gpus, jobs = Counter[str](), Counter[str]()
    for held in now.holdings:
        gpus[held.queue] += held.demand.gpus
        jobs[held.queue] += 1
    found = [queue.key for queue in QUEUES if jobs[queue.key] > (queue.quota.jobs or 10**9)]
    found += ["ranked"] if gpus["ranked"] > 32 else []
    return found + (["c"] if gpus["owner"] + gpus["lender"] > 40 else [])


@given(jobs=JOBS, seed=st.integers(0, 2**32))
@settings(max_examples=examples(150))
def test_with_preemption_everybody_ends_within_the_quotas(jobs: list[Job], seed: int) -> None:
    lives = Lives(jobs, random.Random(seed))
    lives.live()
    assert all(count <= 4 * len(jobs) for count in lives.preempted.values())


@given(seed=st.integers(0, 2**32), size=st.integers(2, 4))
@settings(max_examples=examples(40))
def test_who_others_leave_for_gets_their_room(seed: int, size: int) -> None:
    """Gangs of another queue come all the time and would take each node that is freed; nobody leaves for nothing."""
    rng = random.Random(seed)
    queues = (Queue(key="q", preemption=Preemption.WITHIN_QUEUE), Queue(key="s", weight=9))
    low = [gang(f"low{at}", since_s=at) for at in range(4)]
    now = state(low, nodes(4), queues=queues)
    now = placed(after(now, decide(now)), rng)
    now = replace(now, waiting=(gang("large", size, priority=5, since_s=now.now_s),))
    left = 0
    for number in range(100):
        stream = gang(f"s{number}", queue="s", since_s=now.now_s)
        decision = decide(replace(now, waiting=(*now.waiting, stream)))
        left += len(decision.preempt)
        if any(given.key == "large" for given in decision.let_in):
            assert left == size
            return
        now = after(replace(now, waiting=(*now.waiting, stream)), decision)
        now = placed(now, rng)
        now = without(now, [held.key for held in now.holdings if held.leaving_for and rng.random() < 0.4])
        now = replace(now, now_s=now.now_s + 1)
    raise AssertionError("large never got the room")
