"""Campaigns for a Lease and runs work while it is held. All rules are in `core`; this module does the I/O.

Needs RBAC for `leases.coordination.k8s.io` in the Lease's namespace: get, watch, create, patch.
"""

import random
import socket
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC

import anyio
import msgspec
import structlog

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.codec import Added, Deleted, ErrorLine, Modified
from torchctl.runtime.client.errors import AlreadyExists, ApiError, Conflict, NotFound
from torchctl.runtime.clock import Clock
from torchctl.runtime.kinds import LEASE, Key, Lease
from torchctl.runtime.leaderelection.core import Elector, Read, Wait, Write
from torchctl.runtime.leaderelection.fence import Fence
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.settings import ElectionSettings

__all__ = ["LeaderElector", "new_identity"]

RELEASE_S = 5.0
"""Seconds that the release of the Lease may take when the process stops."""

RELEASE_ATTEMPTS = 3

Lead = Callable[[], Awaitable[None]]

log = structlog.get_logger("torchctl.leaderelection")


def new_identity() -> str:
    """Returns a unique name for this run of this process, in client-go's form: host name and a random part."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class LeaderElector:
    """Runs work on one replica at a time.

    Args:
        client: Reads and writes the Lease. Its fence, if any, does not apply to the Lease.
        identity: A name unique to this run of the process; see `new_identity`.
        fence: Allows writes while this replica leads. Give it to the client that the work writes with.
    """

    def __init__(
        self,
        client: Client,
        lease_namespace: str,
        lease_name: str,
        identity: str,
        settings: ElectionSettings,
        clock: Clock,
        fence: Fence,
        *,
        metrics: Metrics | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.lease = Key(lease_namespace, lease_name)
        self.identity = identity
        self._core = Elector(identity, settings)
        self._client = client.unfenced()
        self._settings = settings
        self._clock = clock
        self._fence = fence
        self._rng = rng if rng is not None else random.Random()
        metrics = metrics if metrics is not None else Metrics(process=False)
        self._status = metrics.for_lease(lease_name)
        self._slow = metrics.leader_election_slowpath_total.labels(lease_name)
        self._changed = anyio.Event()
        self._watching = False
        self._unanswered = False
        self._holder = ""
        self._stepped_down_at: float | None = None

    def __repr__(self) -> str:
        return f"<LeaderElector {self.identity} of {self.lease}: {self._core.holder or 'nobody'} leads>"

    @property
    def is_leader(self) -> bool:
        return self._core.leads(self._clock.monotonic())

    @property
    def holder(self) -> str:
        """The identity of the leader as last seen, "" if there is none."""
        return self._core.holder

    def check(self) -> str:
        """Complains about work that goes on although it was cancelled. A check for `HealthChecks.add_live`."""
        if self._stepped_down_at is None:
            return ""
        late_s = self._clock.monotonic() - self._stepped_down_at
        if late_s <= self._settings.lease_duration_s:
            return ""
        return f"leadership ended {late_s:.0f} s ago and the work still runs"

    async def run(self, lead: Lead) -> None:
        """Campaigns for ever and runs `lead` while this replica leads.

        When leadership is lost, `lead` is cancelled and awaited before the next campaign. Returns when `lead` returns;
        raises its errors in an exception group.

        When cancelled, it cancels and awaits `lead` first and then gives the Lease up, so that another replica
        leads at once and never beside work that still goes on here.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow)
            try:
                done = False
                while not done:
                    await self._campaign()
                    done = await self._reign(lead)
            finally:
                self._step_down()
                await self._release()
                tasks.cancel_scope.cancel()

    async def _campaign(self) -> None:
        while not self.is_leader:
            await self._turn()

    async def _reign(self, lead: Lead) -> bool:
        """Runs `lead` until it ends or leadership is lost. Returns True if it ended by itself."""
        done = False
        log.info("became leader", lease=str(self.lease), identity=self.identity)
        self._status.set(1)
        async with anyio.create_task_group() as tasks:

            async def work() -> None:
                nonlocal done
                await lead()
                done = True
                tasks.cancel_scope.cancel()

            tasks.start_soon(work)
            while self.is_leader:
                await self._turn()
            self._step_down()
            self._stepped_down_at = self._clock.monotonic()
            log.error("lost leadership", lease=str(self.lease), holder=self.holder, identity=self.identity)
            tasks.cancel_scope.cancel()
        self._stepped_down_at = None
        return done

    def _step_down(self) -> None:
        self._core.resign()
        self._fence.disarm()
        self._status.set(0)

    async def _turn(self) -> None:
        """Performs one action of the core."""
        now = self._clock.monotonic()
        action = self._core.next(now, self._wall(), watching=self._watching)
        if isinstance(action, Wait):
            with anyio.move_on_after(action.until - now):
                await self._changed.wait()
            return
        await self._attempt(action, now)
        self._settle()

    async def _attempt(self, action: Read | Write, sent_at: float) -> None:
        timeout_s = self._settings.request_timeout_s
        if self._core.leads(sent_at):
            timeout_s = min(timeout_s, self._core.leads_until - sent_at)
        try:
            with anyio.fail_after(timeout_s):
                await (self._read() if isinstance(action, Read) else self._write(action, sent_at))
        except (ApiError, TimeoutError) as error:
            self._core.failed(sent_at, self._rng.random())
            self._slow.inc()
            log.warning("the Lease cannot be reached", lease=str(self.lease), error=str(error) or "no answer")

    async def _read(self) -> None:
        try:
            lease = await self._client.get(LEASE, self.lease.name, self.lease.namespace)
        except NotFound:
            self._core.missing()
        else:
            self._core.saw(lease, self._clock.monotonic(), live=True)
        self._core.polled(self._clock.monotonic(), self._rng.random())

    async def _write(self, action: Write, sent_at: float) -> None:
        try:
            lease = await self._send(action)
        except (Conflict, AlreadyExists, NotFound) as error:
            self._core.conflicted(sent_at, self._rng.random())
            log.info("the Lease is not as it was seen", lease=str(self.lease), error=str(error))
        else:
            self._core.wrote(lease, sent_at, self._clock.monotonic())

    async def _send(self, write: Write) -> Lease:
        """Sends a merge patch for one version of the Lease, which keeps the labels and annotations of others."""
        metadata = {"name": self.lease.name, "namespace": self.lease.namespace}
        body = {"metadata": metadata, "spec": msgspec.to_builtins(write.spec)}
        self._unanswered = True
        if write.resource_version:
            metadata["resourceVersion"] = write.resource_version
            lease = await self._client.merge_patch(LEASE, self.lease.name, body, namespace=self.lease.namespace)
        else:
            body = {"apiVersion": LEASE.api_version, "kind": LEASE.kind, **body}
            lease = await self._client.create(LEASE, body, self.lease.namespace)
        self._unanswered = False
        return lease

    async def _follow(self) -> None:
        """Watches the Lease for ever. While the watch is broken, `_turn` polls."""
        while True:
            opened_at = self._clock.monotonic()
            try:
                await self._watch()
            except ApiError as error:
                log.debug("the watch of the Lease ended", lease=str(self.lease), error=str(error))
            self._watching = False
            self._wake()
            if self._clock.monotonic() - opened_at < self._settings.retry_period_s:
                await self._clock.sleep(self._settings.retry_period_s * (1 + self._rng.random()))

    async def _watch(self) -> None:
        """Runs one watch, which begins with the current state. Silence ends it, because a living leader renews."""
        fields = f"metadata.name={self.lease.name}"
        async with self._client.watch(LEASE, namespace=self.lease.namespace, fields=fields) as stream:
            self._watching = True
            while line := await stream.readline(self._settings.renew_deadline_s):
                event = self._client.codec.decode_event(LEASE, line)
                if isinstance(event, ErrorLine):
                    return
                if isinstance(event, Added | Modified):
                    self._core.saw(event.object, self._clock.monotonic(), live=False)
                elif isinstance(event, Deleted):
                    self._core.missing(event.object.metadata.resource_version)
                self._settle()
                self._wake()

    def _settle(self) -> None:
        """Updates the fence from the core, and logs a change of the leader."""
        if self.is_leader:
            self._fence.arm(self._core.leads_until)
        else:
            self._fence.disarm()
        if self.holder != self._holder:
            self._holder = self.holder
            log.info("the Lease changed hands", lease=str(self.lease), holder=self.holder)

    async def _release(self) -> None:
        if not self._settings.release:
            return
        with anyio.move_on_after(RELEASE_S, shield=True):
            for _ in range(RELEASE_ATTEMPTS):
                try:
                    if self._unanswered:  # the write that was cut off may have changed the version or made us holder
                        await self._read()
                        self._unanswered = False
                    write = self._core.release(self._wall())
                    if write is None:
                        return
                    self._core.saw(await self._send(write), self._clock.monotonic(), live=False)
                except (Conflict, NotFound):
                    continue
                except ApiError as error:
                    log.warning("the Lease was not released", lease=str(self.lease), error=str(error))
                else:
                    log.info("released the Lease", lease=str(self.lease))
                    return

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def _wall(self) -> str:
        return self._clock.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
