"""What the launchers of a job report to, and what gives them orders: the membership rules with time and requests.

All that is remembered is in memory: a companion that starts anew learns it from the next reports. The wanted tree is
the one that the claim has. docs/design/launcher.md has the protocol.
"""

import asyncio
from collections.abc import Callable

import anyio
import msgspec

from .membership.core import Membership, Settings, Target
from .membership.messages import VERSION, Order, OrderKind, Report, State, Trouble

__all__ = ["Companion"]

TICK_S = 1.0
HOLD_S = 20.0
"""How long a report waits for another order than the one that is carried out."""
HOLD_EXITED_S = 3.0
"""A launcher whose program has ended wants to hear soon that somebody thinks about it."""
WAIT = Order(OrderKind.WAIT)
SILENT = Trouble("", "it is not heard of any more")


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
        """Whether there is no launcher that still has to take up the wanted tree, nor one to be heard of yet."""
        now = self._clock()
        return self.membership.whole(now) and not self.membership.behind(now)

    def state(self) -> dict[str, object]:
        """Return what is known, for people and for the plugin."""
        now = self._clock()
        target = self.membership.target
        behind = {report.incarnation for report in self.membership.behind(now)}
        silent = [one for one in self.membership.silent(now) if one.incarnation in behind]
        return {
            "version": VERSION,
            "revision": target.revision if target else "",
            "restart": target.restart if target else True,
            "whole": self.membership.whole(now),
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
                for report in (
                    *self.membership.current(now),
                    *(msgspec.structs.replace(one, trouble=SILENT) for one in silent),
                )
            ],
        }

    def close(self) -> None:
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
