"""A controller at work: from changes in a real cache to reconciles, in virtual time."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from prometheus_client import CollectorRegistry

from torchctl.runtime.apply import ForeignObject, StillDeleting
from torchctl.runtime.cache.barrier import Barrier
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.client.errors import Conflict, NotLeader, Unavailable
from torchctl.runtime.client.writes import Written, note_write
from torchctl.runtime.controller import Controller
from torchctl.runtime.kinds import EVENT, LEASE, Event, Key, Lease, ObjectMeta, OwnerReference
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.reconcile import Request, Result, TerminalError
from torchctl.runtime.runner import Runner
from torchctl.runtime.watch.events import Applied, Init, InitDone
from torchctl.runtime.workqueue import ExponentialLimiter
from torchctl.testing import virtualtime

A, B = Key("ns", "a"), Key("ns", "b")


def lease(name: str, version: int, **meta: Any) -> Lease:
    return Lease(ObjectMeta(name=name, namespace="ns", uid=f"uid-{name}", resource_version=str(version), **meta))


def grouped(*errors: Exception) -> ExceptionGroup[Exception]:
    """The errors of a reconcile that does several things at once."""
    return ExceptionGroup("unhandled errors in a TaskGroup", errors)


@dataclass
class Bench:
    """A runner over a cache that the test feeds."""

    reconcile: Callable[[Request], Awaitable[Result | None]]
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry, process=False)
        self.clock = virtualtime.VirtualClock()
        self.cache = Cache(None, metrics=self.metrics, clock=self.clock)  # type: ignore[arg-type]  # nothing is sent
        self.informer = self.cache.register(LEASE)
        self.controller = Controller("c", self.reconcile, **self.options).for_(LEASE)
        self.runner = Runner(
            self.controller,
            cache=self.cache,
            barrier=Barrier(self.cache, clock=self.clock, timeout_s=5.0),
            metrics=self.metrics.for_controller("c"),
            clock=self.clock,
        )

    async def feed(self, *objects: Lease) -> None:
        for obj in objects:
            await self.informer.feed(Applied(obj))

    async def listed(self, *objects: Lease) -> None:
        await self.informer.feed(Init())
        await self.feed(*objects)
        await self.informer.feed(InitDone("1"))

    def count(self, series: str, **labels: str) -> float:
        return self.registry.get_sample_value(series, {"controller": "c", **labels}) or 0.0


def test_term_begins_with_a_reconcile_of_each_cached_object() -> None:
    seen: list[Request] = []

    async def main() -> None:
        async def reconcile(request: Request) -> None:
            seen.append(request)
            if len(seen) == 2:
                bench.runner.close()

        bench = Bench(reconcile)
        await bench.listed(lease("a", 1), lease("b", 1))
        await bench.runner.run()
        assert bench.count("controller_runtime_reconcile_total", result="success") == 2
        assert bench.informer.stats().handler_errors == 0

    virtualtime.run(main)
    assert sorted(seen) == [A, B]


def test_a_failing_key_backs_off_and_delays_nobody_else() -> None:
    times: dict[Request, list[float]] = {A: [], B: []}

    async def main() -> None:
        async def reconcile(request: Request) -> None:
            times[request].append(anyio.current_time())
            if request == A and len(times[A]) == 5:
                bench.runner.close()
            if request == A:
                raise Unavailable("no API server")

        bench = Bench(reconcile)
        await bench.listed(lease("a", 1), lease("b", 1))
        await bench.runner.run()
        assert bench.count("controller_runtime_reconcile_errors_total") == 5
        assert bench.count("controller_runtime_reconcile_panics_total") == 0

    virtualtime.run(main)
    gaps = [round(later - earlier, 3) for earlier, later in zip(times[A], times[A][1:], strict=False)]
    assert gaps == [0.005, 0.01, 0.02, 0.04]
    assert times[B] == [0.0]


def test_conflict_behind_many_failing_keys_is_retried_at_once() -> None:
    times: list[float] = []

    async def main() -> None:
        async def reconcile(request: Request) -> None:
            if request != A:
                raise Unavailable("no API server")
            times.append(anyio.current_time())
            if len(times) == 2:
                bench.runner.close()
            raise Conflict("changed")

        bench = Bench(reconcile, {"max_retry_s": 1.0})
        await bench.listed(*(lease(f"failing-{number}", 1) for number in range(500)), lease("a", 1))
        await bench.runner.run()

    virtualtime.run(main)
    assert times[1] - times[0] <= 0.01


def test_limiter_of_a_controller_can_be_chosen() -> None:
    times: list[float] = []

    async def main() -> None:
        async def reconcile(request: Request) -> None:
            times.append(anyio.current_time())
            if len(times) == 3:
                bench.runner.close()
            raise Unavailable("no API server")

        bench = Bench(reconcile, {"limiter": lambda: ExponentialLimiter(base_s=2.0, cap_s=2.0)})
        await bench.listed(lease("a", 1))
        await bench.runner.run()

    virtualtime.run(main)
    assert times == [0.0, 2.0, 4.0]


def test_requeue_after_no_time_backs_off() -> None:
    """Else a reconcile that always asks for it would run thousands of times a second."""
    times: list[float] = []

    async def main() -> None:
        async def reconcile(request: Request) -> Result:
            times.append(anyio.current_time())
            if len(times) == 4:
                bench.runner.close()
            return Result(requeue_after_s=0 if len(times) % 2 else -1.0)

        bench = Bench(reconcile)
        await bench.listed(lease("a", 1))
        await bench.runner.run()

    virtualtime.run(main)
    assert [round(later - earlier, 3) for earlier, later in pairwise(times)] == [0.005, 0.01, 0.02]


@pytest.mark.parametrize(
    ("error", "counted", "attempts"),
    [
        (Conflict("changed"), "reconcile_total_requeue", 2),
        (TerminalError("never"), "terminal_reconcile_errors_total", 1),
        (ZeroDivisionError("oops"), "reconcile_panics_total", 2),
        (ForeignObject(LEASE, A), "reconcile_errors_total", 2),
        (StillDeleting(LEASE, A), "reconcile_total_requeue", 2),
        (grouped(Conflict("changed"), NotLeader()), "reconcile_total_requeue", 2),
        (grouped(TerminalError("never"), grouped(TerminalError("ever"))), "terminal_reconcile_errors_total", 1),
        (grouped(TerminalError("never"), Conflict("changed")), "reconcile_total_requeue", 2),
        (grouped(TerminalError("never"), Unavailable("away")), "reconcile_errors_total", 2),
        (grouped(TimeoutError()), "reconcile_timeouts_total", 2),
        (grouped(Conflict("changed"), ZeroDivisionError("oops")), "reconcile_panics_total", 2),
    ],
)
def test_each_kind_of_error_is_counted_as_what_it_is(error: Exception, counted: str, attempts: int) -> None:
    calls: list[Request] = []

    async def main() -> None:
        async def reconcile(request: Request) -> None:
            calls.append(request)
            if len(calls) == 1:
                raise error

        bench = Bench(reconcile)
        await bench.listed(lease("a", 1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.runner.run)
            await anyio.sleep(5)
            bench.runner.close()
        metric, labels = f"controller_runtime_{counted}", {}
        if counted.endswith("_requeue"):
            metric, labels = "controller_runtime_reconcile_total", {"result": "requeue"}
        assert bench.count(metric, **labels) == 1
        is_panic = counted == "reconcile_panics_total"
        assert bench.count("controller_runtime_reconcile_panics_total") == is_panic

    virtualtime.run(main)
    assert len(calls) == attempts


def test_reconcile_beyond_its_timeout_is_cancelled_and_retried() -> None:
    began: list[float] = []

    async def main() -> None:
        async def reconcile(request: Request) -> None:
            began.append(anyio.current_time())
            if len(began) == 2:
                bench.runner.close()
                return
            await anyio.sleep_forever()

        bench = Bench(reconcile, {"timeout_s": 3.0})
        await bench.listed(lease("a", 1))
        await bench.runner.run()
        assert bench.count("controller_runtime_reconcile_timeouts_total") == 1

    virtualtime.run(main)
    assert began == [0.0, 3.005]


def test_what_is_shielded_ends_before_the_key_runs_again() -> None:
    """Such as a thread, which nothing can cancel: `anyio.to_thread.run_sync` waits for it under a shield."""
    spans: list[tuple[float, float]] = []

    async def main() -> None:
        async def reconcile(request: Request) -> None:
            began = anyio.current_time()
            if len(spans) == 2:
                bench.runner.close()
                return
            with anyio.CancelScope(shield=True):
                await anyio.sleep(5)
            spans.append((began, anyio.current_time()))
            await anyio.sleep_forever()

        bench = Bench(reconcile, {"timeout_s": 3.0})
        await bench.listed(lease("a", 1))
        await bench.runner.run()
        assert bench.count("controller_runtime_reconcile_timeouts_total") == 2

    virtualtime.run(main)
    assert spans == [(0.0, 5.0), (5.005, pytest.approx(10.005))]


def test_a_result_brings_the_key_back_when_it_says() -> None:
    times: list[float] = []

    async def main() -> None:
        async def reconcile(request: Request) -> Result:
            times.append(anyio.current_time())
            if len(times) == 3:
                bench.runner.close()
            return Result(requeue_after_s=7.0)

        bench = Bench(reconcile)
        await bench.listed(lease("a", 1))
        await bench.runner.run()

    virtualtime.run(main)
    assert times == [0.0, 7.0, 14.0]


def test_key_that_backs_off_returns_ever_later_without_error() -> None:
    times: list[float] = []

    async def main() -> None:
        async def reconcile(request: Request) -> Result:
            times.append(bench.clock.monotonic())
            if len(times) == 6:
                bench.runner.close()
            return Result(requeue_after_s=60.0, back_off=True)

        bench = Bench(reconcile)
        await bench.listed(lease("a", 1))
        await bench.runner.run()
        assert bench.count("controller_runtime_reconcile_errors_total") == 0
        assert bench.count("controller_runtime_reconcile_total", result="requeue") == 6

    virtualtime.run(main)
    waits = [after - before for before, after in pairwise(times)]
    assert waits == pytest.approx([0.005 * 2**n for n in range(5)])


def test_earlier_one_of_a_wish_and_a_back_off_counts() -> None:
    times: list[float] = []

    async def main() -> None:
        async def reconcile(request: Request) -> Result:
            times.append(bench.clock.monotonic())
            if len(times) == 3:
                bench.runner.close()
            return Result(requeue_after_s=0.001, back_off=True)

        bench = Bench(reconcile)
        await bench.listed(lease("a", 1))
        await bench.runner.run()

    virtualtime.run(main)
    assert [after - before for before, after in pairwise(times)] == pytest.approx([0.001, 0.001])


def test_reconcile_waits_until_the_cache_has_the_last_writes() -> None:
    seen: list[tuple[float, str]] = []

    async def main() -> None:
        async def reconcile(request: Request) -> Result | None:
            known = bench.cache.get(LEASE, request)
            assert known is not None
            seen.append((anyio.current_time(), known.metadata.resource_version))
            if len(seen) == 2:
                bench.runner.close()
                return None
            note_write(Written(LEASE, request, "uid-a", "50"))
            return Result(requeue_after_s=0)

        bench = Bench(reconcile)
        await bench.listed(lease("a", 1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.runner.run)
            await anyio.sleep(2)
            await bench.feed(lease("a", 50))

    virtualtime.run(main)
    assert seen == [(0.0, "1"), (2.0, "50")]


def test_events_during_the_wait_lead_to_one_reconcile() -> None:
    seen: list[tuple[float, str]] = []

    async def main() -> None:
        async def reconcile(request: Request) -> None:
            known = bench.cache.get(LEASE, request)
            assert known is not None
            seen.append((anyio.current_time(), known.metadata.resource_version))
            if len(seen) == 1:
                note_write(Written(LEASE, request, "uid-a", "50"))

        bench = Bench(reconcile)
        await bench.listed(lease("a", 1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.runner.run)
            for version in (30, 40, 50):
                await anyio.sleep(1)
                await bench.feed(lease("a", version))
            await anyio.sleep(1)
            bench.runner.close()

    virtualtime.run(main)
    assert seen == [(0.0, "1"), (3.0, "50")]


def test_only_different_keys_run_at_the_same_time() -> None:
    running: set[Request] = set()
    together: list[int] = []

    async def main() -> None:
        async def reconcile(request: Request) -> None:
            assert request not in running
            running.add(request)
            together.append(len(running))
            await anyio.sleep(1)
            running.discard(request)

        bench = Bench(reconcile, {"workers": 3})
        await bench.listed(*(lease(name, 1) for name in "abcde"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.runner.run)
            for version in range(2, 6):
                await anyio.sleep(0.3)
                await bench.feed(lease("a", version))
            await anyio.sleep(10)
            bench.runner.close()

    virtualtime.run(main)
    assert max(together) == 3


def test_closing_lets_the_reconcile_under_way_end() -> None:
    ended: list[float] = []

    async def main() -> None:
        async def reconcile(request: Request) -> None:
            await anyio.sleep(4)
            ended.append(anyio.current_time())

        bench = Bench(reconcile)
        await bench.listed(lease("a", 1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.runner.run)
            await anyio.sleep(1)
            bench.runner.close()
        assert anyio.current_time() == 4.0

    virtualtime.run(main)
    assert ended == [4.0]


def test_a_term_that_is_over_listens_no_more() -> None:
    seen: list[Request] = []

    async def main() -> None:
        async def reconcile(request: Request) -> None:
            seen.append(request)

        bench = Bench(reconcile)
        await bench.listed()
        with anyio.move_on_after(1):
            await bench.runner.run()
        await bench.feed(lease("a", 2))
        assert bench.runner.statistics().due == 0

    virtualtime.run(main)
    assert seen == []


def test_the_parent_of_an_owned_object_is_reconciled() -> None:
    seen: list[Request] = []
    parent = OwnerReference("coordination.k8s.io/v1", "Lease", "parent", "u", controller=True)
    stranger = OwnerReference("example.org/v1", "Lease", "stranger", "u", controller=True)

    async def main() -> None:
        async def reconcile(request: Request) -> None:
            seen.append(request)

        bench = Bench(reconcile)
        bench.controller.sources.clear()
        bench.controller.for_(LEASE, labels="none").owns(LEASE)
        await bench.listed(
            lease("child", 1, owner_references=(parent,)), lease("other", 1, owner_references=(stranger,))
        )
        with anyio.move_on_after(1):
            await bench.runner.run()

    virtualtime.run(main)
    assert seen == [Key("ns", "parent")]


def test_reconciles_that_never_wait_leave_the_event_loop_to_others() -> None:
    ticks: list[int] = []
    done = 0

    async def main() -> None:
        async def reconcile(request: Request) -> None:
            nonlocal done
            done += 1
            if done == 100:
                bench.runner.close()

        async def tick() -> None:
            while done < 100:
                ticks.append(done)
                await anyio.lowlevel.checkpoint()

        bench = Bench(reconcile, {"workers": 2})
        await bench.listed(*(lease(f"l-{number}", 1) for number in range(100)))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tick)
            await bench.runner.run()

    virtualtime.run(main)
    assert max(later - earlier for earlier, later in pairwise(ticks)) <= 4


def test_end_of_a_term_zeroes_the_queue_metrics() -> None:
    async def main() -> None:
        async def reconcile(request: Request) -> None:
            await anyio.sleep_forever()

        bench = Bench(reconcile, {"workers": 1})
        await bench.listed(lease("a", 1), lease("b", 1))

        def gauges() -> dict[str, float]:
            labels = {"name": "c", "priority": "-100"}
            names = ("workqueue_unfinished_work_seconds", "workqueue_longest_running_processor_seconds")
            ages = {name: bench.count(name, name="c") for name in names}
            return {"depth": bench.count("workqueue_depth", **labels), **ages}

        with anyio.move_on_after(3):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(bench.runner.run)
                await anyio.sleep(2)
                assert all(gauges().values())
        assert not any(gauges().values())

    virtualtime.run(main)


def test_key_that_waits_already_counts_as_one_add() -> None:
    async def main() -> None:
        async def reconcile(request: Request) -> None:
            await anyio.sleep(10)

        bench = Bench(reconcile, {"workers": 1})
        await bench.listed(lease("a", 1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.runner.run)
            await anyio.sleep(1)
            for version in range(2, 6):
                await bench.feed(lease("a", version))
            assert bench.count("workqueue_adds_total", name="c") == 2  # once at work, once again after it
            bench.runner.close()

    virtualtime.run(main)


def test_every_delayed_add_counts_as_a_retry() -> None:
    """As in client-go, whose rate limiter adds with a delay."""
    calls: list[Request] = []

    async def main() -> None:
        async def reconcile(request: Request) -> Result:
            calls.append(request)
            if len(calls) == 3:
                bench.runner.close()
            if len(calls) == 2:
                raise Unavailable("no API server")
            return Result(requeue_after_s=1)

        bench = Bench(reconcile)
        await bench.listed(lease("a", 1))
        await bench.runner.run()
        assert bench.count("workqueue_adds_total", name="c") == 3
        assert bench.count("workqueue_retries_total", name="c") == 3

    virtualtime.run(main)


def test_changes_of_a_delayed_watch_are_batched() -> None:
    """A change of the object itself is not delayed."""
    times: list[float] = []

    async def main() -> None:
        async def reconcile(request: Request) -> None:
            times.append(round(anyio.current_time(), 3))

        bench = Bench(reconcile)
        bench.controller.watches(EVENT, lambda event: (A,), delay_s=1.0)
        events = bench.cache.register(EVENT)
        await bench.listed(lease("a", 1))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.runner.run)
            for number in range(1, 31):  # ten each second
                await anyio.sleep(0.1)
                await events.feed(Applied(Event(ObjectMeta(name=f"e{number}", namespace="ns"))))
            await anyio.sleep(2.05)
            await events.feed(Applied(Event(ObjectMeta(name="late", namespace="ns"))))
            await bench.feed(lease("a", 2))
            await anyio.sleep(2)
            bench.runner.close()

    virtualtime.run(main)
    *counted, last = times
    assert len(counted) == 4, "of the object itself, and one for each second of changes"
    assert all(later - earlier >= 1.0 for earlier, later in pairwise(counted))
    assert last == 5.05, "due at once, and not again a second later"
