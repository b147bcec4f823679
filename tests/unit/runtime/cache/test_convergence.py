"""Machine and store against a model of the API server, under arbitrary orders of what can happen to a watch."""

import pytest
from effort import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from torchctl.runtime.cache.change import Change
from torchctl.runtime.cache.store import Store
from torchctl.runtime.client.codec import (
    Added,
    Bookmark,
    Deleted,
    ErrorLine,
    Modified,
    Page,
    Undecodable,
)
from torchctl.runtime.kinds import LEASE, Key, Lease, LeaseSpec, ObjectMeta, Status, key_of
from torchctl.runtime.watch.core import Input, WatchMachine
from torchctl.runtime.watch.events import InitDone, ListPage, OpenWatch, Wait
from torchctl.runtime.watch.inputs import Closed, ErrorStatus, Lost, Opened, Rested, Silent
from torchctl.runtime.watch.settings import WatchSettings

NAMES = st.sampled_from(["a", "b", "c", "d"])
BAD = "cannot be decoded"

Line = Added[Lease] | Modified[Lease] | Deleted[Lease] | Undecodable


def lease(name: str, uid: int, version: int, holder: str) -> Lease:
    meta = ObjectMeta(name=name, namespace="ns", uid=f"uid-{uid}", resource_version=str(version))
    return Lease(meta, LeaseSpec(holder_identity=holder))


def is_bad(obj: Lease) -> bool:
    return obj.spec.holder_identity == BAD


def skipped(obj: Lease, *, deleted: bool = False) -> Undecodable:
    return Undecodable(
        LEASE,
        key_of(obj),
        "bad field",
        uid=obj.metadata.uid,
        resource_version=obj.metadata.resource_version,
        deleted=deleted,
    )


class Server:
    """The collection on the server's side: every version it ever had, and the events between them."""

    def __init__(self) -> None:
        self.version = 1
        self.snapshots: dict[int, dict[str, Lease]] = {1: {}}
        self.events: list[tuple[int, Line]] = []
        self.compacted = 0
        self.uids = 0

    @property
    def objects(self) -> dict[str, Lease]:
        return self.snapshots[self.version]

    def put(self, name: str, holder: str) -> None:
        old = self.objects.get(name)
        if old is None:
            self.uids += 1
        uid = int(old.metadata.uid.removeprefix("uid-")) if old else self.uids
        new = lease(name, uid, self.version + 1, holder)
        line: Line = skipped(new) if is_bad(new) else Added(new) if old is None else Modified(new)
        self._commit({**self.objects, name: new}, line)

    def delete(self, name: str) -> None:
        old = self.objects[name]
        last = lease(name, int(old.metadata.uid.removeprefix("uid-")), self.version + 1, old.spec.holder_identity or "")
        rest = {key: obj for key, obj in self.objects.items() if key != name}
        self._commit(rest, skipped(last, deleted=True) if is_bad(last) else Deleted(last))

    def after(self, version: int) -> list[tuple[int, Line]]:
        return [event for event in self.events if event[0] > version]

    def _commit(self, objects: dict[str, Lease], line: Line) -> None:
        self.version += 1
        self.snapshots[self.version] = objects
        self.events.append((self.version, line))


class Watching(RuleBasedStateMachine):
    """Hypothesis picks what happens next; in the end the faults stop and the store must be the server's."""

    streaming_list = True

    def __init__(self) -> None:
        super().__init__()
        limits = WatchSettings(page_size=2, streaming_list=self.streaming_list, stale_limit=10**9)
        self.server = Server()
        self.machine: WatchMachine[Lease] = WatchMachine(limits)
        self.store: Store[Lease] = Store(LEASE, {"holder": lambda obj: [obj.spec.holder_identity or ""]})
        self.history: dict[Key, list[Change[Lease]]] = {}
        self.now = 0.0
        self.sent = 0
        """The version up to which the open stream has sent."""
        self.backlog: list[Line] = []
        """What a streaming list has still to send before its bookmark."""
        self.synced_at = 0

    # What the server's users do.

    @rule(name=NAMES, holder=st.sampled_from(["x", "y", BAD]))
    def write(self, name: str, holder: str) -> None:
        self.server.put(name, holder)

    @precondition(lambda self: self.server.objects)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.server.delete(data.draw(st.sampled_from(sorted(self.server.objects))))

    @precondition(lambda self: self.server.objects)
    @rule(data=st.data(), holder=st.sampled_from(["x", "y", BAD]))
    def recreate(self, data: st.DataObject, holder: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.server.objects)))
        self.server.delete(name)
        self.server.put(name, holder)

    @rule()
    def compact(self) -> None:
        self.server.compacted = self.server.version

    # What the server and the network answer.

    @precondition(lambda self: not self.machine.is_reading)
    @rule(lag=st.sampled_from([0, 0, 0, 1, 3]))
    def answer(self, lag: int) -> None:
        """The request succeeds; with `lag`, at a server that is behind."""
        match self.machine.next(0.5):
            case Wait(seconds):
                self.now += seconds
                self.feed(Rested())
            case ListPage() as action:
                self.feed(self.page(action, max(1, self.server.version - lag)))
            case OpenWatch(send_initial_events=True):
                self.open_list(max(1, self.server.version - lag))
            case OpenWatch(version):
                self.open(int(version))

    def page(self, action: ListPage, newest: int) -> Input[Lease]:
        version, start = map(int, action.continue_.split(":")) if action.continue_ else (newest, 0)
        if action.continue_ and version < self.server.compacted:
            return ErrorStatus(410, "Expired")
        items = list(self.server.snapshots[version].values())
        end = start + action.limit
        return Page(
            items=tuple(obj for obj in items[start:end] if not is_bad(obj)),
            skipped=tuple(skipped(obj) for obj in items[start:end] if is_bad(obj)),
            resource_version=str(version),
            continue_=f"{version}:{end}" if end < len(items) else "",
        )

    def open_list(self, version: int) -> None:
        self.feed(Opened())
        self.sent = version
        self.backlog = [skipped(o) if is_bad(o) else Added(o) for o in self.server.snapshots[version].values()]

    def open(self, version: int) -> None:
        if version < self.server.compacted:
            self.feed(ErrorStatus(410, "Expired"))
            return
        self.feed(Opened())
        self.sent = version

    @precondition(lambda self: self.machine.is_reading)
    @rule(count=st.integers(1, 4))
    def deliver(self, count: int) -> None:
        """The next lines arrive; while the list is sent, live events may come before its bookmark."""
        for _ in range(count):
            if self.machine.is_reading:
                self.deliver_one()

    def deliver_one(self) -> bool:
        if self.backlog:
            self.feed(self.backlog.pop(0))
            return True
        for version, line in self.server.after(self.sent)[:1]:
            self.sent = version
            self.feed(line)
            return True
        return False

    @precondition(lambda self: self.machine.is_reading and not self.backlog)
    @rule()
    def bookmark(self) -> None:
        ends_list = self.machine.state.value == "receiving list"
        self.feed(Bookmark(str(self.sent), initial_events_end=ends_list))

    @precondition(lambda self: self.machine.is_reading and not self.backlog and self.server.events)
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        """A line comes once more, after a bookmark-less gap or from another server."""
        sent = [line for version, line in self.server.events if version <= self.sent]
        if sent and self.machine.state.value == "watching":
            self.feed(data.draw(st.sampled_from(sent)))

    @precondition(lambda self: self.machine.is_reading)
    @rule(code=st.sampled_from([410, 500, 504, 429]))
    def error_event(self, code: int) -> None:
        self.feed(ErrorLine(Status(code=code, reason="Expired" if code == 410 else "Whatever")))

    @precondition(lambda self: self.machine.is_reading)
    @rule(end=st.sampled_from([Closed(), Silent(), Lost("reset")]), lived_s=st.sampled_from([0.1, 10.0, 300.0]))
    def end(self, end: Closed | Silent | Lost, lived_s: float) -> None:
        self.now += lived_s
        self.feed(end)

    @precondition(lambda self: not self.machine.is_reading)
    @rule(
        fault=st.sampled_from(
            [Lost("refused"), *(ErrorStatus(code) for code in (400, 401, 403, 404, 410, 422, 429, 503))]
        )
    )
    def fail(self, fault: Lost | ErrorStatus) -> None:
        match self.machine.next(0.0):
            case Wait(seconds):
                self.now += seconds
                self.feed(Rested())
            case _:
                self.feed(fault)

    # What must hold.

    def feed(self, fed: Input[Lease]) -> None:
        if not self.machine.is_reading:
            self.backlog = []
        for event in self.machine.feed(fed, self.now):
            for change in self.store.feed(event):
                self.note(change)
            if isinstance(event, InitDone):
                self.synced_at = int(event.resource_version)

    def note(self, change: Change[Lease]) -> None:
        """Handlers see each uid appear once, then change upwards, then go, before the next uid of that name."""
        seen = self.history.setdefault(change.key, [])
        before = seen[-1].new if seen else None
        assert change.old is before
        assert change.type == ("deleted" if change.new is None else "added" if before is None else "updated")
        if change.old is not None and change.new is not None:
            assert change.old.metadata.uid == change.new.metadata.uid
            assert int(change.old.metadata.resource_version) < int(change.new.metadata.resource_version)
        uids = [past.new.metadata.uid for past in seen if past.type == "added" and past.new is not None]
        if change.type == "added" and change.new is not None:
            assert change.new.metadata.uid not in uids
        seen.append(change)

    @invariant()
    def counts_agree(self) -> None:
        everything = self.store.list()
        assert len(self.store) == len(everything) == sum(len(self.store.by_index("holder", h)) for h in "xy")

    @invariant()
    def nothing_is_ahead_of_the_server(self) -> None:
        for obj in self.store.list():
            assert int(obj.metadata.resource_version) <= self.server.version

    def teardown(self) -> None:
        for _ in range(60 + len(self.server.events)):  # each turn tells one
            if not self.machine.is_reading:
                self.answer(0)
            elif not self.deliver_one():
                if self.machine.state.value == "watching":
                    break
                self.bookmark()
        else:
            pytest.fail(f"does not settle: {self.machine!r}")
        cached = {obj.metadata.name: obj for obj in self.store.list()}
        good = {name: obj for name, obj in self.server.objects.items() if not is_bad(obj)}
        assert good == {name: obj for name, obj in cached.items() if name in good}
        for name in cached.keys() - good.keys():
            # The last good form of what cannot be decoded any more, never of another uid.
            assert cached[name].metadata.uid == self.server.objects[name].metadata.uid
        assert {key.name for key in self.store.undecodable} == self.server.objects.keys() - good.keys()


class Paging(Watching):
    streaming_list = False


Watching.TestCase.settings = Paging.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=40, deadline=None
)
TestStreamingList = Watching.TestCase
TestPaging = Paging.TestCase
