"""Simulates pods: each pod on our nodes goes through the play that the script gives it."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import anyio
from anyio.abc import TaskGroup

from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.cache.change import Change
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import NotFound
from torchctl.runtime.clock import Clock
from torchctl.runtime.kinds import Key
from torchctl.testing.fleet import MANAGER, Fleet
from torchctl.testing.nodekinds import POD, Pod
from torchctl.testing.persist import Persistence
from torchctl.testing.podstatus import Record, status_of
from torchctl.testing.script import LoseNode, Pause, Play, PodReport, Script, Show, Step, finish, overdue, perform
from torchctl.testing.volumes import Provisioner

__all__ = ["Players"]


@dataclass(slots=True, eq=False)
class _Life:
    """One pod on one of our nodes, from its binding until it is gone."""

    pod: Pod
    play: Play
    record: Record
    report: PodReport | None = None
    exists: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    plays: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    deleted: anyio.Event = field(default_factory=anyio.Event)
    cue: anyio.Event = field(default_factory=anyio.Event)
    exit_code: int = 0
    deadline_s: int | None = None
    is_overdue: bool = False


class Players:
    """All pods on the fleet's nodes. A pod that is being deleted is stopped as its play says, then removed."""

    def __init__(
        self,
        client: Client,
        cache: Cache,
        fleet: Fleet,
        provisioner: Provisioner,
        *,
        script: Script,
        persist: Persistence,
        clock: Clock,
    ) -> None:
        self.script = script
        self._client = client
        self._fleet = fleet
        self._provisioner = provisioner
        self._persist = persist
        self._clock = clock
        self._pods = cache.register(POD)
        self._lives: dict[str, _Life] = {}
        self._addresses = itertools.count(1)
        self._tasks: TaskGroup | None = None

    async def run(self) -> None:
        """Works until cancelled; the cache must be running."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            self._pods.add_handler(self)
            await anyio.sleep_forever()

    def on_event(self, change: Change[Pod]) -> None:
        pod = change.object
        life = self._lives.get(pod.metadata.uid)
        if change.new is None:
            if life is not None:
                life.exists.cancel()
            return
        if life is None and pod.spec.node_name in self._fleet:
            life = self._begin(pod)
        if life is not None:
            life.pod = pod
            if pod.is_leaving:
                life.deleted.set()
                life.plays.cancel()
            elif pod.spec.active_deadline_seconds is not None and life.deadline_s is None:
                life.deadline_s = pod.spec.active_deadline_seconds
                assert self._tasks is not None
                self._tasks.start_soon(self._limit, life, life.deadline_s)

    def end(self, key: Key, exit_code: int) -> None:
        """Lets the containers of a pod that runs, or is being stopped, end now.

        Raises:
            KeyError: There is no such pod on our nodes.
        """
        life = next((life for life in self._lives.values() if life.pod.key == key), None)
        if life is None:
            raise KeyError(str(key))
        life.exit_code = exit_code
        life.cue.set()

    def log(self, key: Key) -> str | None:
        """Returns a pod's log; None if there is no such pod on our nodes."""
        return next((life.play.log for life in self._lives.values() if life.pod.key == key), None)

    def _begin(self, pod: Pod) -> _Life:
        assert self._tasks is not None
        number = next(self._addresses)
        ip = f"10.{128 + (number >> 16) % 64}.{number >> 8 & 255}.{number & 255}"
        life = _Life(pod, self.script(pod), Record(ip, self._clock.now()))
        self._lives[pod.metadata.uid] = life
        self._tasks.start_soon(self._live, life)
        return life

    async def _live(self, life: _Life) -> None:
        try:
            with life.exists:
                with life.plays:
                    await self._play(life)
                if life.is_overdue and not life.deleted.is_set():
                    await self._finish(life, life.play)
                await life.deleted.wait()
                await self._stop(life)
                # Only a finalizer keeps the pod now.
                await anyio.sleep_forever()
        finally:
            del self._lives[life.pod.metadata.uid]

    async def _limit(self, life: _Life, deadline_s: int) -> None:
        """Ends a pod at the age of its activeDeadlineSeconds."""
        age_s = (self._clock.now() - life.record.bound_at).total_seconds()
        await self._clock.sleep(max(0.0, deadline_s - age_s))
        life.is_overdue = True
        life.plays.cancel()

    async def _play(self, life: _Life) -> None:
        if life.pod.is_terminal:
            return
        for step in self._steps(life):
            match step:
                case Pause(seconds):
                    with anyio.move_on_after(seconds):
                        await life.cue.wait()
                    if life.cue.is_set():
                        break
                case Show(report):
                    await self._show(life, report)
                    if report.phase == "Pending":
                        await self._provisioner.wait_bound(life.pod.claims)
                case LoseNode():
                    await self._fleet.lose(life.pod.spec.node_name)
        if life.report is None or not life.report.is_terminal:
            await life.cue.wait()
            await self._finish(life, replace(life.play, stop_exit_code=life.exit_code))

    def _steps(self, life: _Life) -> Iterable[Step]:
        steps = perform(life.pod, life.play)
        if life.pod.status.phase != "Running":
            return steps
        # An earlier process played this pod already, so its containers do not start again.
        return itertools.dropwhile(lambda step: not (isinstance(step, Show) and step.report.phase == "Running"), steps)

    async def _stop(self, life: _Life) -> None:
        meta = life.pod.metadata
        if not life.pod.is_terminal:
            grace_s = float(meta.deletion_grace_period_seconds or 0)
            with anyio.move_on_after(min(life.play.stop_s, grace_s)):
                await life.cue.wait()
            await self._finish(life, life.play)
        await self._fleet.wait_up(life.pod.spec.node_name)
        try:
            await self._persist(
                lambda: self._client.delete(POD, meta.name, namespace=meta.namespace, uid=meta.uid, grace_seconds=0)
            )
        except NotFound:
            return

    async def _finish(self, life: _Life, play: Play) -> None:
        report = finish(life.pod, play, life.report)
        if report is not None:
            await self._show(life, overdue(report) if life.is_overdue else report)

    async def _show(self, life: _Life, report: PodReport) -> None:
        """Shows a report once the node is up."""
        pod, status = life.pod, status_of(life.pod, report, life.record, self._clock.now())
        await self._fleet.wait_up(pod.spec.node_name)
        life.report = report
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid},
            "status": status,
        }
        try:
            await self._persist(
                lambda: self._client.apply(POD, body, subresource="status", force=True, field_manager=MANAGER)
            )
        except NotFound:
            # The watch will report the deletion too, and end this task.
            await anyio.sleep_forever()
