"""The operator is cut down at each of its writes; the one after it ends with what an undisturbed one ends with."""

import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from anyio.abc import Process
from clusters import CONFIG, install_kueue, install_volcano
from gangacts import open_volcano_queue
from gangstories import VOLCANO_STORIES
from gates import sample
from operators import operator_process
from scenes import queues_and_jobs, scene_of
from stories import SCRIPT, STORIES
from sweeps import MAY_BE_MISSED, WHOLE, chosen, sweep, undisturbed, workers_made
from tellings import Scene

from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.transport import AiohttpTransport
from torchctl.testing.audit import read_audit_log
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import ScriptedKubelet
from torchctl.testing.proxy import FaultProxy

CHOSEN = os.environ.get("TORCHCTL_STORIES", "")
"""Names of the stories that are swept, all of them where it says nothing."""

AT_ONCE = 16
KILLED = 20 if WHOLE else 3
KILLED_AT_ONCE = 3


@pytest.fixture(autouse=True)
def script(kubelet: ScriptedKubelet) -> Iterator[None]:
    before, kubelet.script = kubelet.script, SCRIPT
    yield
    kubelet.script = before


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def seen(control_plane: ControlPlane, operator_account: Connection) -> AsyncGenerator[Cache]:
    """Queues and jobs, as they are. The operator may have the coordinator, Kueue's kinds and Volcano's are there."""
    await control_plane.kubectl("apply", "-k", str(CONFIG / "coordinator"))
    await install_kueue(control_plane)
    await install_volcano(control_plane)
    async with control_plane.client() as client:
        await open_volcano_queue(client, VOLCANO_STORIES)
        async with queues_and_jobs(client) as cache:
            yield cache


@pytest.fixture
def in_process(
    control_plane: ControlPlane,
    admin: Client,
    transport: AiohttpTransport,
    seen: Cache,
    kubelet: ScriptedKubelet,
    operator_account: Connection,
) -> Scene:
    return scene_of(admin, transport, control_plane.connection(), seen, kubelet, operator_account)


@pytest.fixture
def as_process(in_process: Scene, operator_account: Connection, tmp_path: Path) -> Scene:
    """Operators are processes that get SIGKILL."""

    @asynccontextmanager
    async def life(proxy: FaultProxy, namespace: str) -> AsyncIterator[Process]:
        kubeconfig = await proxy.kubeconfig(operator_account)
        log = tmp_path / f"{namespace}.log"
        async with operator_process(kubeconfig, log, "--no-leader-elect", "--namespace", namespace) as process:
            yield process

    return replace(in_process, life=life, checks_rest=False)


@pytest.mark.timeout(5400)
async def test_a_crash_at_any_write_changes_nothing_in_the_end(
    in_process: Scene, control_plane: ControlPlane, report: Callable[[str], None]
) -> None:
    log, started = control_plane.audit_log, time.monotonic()
    start = log.stat().st_size
    stories = [story for name, story in STORIES.items() if name in (CHOSEN.split(",") if CHOSEN else STORIES)]
    sweeps = await undisturbed(in_process, stories, times=2 if WHOLE else 1, at_once=AT_ONCE)
    points = chosen(sweeps)
    await sweep(in_process, sweeps, points, at_once=AT_ONCE)
    for found in sweeps:
        report(str(found))
        for problem in found.problems():
            report(f"  {problem[:3000]}")
    swept, differ = sum(len(found.tellings) for found in sweeps), sum(bool(found.problems()) for found in sweeps)
    report(
        f"crash sweep of {len(sweeps)} stories: {swept} of {sum(len(found.points) for found in sweeps)} points, "
        f"{differ} stories with differences, {time.monotonic() - started:.0f} s"
    )
    assert [problem for found in sweeps for problem in found.problems()] == []
    assert sum(len(found.missed) for found in sweeps) <= MAY_BE_MISSED * sum(map(len, points))
    assert workers_made(read_audit_log(log, start), sweeps) == []


@pytest.mark.timeout(900)
@pytest.mark.skipif(bool(CHOSEN), reason="only some stories are swept")
async def test_successor_of_a_killed_operator_ends_the_same(
    in_process: Scene, as_process: Scene, control_plane: ControlPlane, report: Callable[[str], None]
) -> None:
    """The operator is a process of its own, and is killed at each of a sample of its writes."""
    log = control_plane.audit_log
    start = log.stat().st_size
    sweeps = await undisturbed(in_process, [STORIES["gang"]], times=1, at_once=1)
    await sweep(as_process, sweeps, [sample(sweeps[0].points, KILLED, 1)], at_once=KILLED_AT_ONCE)
    report(f"{sweeps[0]} (by SIGKILL)")
    assert sweeps[0].problems() == []
    assert len(sweeps[0].missed) <= MAY_BE_MISSED * KILLED
    assert workers_made(read_audit_log(log, start), sweeps) == []
