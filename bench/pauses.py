"""The longest stop of the event loop while an informer of 100,000 pods lists, a handler attaches, a resync begins."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import msgspec

from bench.figures import Figure, spread
from bench.pods import pod_body, pod_status
from torchctl.api.kube import POD, Pod
from torchctl.controllers.job.observe import BY_JOB, by_job
from torchctl.runtime import memory
from torchctl.runtime.cache.change import Change
from torchctl.runtime.cache.informer import Informer
from torchctl.runtime.clock import SystemClock
from torchctl.runtime.watch.events import Applied, Init, InitDone
from torchctl.runtime.watch.selector import Selector

__all__ = ["measure"]

PODS = 100_000
ROUNDS = 3
GOAL_MS = 20.0


@dataclass
class _Counter:
    told: int = 0

    def on_event(self, event: Change[Pod]) -> None:
        self.told += 1


async def measure() -> list[Figure]:
    """Three informers in turn: the first list of each, a late handler, a resync, and a list that changes nothing."""
    memory.relax()
    stops: dict[str, list[float]] = {"the first list": [], "a late handler": [], "a repeated list": [], "a resync": []}
    for _ in range(ROUNDS):
        informer = Informer(POD, Selector(), clock=SystemClock())
        informer.add_index(BY_JOB, by_job)
        await _listed(informer)
        stops["the first list"].append(await _longest_stop(partial(informer.feed, InitDone("2000000"))))
        counter = _Counter()
        stops["a late handler"].append(await _longest_stop(partial(informer.attach, counter)))
        assert counter.told == PODS
        stops["a resync"].append(await _longest_stop(partial(_resynced, informer)))
        await _listed(informer)
        stops["a repeated list"].append(await _longest_stop(partial(informer.feed, InitDone("2000001"))))
    return [_figure(what, samples) for what, samples in stops.items()]


async def _listed(informer: Informer[Pod]) -> None:
    """Feeds a list up to its end. What is seen again is equal, and not the same object."""
    await informer.feed(Init())
    for number in range(PODS):
        body = pod_body(number) | {"status": pod_status(number)}
        body["metadata"] |= {"uid": f"uid-{number}", "resourceVersion": str(1_000_000 + number)}
        await informer.feed(Applied(msgspec.convert(body, Pod)))


async def _resynced(informer: Informer[Pod]) -> None:
    """Reads the keys as the runner does, which lets other tasks run between two of them."""
    for _ in informer.reader.all_keys():
        await asyncio.sleep(0)


async def _longest_stop(work: Callable[[], Awaitable[None]]) -> float:
    """Returns the longest CPU time, in ms, between two turns of a task that does nothing but yield."""
    longest, last, done = 0.0, time.thread_time(), False

    async def beat() -> None:
        nonlocal longest, last
        while not done:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now

    beating = asyncio.create_task(beat())
    await asyncio.sleep(0)
    last = time.thread_time()
    await work()
    await asyncio.sleep(0)
    done = True
    await beating
    return longest * 1000


def _figure(what: str, samples: list[float]) -> Figure:
    found = spread(samples)
    return Figure(
        bench="pauses",
        name=f"loop stopped by {what}, {PODS:,} pods",
        value=found["median"],
        unit="ms",
        goal=GOAL_MS,
        detail=found,
    )
