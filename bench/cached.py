"""Bytes that one cached pod keeps: the decoded object, the store and the product's index, without a network."""

import gc
import sys
import tracemalloc
import uuid
from collections.abc import Iterator
from typing import Any

import anyio
import msgspec

from bench.figures import Figure
from bench.pods import pod_body, pod_status
from bench.syncing import resident
from torchctl.api.kube import POD, Pod
from torchctl.controllers.job.observe import BY_JOB, by_job
from torchctl.runtime.cache.store import Store
from torchctl.runtime.client.codec import Added, Codec
from torchctl.runtime.watch.events import Applied

__all__ = ["measure"]

PODS = 10_000
SIZE = 6_000
"""Bytes of a pod as JSON."""

GOAL_BYTES = 3_000
WAYS = ("tracemalloc", "rss")


async def measure() -> list[Figure]:
    """Once by tracemalloc and once by resident memory, each in a process of its own."""
    figures = []
    for way in WAYS:
        done = await anyio.run_process([sys.executable, "-m", "bench.cached", way], stderr=None)
        kept = float(done.stdout)
        name = f"kept per cached pod of {SIZE / 1000:g} KB, by {way}"
        figures.append(
            Figure(bench="cached", name=name, value=kept, unit="bytes", goal=GOAL_BYTES, detail={"pods": PODS})
        )
    return figures


def line(number: int) -> bytes:
    """Pod `number` as a line of a watch, filled up to SIZE with what the API server adds and nobody reads."""
    body: dict[str, Any] = pod_body(number)
    body["metadata"] |= {
        "uid": str(uuid.uuid5(uuid.NAMESPACE_OID, str(number))),
        "resourceVersion": str(1_000_000 + number),
        "creationTimestamp": f"2026-03-01T08:{number // 60 % 60:02}:{number % 60:02}Z",
        "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {"f:padding": ""}}}],
    }
    body["status"] = pod_status(number)
    padding = "x" * (SIZE - len(msgspec.json.encode(body)))
    body["metadata"]["managedFields"][0]["fieldsV1"]["f:status"]["f:padding"] = padding
    return msgspec.json.encode({"type": "ADDED", "object": body})


def kept(way: str) -> float:
    """Bytes per pod. The lines are made as they are needed, so that they are not part of it."""
    store: Store[Pod] = Store(POD, {BY_JOB: by_job})
    codec = Codec()
    _fill(store, codec, range(PODS, PODS + 1))  # decoders are built, modules imported
    gc.collect()
    now = resident
    if way == "tracemalloc":
        tracemalloc.start()
        now = _traced
    before = now()
    _fill(store, codec, range(PODS))
    gc.collect()
    return (now() - before) / PODS


def _traced() -> int:
    return tracemalloc.get_traced_memory()[0]


def _fill(store: Store[Pod], codec: Codec, numbers: range) -> None:
    for pod in _decoded(codec, numbers):
        for _ in store.feed(Applied(pod)):
            pass


def _decoded(codec: Codec, numbers: range) -> Iterator[Pod]:
    for number in numbers:
        event = codec.decode_event(POD, line(number))
        assert isinstance(event, Added)
        yield event.object


if __name__ == "__main__":
    print(kept(sys.argv[1]))
