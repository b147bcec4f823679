"""The rules of membership: reports of launchers in, an order for each of them out. Pure: `now` is an argument.

A *world* is one start of the program on a fixed list of launchers, all with the same tree. Its id is made of its epoch
and of a digest of that list and of the tree, and its epoch is higher than any that its members were ever given. So one
id never stands for two lists or two trees, whatever was lost, repeated or forgotten.

The rules keep nothing that reports cannot tell again: a companion that starts empty learns who runs what, and gives no
order on half of the knowledge. It has to hear from everybody, or to wait as long as a launcher can be silent.

A world ends by order only if another one can follow:

1. everybody who is to be in it has the wanted tree, in place or downloaded;
2. then those that run are told to stop, and all to put the tree in place;
3. when all are ready with the same tree, the world is formed, and each is told to run.

A launcher that is lost between these steps is waited for, or left out if the job is elastic.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from .formed import Formed, form, half_told, is_startable
from .messages import Order, OrderKind, Report, State

__all__ = ["Membership", "Seen", "Settings", "Target"]

WAIT = Order(OrderKind.WAIT)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Times in seconds, and a bound.

    Args:
        silent_s: A launcher that was not heard of for so long is lost. It reports at least every 20 s.
        dropped_s: A launcher whose connection broke and that did not come back for so long is lost.
        learn_s: How long a new companion listens before it takes somebody for lost whom it never heard.
        settle_s: How long an elastic job waits for further members if there are neither as many as it can have nor as
            many as it began with.
        kept: Launchers that are remembered, lost ones included.
    """

    silent_s: float = 45
    dropped_s: float = 5
    learn_s: float = 30
    settle_s: float = 10
    kept: int = 10_000


@dataclass(frozen=True)
class Target:
    """The tree that everybody shall have, and whether programs that run an older one are started again."""

    revision: str
    restart: bool = True


@dataclass(frozen=True)
class Seen:
    """The last report of a launcher, and when it came."""

    report: Report
    at: float
    first: float
    dropped: float | None = None
    told_to_exit: bool = False


@dataclass(frozen=True)
class _View:
    """What is known at one moment: the launchers that count, by index."""

    now: float
    members: Mapping[int, Seen]
    reports: list[Report]
    whole: bool
    """Whether there is nobody left to be heard of for the first time."""

    @property
    def nodes(self) -> int:
        return self.reports[-1].nodes

    @property
    def expected(self) -> int:
        return self.reports[-1].expected or self.nodes

    @property
    def least(self) -> int:
        return self.reports[-1].least

    @property
    def elastic(self) -> bool:
        return self.least < self.nodes


@dataclass
class Membership:
    """All that the companion of a job knows of its launchers.

    Feed it with `heard`, `dropped` and `commit`, and ask `orders` after each and once a second.
    """

    now: float
    target: Target | None = None
    settings: Settings = field(default_factory=Settings)
    seen: dict[str, Seen] = field(default_factory=dict)
    _formed: Formed | None = None
    _dissolved: set[str] = field(default_factory=set)
    _ended: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._since = self.now

    def heard(self, report: Report, now: float) -> bool:
        """Take a report; False if a later one of the same launcher was taken already."""
        known = self.seen.get(report.incarnation)
        if known and report.seq <= known.report.seq:
            return False
        first = known.first if known else now
        told = known.told_to_exit if known else False
        self.seen[report.incarnation] = Seen(report, now, first, told_to_exit=told)
        self._forget()
        return True

    def dropped(self, incarnation: str, seq: int, now: float) -> None:
        """Note that the connection over which this report came broke before it was answered."""
        known = self.seen.get(incarnation)
        if known and known.report.seq == seq and known.dropped is None:
            self.seen[incarnation] = replace(known, dropped=now)

    def commit(self, target: Target | None) -> None:
        """Take note of the tree that the claim has; None while it has none."""
        self.target = target

    def orders(self, now: float) -> dict[str, Order]:
        """Decide anew; a launcher that is not in the answer waits."""
        view = self._view(now)
        self._check_formed(view)
        self._prune(view)
        orders = self._exits(view)
        rest = {i: seen for i, seen in view.members.items() if seen.report.incarnation not in orders}
        orders |= self._rest(_view_of(now, rest, view.whole)) if rest else {}
        for incarnation, order in orders.items():
            if order.kind is OrderKind.EXIT:
                self.seen[incarnation] = replace(self.seen[incarnation], told_to_exit=True)
        return orders

    def behind(self, now: float) -> list[Report]:
        """Return the last reports of launchers that do not run the wanted tree, or do not have it.

        One that fell silent before it had said that it has the tree is behind until another takes its place.
        """
        if self.target is None:
            return []
        there = [*self._view(now).reports, *self.silent(now)]
        return [report for report in there if not _up_to_date(report, self.target)]

    def silent(self, now: float) -> list[Report]:
        """Return the last reports of launchers that were lost without a word, and that no other has replaced.

        An elastic job goes on without them, so they are no longer counted there.
        """
        view = self._view(now)
        if not view.reports or view.elastic:
            return []
        attempt, nodes = view.reports[-1].attempt, view.nodes
        lost: dict[int, Report] = {}
        for seen in sorted(self.seen.values(), key=lambda seen: _age(seen.report)):
            report = seen.report
            if report.attempt != attempt or report.index >= nodes or report.index in view.members:
                continue
            if seen.told_to_exit or report.state in (State.LEAVING, State.EXITED):
                lost.pop(report.index, None)
            else:
                lost[report.index] = report
        return [lost[index] for index in sorted(lost)]

    def whole(self, now: float) -> bool:
        """Whether there is nobody left to be heard of for the first time, as far as one can know."""
        return self._view(now).whole

    def current(self, now: float) -> list[Report]:
        """Return the last report of each launcher that counts, by index."""
        return self._view(now).reports

    def _view(self, now: float) -> _View:
        live = [seen for seen in self.seen.values() if self._counts(seen, now)]
        attempt = max((seen.report.attempt for seen in live), default=0)
        members: dict[int, Seen] = {}
        for seen in live:
            report = seen.report
            other = members.get(report.index)
            if report.attempt == attempt and (other is None or _age(other.report) < _age(report)):
                members[report.index] = seen
        ever = {seen.report.index for seen in self.seen.values() if seen.report.attempt == attempt}
        everybody = bool(members) and len(ever) >= _known_of([seen.report for seen in members.values()])
        return _view_of(now, members, everybody or now - self._since >= self.settings.learn_s)

    def _counts(self, seen: Seen, now: float) -> bool:
        if seen.told_to_exit or seen.report.state is State.LEAVING:
            return False
        if seen.dropped is not None and now - seen.dropped >= self.settings.dropped_s:
            return False
        return now - seen.at < self.settings.silent_s

    def _exits(self, view: _View) -> dict[str, Order]:
        """Decide about programs that ended by themselves: those that are not in the answer may be started again."""
        exited = [
            seen.report
            for seen in self.seen.values()
            if seen.report.state is State.EXITED and (seen.told_to_exit or self._counts(seen, view.now))
        ]
        if not exited or not view.whole:
            return {}
        counting = {report.incarnation for report in view.reports}
        dissolved = self._dissolved | {report.stopped for report in view.reports}
        leaving = {}
        for report in exited:
            if report.incarnation not in counting or not self._stays(report, dissolved):
                leaving[report.incarnation] = Order(OrderKind.EXIT)
                if report.exit == 0 and report.world:
                    self._ended.add(report.world.id)
        return leaving

    def _stays(self, report: Report, dissolved: set[str]) -> bool:
        world = _world(report)
        if world in self._ended:
            return False
        if world and world in dissolved:
            return True
        if report.exit == 0:
            return False
        target = self.target
        if target and target.restart and target.revision != report.runs:
            return True
        return report.world is not None and report.world.restarts < report.budget

    def _rest(self, view: _View) -> dict[str, Order]:
        goal = self._goal(view)
        if not goal:
            return {}
        candidates = [report for report in view.reports if not self._left_out(report, goal, view)]
        orders = {report.incarnation: order for report in candidates if (order := _fetch(report, goal))}
        if self._hands_off(candidates):
            return {}
        self._formed = formed = self._formed or half_told(candidates, goal, self._dissolved)
        if formed:
            waiting = (one for one in candidates if is_startable(one) and one.epoch < formed.world.epoch)
            told = {one.incarnation: order for one in waiting if (order := formed.order(one.incarnation))}
            return told | orders
        if not self._may_form(candidates, view, goal):
            return orders | self._swaps(candidates, goal, orders)
        if orders or not all(_has(report, goal) for report in candidates):
            return orders
        return self._proceed(candidates, goal)

    def _proceed(self, candidates: list[Report], goal: str) -> dict[str, Order]:
        """Everybody has the tree: stop what runs, put it in place, and form the world once all are ready."""
        if all(is_startable(report) and report.revision == goal for report in candidates):
            self._formed = formed = form(candidates, goal)
            return {one.incarnation: order for one in candidates if (order := formed.order(one.incarnation))}
        stop = {
            report.incarnation: report
            for report in candidates
            if report.state is State.RUNNING or (is_startable(report) and report.revision != goal)
        }
        if any(report.state is State.BUSY for report in candidates):  # it is waited for, unless others were stopped
            stop = {key: report for key, report in stop.items() if _world(report) in self._dissolved}
        self._dissolved |= {_world(report) for report in stop.values() if report.state is State.RUNNING} - {""}
        return {incarnation: Order(OrderKind.STOP, goal) for incarnation in stop}

    def _may_form(self, candidates: list[Report], view: _View, goal: str) -> bool:
        """Whether there is a reason for another world, and everybody that it needs is there."""
        return self._is_quorum(candidates, view) and self._has_reason(candidates, view, goal)

    def _is_quorum(self, candidates: list[Report], view: _View) -> bool:
        if len(candidates) == view.nodes:
            return True
        if not view.elastic or len(candidates) < view.least or not view.whole:
            return False
        if len(candidates) == view.expected:
            return True
        newest = max(view.members[report.index].first for report in candidates)
        return view.now - newest >= self.settings.settle_s

    def _has_reason(self, candidates: list[Report], view: _View, goal: str) -> bool:
        running = [report for report in candidates if report.state is State.RUNNING]
        if len(running) < len(candidates):
            return True
        if self.target and self.target.restart and any(report.runs != goal for report in running):
            return True
        if not view.whole:
            return False
        counts = Counter(map(_world, running))  # those without a world, all together, have found each other as today
        nodes = {report.world.id: report.world.nodes for report in running if report.world}
        return len(counts) > 1 or any(counts[world] < nodes[world] for world in nodes)

    def _hands_off(self, candidates: Iterable[Report]) -> bool:
        """Whether a program of this world came to its end: then the others come to theirs."""
        return any(_world(report) in self._ended for report in candidates)

    def _left_out(self, report: Report, goal: str, view: _View) -> bool:
        """Whether an elastic world goes without a launcher that cannot take the tree."""
        stuck = report.trouble is not None and report.trouble.revision == goal
        return view.elastic and stuck and report.state is not State.RUNNING

    def _swaps(self, candidates: list[Report], goal: str, others: Mapping[str, Order]) -> dict[str, Order]:
        """Put the tree in place under programs that go on, if that was asked for."""
        if self.target is None or self.target.restart:
            return {}
        return {
            report.incarnation: Order(OrderKind.SWAP, goal)
            for report in candidates
            if report.state is State.RUNNING and report.revision != goal and report.incarnation not in others
        }

    def _goal(self, view: _View) -> str:
        """Return the tree of the next world; without a target the one that all have, empty if they differ."""
        if self.target:
            return self.target.revision
        revisions = {report.revision for report in view.reports}
        return revisions.pop() if len(revisions) == 1 else ""

    def _check_formed(self, view: _View) -> None:
        """Forget a formed world that cannot come about or is over: somebody is lost, ended, or has another tree."""
        formed = self._formed
        if formed is None:
            return
        there = {report.incarnation: report for report in view.reports}
        stale = self.target is not None and self.target.restart and self.target.revision != formed.world.revision
        if formed.has_come_about(there) or stale or not formed.can_come_about(there):
            self._formed = None

    def _prune(self, view: _View) -> None:
        known = {_world(report) for report in view.reports}
        self._dissolved &= known
        self._ended &= known

    def _forget(self) -> None:
        """Bound what is remembered: the launchers that were silent the longest go first."""
        excess = len(self.seen) - self.settings.kept
        if excess > 0:
            for incarnation, _ in sorted(self.seen.items(), key=lambda item: item[1].at)[:excess]:
                del self.seen[incarnation]


def _world(report: Report) -> str:
    return report.world.id if report.world else ""


def _view_of(now: float, members: Mapping[int, Seen], whole: bool) -> _View:
    return _View(now, members, [members[index].report for index in sorted(members)], whole)


def _known_of(reports: list[Report]) -> int:
    """Return how many launchers there are at least: those that the attempt began with, or that a world consists of."""
    nodes = min(report.nodes for report in reports)
    expected = max(report.expected or report.nodes for report in reports)
    return min(nodes, max(expected, *(report.world.nodes if report.world else 0 for report in reports)))


def _age(report: Report) -> tuple[int, str]:
    return report.started, report.incarnation


def _has(report: Report, goal: str) -> bool:
    return goal in (report.revision, report.staged)


def _fetch(report: Report, goal: str) -> Order | None:
    return None if _has(report, goal) else Order(OrderKind.TAKE, goal)


def _up_to_date(report: Report, target: Target) -> bool:
    if report.revision != target.revision:
        return False
    return report.state is not State.RUNNING or not target.restart or report.runs == target.revision
