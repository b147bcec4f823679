"""The workqueue against a model that is too simple to be wrong."""

import copy
import heapq
from typing import Any

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from torchctl.runtime.workqueue import LOW_PRIORITY, ExponentialLimiter, WorkQueue
from torchctl.runtime.workqueue.core import PATIENCE_S, SIFTED_FROM

KEYS = st.sampled_from("abcd")
DELAYS = st.sampled_from([0.0, 0.5, 1.0, 3.0])
PRIORITIES = st.sampled_from([-100, 0, 5])


class QueueAgainstModel(RuleBasedStateMachine):
    """The model: a dict of key -> (due time, priority), and a set of the keys that are being processed."""

    def __init__(self) -> None:
        super().__init__()
        limiter: ExponentialLimiter[str] = ExponentialLimiter(base_s=0.5, cap_s=4.0)
        self.queue: WorkQueue[str] = WorkQueue(limiter, lambda key: key in "ab")
        self.now = 100.0
        self.waiting: dict[str, tuple[float, int]] = {}
        self.processing: set[str] = set()
        self.failures: dict[str, int] = {}

    def expect(self, key: str, due_at: float, priority: int) -> None:
        known = self.waiting.get(key, (due_at, priority))
        self.waiting[key] = (min(due_at, known[0]), max(priority, known[1]))

    @rule(key=KEYS, delay_s=DELAYS, priority=PRIORITIES)
    def add_after(self, key: str, delay_s: float, priority: int) -> None:
        self.queue.add_after(key, delay_s, self.now, priority=priority)
        self.expect(key, self.now + delay_s, priority)

    @rule(key=KEYS)
    def add_rate_limited(self, key: str) -> None:
        failures = self.failures.get(key, 0)
        self.failures[key] = failures + 1
        expected = min(0.5 * 2**failures, 4.0)
        assert self.queue.add_rate_limited(key, self.now) == expected
        self.expect(key, self.now + expected, 0)

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        self.queue.forget(key)
        self.failures.pop(key, None)

    @rule(seconds=st.sampled_from([0.25, 1.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def get(self) -> None:
        due = {key: value for key, value in self.waiting.items() if value[0] <= self.now and key not in self.processing}
        item = self.queue.get(self.now)
        if item is None:
            assert not due
            return
        assert item.key in due
        due_at, priority = self.waiting.pop(item.key)
        assert (item.priority, item.waited_s) == (priority, self.now - due_at)
        if item.waited_s < PATIENCE_S:
            assert priority == max(priority for _, priority in due.values())
        self.processing.add(item.key)

    @precondition(lambda self: self.processing)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.processing)))
        self.queue.done(key, self.now)
        self.processing.discard(key)

    @invariant()
    def the_next_wakeup_is_the_earliest_key_that_is_not_yet_due(self) -> None:
        wakeup = self.queue.next_wakeup()
        future = [due_at for due_at, _ in self.waiting.values() if due_at > self.now]
        if future:
            assert wakeup is not None
            assert wakeup <= min(future)

    @precondition(lambda self: self.processing)
    @rule(data=st.data())
    def absorb(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.processing)))
        self.queue.absorb(key, self.now)
        if key in self.waiting and self.waiting[key][0] <= self.now:
            del self.waiting[key]

    @invariant()
    def load_is_what_a_walk_over_all_keys_counts(self) -> None:
        queue = copy.deepcopy(self.queue)  # to look is to release what is due, which nobody may do for long
        load, statistics = queue.load(self.now), queue.statistics(self.now)
        assert load.due_by_priority == statistics.due_by_priority
        assert queue.ready(self.now) == statistics.due
        assert load.longest_processing_s == statistics.longest_processing_s
        assert load.processing_s == pytest.approx(statistics.processing_s)

    @invariant()
    def statistics_count_every_key_once(self) -> None:
        statistics = self.queue.statistics(self.now)
        due = sum(due_at <= self.now and key not in self.processing for key, (due_at, _) in self.waiting.items())
        delayed = sum(due_at > self.now for due_at, _ in self.waiting.values())
        assert (statistics.due, statistics.delayed, statistics.processing) == (
            due,
            delayed,
            len(self.processing),
        )

    def teardown(self) -> None:
        """Nothing is lost: when all processing ends and time passes, each waiting key comes out exactly once."""
        for key in sorted(self.processing):
            self.queue.done(key, self.now)
        self.now += 10_000
        out = []
        while (item := self.queue.get(self.now)) is not None:
            out.append(item.key)
        assert sorted(out) == sorted(self.waiting)


TestQueueAgainstModel = QueueAgainstModel.TestCase
TestQueueAgainstModel.settings = settings(max_examples=examples(200), stateful_step_count=40, deadline=None)


def test_key_that_is_due_unseen_is_ready_once() -> None:
    """Its delay ended while it was processed. Counted twice, it would wake workers for nothing, for ever."""
    queue = WorkQueue[str](ExponentialLimiter(0.5, 4.0))
    queue.add("a", 0.0)
    assert queue.get(0.0)
    queue.add_after("a", 1.0, 0.0)
    queue.done("a", 2.0)
    assert queue.ready(2.0) == 1
    assert queue.get(2.0)
    assert queue.ready(2.0) == 0


def test_keys_of_one_priority_come_out_in_due_order() -> None:
    queue: WorkQueue[str] = WorkQueue(ExponentialLimiter())
    for key in "cab":
        queue.add(key, 0.0)
    assert [item.key for item in iter(lambda: queue.get(1.0), None)] == ["c", "a", "b"]


def test_low_priority_key_is_overtaken_only_for_a_while() -> None:
    queue: WorkQueue[str] = WorkQueue(ExponentialLimiter())
    queue.add("low", 0.0, priority=LOW_PRIORITY)
    out = []
    for second in range(100):
        queue.add(f"high-{second}", float(second))
        queue.add(f"other-{second}", float(second))
        item = queue.get(float(second))
        assert item is not None
        out.append(item.key)
        queue.done(item.key, float(second))
    assert out.index("low") == PATIENCE_S


def first_letter(key: str) -> str:
    return key[0]


@given(st.lists(st.sampled_from("abc"), max_size=60), st.integers(0, 60))
def test_group_waits_for_one_turn_of_each_other_group(groups: list[str], served: int) -> None:
    queue: WorkQueue[str] = WorkQueue(ExponentialLimiter(), first_letter)
    for number, group in enumerate(groups):
        queue.add(f"{group}{number}", 0.0)
    for _ in range(served):
        queue.get(1.0)
    queue.add("quiet", 1.0)
    queue.add("quieter", 1.0)
    out = [item.key for item in iter(lambda: queue.get(2.0), None)]
    assert out.index("quiet") <= 3
    assert out.index("quieter") <= 7
    for group in "abc":
        numbers = [int(key[1:]) for key in out if key.startswith(group)]
        assert numbers == sorted(numbers), "first come, first served within a group"


def test_overdue_backlog_takes_only_every_other_turn() -> None:
    """Groups that take turns get the turns between."""
    queue: WorkQueue[str] = WorkQueue(ExponentialLimiter(), first_letter)
    for number in range(100):
        queue.add(f"loud-{number}", 0.0, priority=LOW_PRIORITY)
    queue.add("quiet", 2 * PATIENCE_S)
    out = [item.key for item in iter(lambda: queue.get(2 * PATIENCE_S), None)]
    assert out.index("quiet") == 1


def test_a_group_without_keys_is_forgotten() -> None:
    queue: WorkQueue[str] = WorkQueue(ExponentialLimiter(), first_letter)
    for number in range(1000):
        queue.add(f"{chr(number + 300)}", float(number))
        assert queue.get(float(number)) is not None
    assert [turns._last for turns in queue._turns.values()] == [{}]


def test_a_group_whose_keys_went_out_otherwise_is_forgotten_too() -> None:
    queue: WorkQueue[str] = WorkQueue(ExponentialLimiter(), first_letter)
    for number in range(1000):
        queue.add(f"{chr(number + 300)}", float(number), priority=LOW_PRIORITY)
        queue.add(f"{chr(number + 300)}", float(number))
        assert queue.get(float(number)) is not None
    assert queue.get(1000.0) is None
    assert [turns._last for turns in queue._turns.values()] == [{}, {}]


def test_key_added_during_its_processing_comes_out_once_afterwards() -> None:
    queue: WorkQueue[str] = WorkQueue(ExponentialLimiter())
    queue.add("a", 0.0)
    queue.get(0.0)
    queue.add("a", 1.0)
    queue.add("a", 2.0)
    assert queue.get(3.0) is None
    assert queue.done("a", 4.0) == 4.0
    item = queue.get(5.0)
    assert item is not None
    assert (item.key, item.waited_s) == ("a", 4.0)
    assert queue.get(5.0) is None


@given(st.integers(min_value=0, max_value=3000))
def test_the_exponential_limiter_never_passes_its_cap_nor_overflows(failures: int) -> None:
    limiter: ExponentialLimiter[str] = ExponentialLimiter()
    limiter._failures["a"] = failures
    assert limiter.delay("a", 0.0) == min(0.005 * 2.0 ** min(failures, 64), 1000.0)


def test_repeated_delayed_adds_of_one_key_take_no_memory() -> None:
    queue: WorkQueue[str] = WorkQueue(ExponentialLimiter())
    for second in range(10_000):
        queue.add("job", float(second))
        assert queue.get(float(second)) is not None
        queue.add_after("job", 604_800.0, float(second))
        queue.done("job", float(second))
    assert len(queue._delayed) <= SIFTED_FROM
    assert queue.next_wakeup() == 9_999 + 604_800


def test_stale_entries_are_sifted_seldom_however_many_keys_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, sifted = WorkQueue[int](ExponentialLimiter()), list[int]()
    monkeypatch.setattr(heapq, "heapify", lambda entries: sifted.append(len(entries)))
    for look in range(20):
        for key in range(1000):
            queue.add(key, float(look))
            assert queue.get(float(look)) is not None
            queue.add_after(key, 604_800.0, float(look))
            queue.done(key, float(look))
    assert len(sifted) <= 30
    assert len(queue._delayed) <= 2001


@pytest.mark.parametrize(
    ("steps", "adds"),
    [
        ([("a", 0)], 1),
        ([("a", 0), ("a", 0)], 1),
        ([("a", 5)], 1),
        ([("a", 5), ("a", 0)], 1),
        ([("a", 5), ("a", 3)], 1),
        ([("a", 0), "get", ("a", 0), ("a", 0), "done"], 2),
        ([("a", 0), "get", ("a", 5), "wait", "done"], 2),
        ([("a", 5), "wait", ("a", 0)], 1),
        ([("a", 5), "wait", "get", "done", ("a", 0)], 2),
    ],
)
def test_key_counts_as_added_when_it_becomes_due(steps: list[Any], adds: int) -> None:
    """As in client-go's workqueue_adds_total: a delayed key counts when its delay is over."""
    due: list[None] = []
    queue: WorkQueue[str] = WorkQueue(ExponentialLimiter(), on_due=lambda: due.append(None))
    now = 0.0
    for step in steps:
        match step:
            case "get":
                assert queue.get(now) is not None
            case "done":
                queue.done("a", now)
            case "wait":
                now += 10
            case key, delay_s:
                queue.add_after(key, delay_s, now)
    queue.get(now + 10)
    assert len(due) == adds
