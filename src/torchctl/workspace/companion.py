"""`torchctl workspace companion`: the sync pod's server for jobs whose code can change while they run.

On the pod network: the archive (as `serve`), and `POST /launcher/v1/KEY` for the launchers of the workers, each of
which always has one report waiting here for its order. docs/design/launcher.md has the protocol.

All that is remembered is in memory: a companion that starts anew learns it from the next reports. The wanted tree is
the one that the claim has.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import quote

import anyio
import msgspec
from aiohttp import web

from .core import Limits
from .errors import WorkspaceError
from .marker import read_marker
from .membership.core import Membership, Settings, Target
from .membership.messages import VERSION, Order, OrderKind, Report, State
from .serve import add_archive, readiness, running

__all__ = ["Companion", "application", "companion"]

TICK_S = 1.0
HOLD_S = 20.0
"""How long a report waits for another order than the one that is carried out."""
HOLD_EXITED_S = 3.0
"""A launcher whose program has ended wants to hear soon that somebody thinks about it."""
MAX_REPORT = 16 * 1024
WAIT = Order(OrderKind.WAIT)


class Companion:
    """Holds the reports of the launchers until there is an order for them.

    Args:
        read_target: Reads the tree that the claim has; None while it has none.
    """

    def __init__(
        self, read_target: Callable[[], Target | None], clock: Callable[[], float], settings: Settings | None = None
    ) -> None:
        self._read_target = read_target
        self._clock = clock
        self.membership = Membership(clock(), read_target(), settings or Settings())
        self._waiting: dict[str, asyncio.Future[Order]] = {}
        self._orders: dict[str, Order] = {}
        self._planned = False

    async def exchange(self, report: Report) -> Order:
        """Take a report and answer with the order, once it is another one than the launcher carries out."""
        now = self._clock()
        if not self.membership.heard(report, now):
            return WAIT
        earlier = self._waiting.pop(report.incarnation, None)
        if earlier and not earlier.done():
            earlier.set_result(WAIT)
        future: asyncio.Future[Order] = asyncio.get_running_loop().create_future()
        self._waiting[report.incarnation] = future
        self._changed()
        try:
            async with asyncio.timeout(HOLD_EXITED_S if report.state is State.EXITED else HOLD_S):
                return await future
        except TimeoutError:
            return WAIT
        except asyncio.CancelledError:
            self.membership.dropped(report.incarnation, report.seq, self._clock())
            raise
        finally:
            if self._waiting.get(report.incarnation) is future:
                del self._waiting[report.incarnation]

    def committed(self) -> None:
        """Look at the claim: another tree may have been put there."""
        self.membership.commit(self._read_target())
        self._changed()

    def settled(self) -> bool:
        """Whether there is no launcher that still has to take up the wanted tree."""
        return not self.membership.behind(self._clock())

    def state(self) -> dict[str, object]:
        """Return what is known, for people and for the plugin."""
        now = self._clock()
        target = self.membership.target
        behind = {report.incarnation for report in self.membership.behind(now)}
        return {
            "version": VERSION,
            "revision": target.revision if target else "",
            "launchers": [
                {
                    "index": report.index,
                    "attempt": report.attempt,
                    "state": report.state,
                    "revision": report.revision,
                    "runs": report.runs,
                    "world": report.world.id if report.world else "",
                    "rank": report.world.rank if report.world else None,
                    "nodes": report.nodes,
                    "behind": report.incarnation in behind,
                    "trouble": report.trouble.message if report.trouble else "",
                }
                for report in self.membership.current(now)
            ],
        }

    async def close(self, app: web.Application) -> None:
        """Answer all that waits: the server ends."""
        for future in self._waiting.values():
            if not future.done():
                future.set_result(WAIT)

    async def run(self) -> None:
        """Let time pass, until cancelled."""
        while True:
            await anyio.sleep(TICK_S)
            self.committed()

    def _changed(self) -> None:
        """Decide once for all that happened in one turn of the event loop."""
        if not self._planned:
            self._planned = True
            asyncio.get_running_loop().call_soon(self._plan)

    def _plan(self) -> None:
        self._planned = False
        orders = self.membership.orders(self._clock())
        for incarnation, future in list(self._waiting.items()):
            order = orders.get(incarnation, WAIT)
            seen = self.membership.seen[incarnation]
            if order.kind is not OrderKind.WAIT and order.name != seen.report.order and not future.done():
                future.set_result(order)


class _Launchers:
    """The request handlers."""

    def __init__(self, companion: Companion, root: Path) -> None:
        self._companion = companion
        self._has_workspace = readiness(root)
        self._decoder = msgspec.json.Decoder(Report)

    async def report(self, request: web.Request) -> web.Response:
        try:
            report = self._decoder.decode(await request.read())
        except msgspec.DecodeError as error:
            return web.json_response({"error": str(error), "version": VERSION}, status=400)
        order = await self._companion.exchange(report)
        return web.Response(body=msgspec.json.encode(order), content_type="application/json")

    async def state(self, request: web.Request) -> web.Response:
        return web.json_response(self._companion.state())

    async def readyz(self, request: web.Request) -> web.Response:
        """Ready while no launcher runs an older tree than the claim has: the operator looks at that."""
        if self._companion.settled():
            return await self._has_workspace(request)
        return web.Response(status=503, text="workers run another revision\n")


def target_of(root: Path) -> Target | None:
    """Read the tree that a claim has from its marker."""
    try:
        marker = read_marker(root)
    except WorkspaceError:
        return None
    return Target(marker.digest) if marker else None


def application(
    root: Path, companion: Companion, *, limits: Limits, streams: int = 16, key: str = ""
) -> web.Application:
    """Make the server for the pod network as an aiohttp application; only who knows the key gets an answer."""
    launchers = _Launchers(companion, root)
    path = f"/launcher/v{VERSION}/{quote(key, safe='')}"
    app = web.Application(client_max_size=MAX_REPORT)
    app.on_shutdown.append(companion.close)
    app.router.add_get("/readyz", launchers.readyz)
    app.router.add_get(path, launchers.state, allow_head=False)
    app.router.add_post(path, launchers.report)
    add_archive(app, root, limits=limits, streams=streams, key=key)
    return app


async def companion(root: Path, *, host: str | None, port: int, limits: Limits, streams: int = 16, key: str) -> None:
    """Serve until cancelled."""
    made = Companion(partial(target_of, root), time.monotonic)
    app = application(root, made, limits=limits, streams=streams, key=key)
    async with running(app, host=host, port=port, handler_cancellation=True):
        await made.run()
