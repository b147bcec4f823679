"""The real API server takes our Events and `kubectl` shows them."""

import json

import anyio

from torchctl.runtime.client.client import Client
from torchctl.runtime.clock import SystemClock
from torchctl.runtime.events import EventRecorder
from torchctl.runtime.kinds import EVENT, ObjectReference
from torchctl.runtime.metrics import Metrics
from torchctl.testing.controlplane import ControlPlane


async def test_repeated_event_is_one_object_with_a_count(
    control_plane: ControlPlane, admin: Client, namespace: str
) -> None:
    thing = ObjectReference(kind="ConfigMap", namespace=namespace, name="thing", uid="u-1", api_version="v1")
    metrics = Metrics(process=False)
    recorder = EventRecorder(admin, clock=SystemClock(), metrics=metrics)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(recorder.run)
        recorder.event(thing, "Warning", "Refused", "no room")
        recorder.event(thing, "Warning", "Refused", "no room")
        tasks.cancel_scope.cancel()  # what is queued is written before it ends
    assert metrics.registry.get_sample_value("torchctl_events_written_total") == 2
    (event,) = [event for event in await admin.list(EVENT, namespace=namespace) if event.involved_object == thing]
    assert (event.count, event.type, event.reason, event.message) == (2, "Warning", "Refused", "no room")
    shown = json.loads(await control_plane.kubectl("events", "-n", namespace, "--for=configmap/thing", "-o", "json"))
    assert [item["source"]["component"] for item in shown["items"]] == ["torchctl"]


async def test_the_next_process_counts_on(admin: Client, namespace: str) -> None:
    thing = ObjectReference(kind="ConfigMap", namespace=namespace, name="thing", uid="u-1", api_version="v1")
    for _ in range(2):
        metrics = Metrics(process=False)
        recorder = EventRecorder(admin, clock=SystemClock(), metrics=metrics)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(recorder.run)
            recorder.event(thing, "Normal", "Started", "started")
            with anyio.fail_after(60):
                while not metrics.registry.get_sample_value("torchctl_events_written_total"):  # noqa: ASYNC110  # a counter wakes nobody
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
    (event,) = [event for event in await admin.list(EVENT, namespace=namespace) if event.involved_object == thing]
    assert event.count == 2


async def test_an_event_of_a_cluster_scoped_object_is_taken(admin: Client) -> None:
    node = ObjectReference(kind="Node", name="gpu-1", uid="n-1", api_version="v1")
    metrics = Metrics(process=False)
    recorder = EventRecorder(admin, clock=SystemClock(), metrics=metrics)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(recorder.run)
        recorder.event(node, "Normal", "Seen", "seen")
        tasks.cancel_scope.cancel()
    assert metrics.registry.get_sample_value("torchctl_events_written_total") == 1
