"""The operator is cut down at each of its writes; the one after it ends with what an undisturbed one ends with."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from anyio.abc import Process
from operators import RunningOperator, operator_process, running_operator
from stories import SCRIPT, STORIES, Story
from sweeps import pods_made, sweep, undisturbed
from tellings import Stage

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.transport import AiohttpTransport
from torchctl.testing.audit import read_audit_log
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import ScriptedKubelet
from torchctl.testing.proxy import FaultProxy

EVERY = 1 if os.environ.get("TORCHCTL_SWEEP") == "all" else 3
"""Each so many-th point is swept. `make sweep` takes all of them."""

AT_ONCE = 4
KILLED = 20
MAY_BE_MISSED = 0.2
"""Share of the points that no telling may come by: some writes happen only where events come in a certain order."""
KILLED_AT_ONCE = 3


@pytest.fixture(autouse=True)
def script(kubelet: ScriptedKubelet) -> Iterator[None]:
    before, kubelet.script = kubelet.script, SCRIPT
    yield
    kubelet.script = before


@pytest.fixture
def in_process(
    control_plane: ControlPlane, admin: Client, transport: AiohttpTransport, operator_account: Connection
) -> Stage:
    """Operators are tasks that are cancelled: while that goes on nothing of theirs gets through."""

    @asynccontextmanager
    async def life(proxy: FaultProxy, namespace: str) -> AsyncIterator[RunningOperator]:
        async with running_operator(proxy.connection(operator_account), namespace) as operator:
            yield operator

    return Stage(admin, transport, control_plane.connection(), life)


@pytest.fixture
def as_process(in_process: Stage, operator_account: Connection, tmp_path: Path) -> Stage:
    """Operators are processes that get SIGKILL."""

    @asynccontextmanager
    async def life(proxy: FaultProxy, namespace: str) -> AsyncIterator[Process]:
        kubeconfig = await proxy.kubeconfig(operator_account)
        log = tmp_path / f"{namespace}.log"
        async with operator_process(kubeconfig, log, "--no-leader-elect", "--namespace", namespace) as process:
            yield process

    return replace(in_process, life=life, checks_rest=False)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("story", STORIES.values(), ids=lambda story: story.name)
async def test_a_crash_at_any_write_changes_nothing_in_the_end(
    story: Story, in_process: Stage, control_plane: ControlPlane, report: Callable[[str], None]
) -> None:
    log = control_plane.audit_log
    start = log.stat().st_size
    normal, points = await undisturbed(in_process, story)
    swept = await sweep(in_process, story, normal, points[::EVERY], at_once=AT_ONCE)
    report(f"{swept} of {len(points)} points")
    assert swept.problems() == []
    assert len(swept.missed) <= MAY_BE_MISSED * len(points[::EVERY]), swept
    assert pods_made(read_audit_log(log, start), [*normal, *swept.tellings]) == []


@pytest.mark.timeout(900)
async def test_a_program_killed_at_any_write_is_followed_by_one_that_ends_the_same(
    in_process: Stage, as_process: Stage, control_plane: ControlPlane, report: Callable[[str], None]
) -> None:
    log, story = control_plane.audit_log, STORIES["gang"]
    start = log.stat().st_size
    normal, points = await undisturbed(in_process, story)
    spread = [points[index * len(points) // KILLED] for index in range(KILLED)]
    swept = await sweep(as_process, story, normal, spread, at_once=KILLED_AT_ONCE)
    report(f"{swept} (by SIGKILL)")
    assert swept.problems() == []
    assert len(swept.missed) <= MAY_BE_MISSED * KILLED, swept
    assert pods_made(read_audit_log(log, start), [*normal, *swept.tellings]) == []
