"""Never two leaders, and never none for long: several electors, one store, a network that does what it likes.

The model runs in real time (`at`); each replica has a clock of its own rate and offset. Requests and answers are
delayed, reordered, lost, or arrive after their sender gave up. Replicas crash and come back as new ones, are
stopped for a while (SIGSTOP) and go on with what they were doing, lose the network, lose the watch, or see it
late and out of order. Somebody deletes the Lease: then two may lead until the earlier leader hears of it.
"""

import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from effort import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from torchctl.runtime.kinds import Lease, ObjectMeta
from torchctl.runtime.leaderelection.core import Elector, Read, Wait, Write
from torchctl.runtime.settings import ELECTION_JITTER, ElectionSettings

SETTINGS = ElectionSettings()
LEASE_S, DEADLINE_S = SETTINGS.lease_duration_s, SETTINGS.renew_deadline_s
LONGEST_RETRY_S = SETTINGS.retry_period_s * (1 + ELECTION_JITTER)
FAULTS_END_S = 120.0
QUIET_S = 2 * LEASE_S + 2 * LONGEST_RETRY_S + 10
GOOD_DELAY_S, BAD_DELAY_S = 0.05, 12.0

FaultName = Literal["crash", "stop", "partition", "slow", "freeze", "unwatch", "release", "delete"]


@dataclass(frozen=True)
class Fault:
    at: float
    replica: int
    name: FaultName
    for_s: float


@dataclass(frozen=True)
class World:
    """`rates` are seconds on a replica's clock per real second."""

    rates: tuple[float, ...]
    faults: tuple[Fault, ...] = ()
    seed: int = 0


class Replica:
    def __init__(self, number: int, rate: float, rng: random.Random) -> None:
        self.number, self.rate, self.offset = number, rate, rng.uniform(0, 1e6)
        self.life = 0
        self.stopped_until = self.cut_until = self.slow_until = self.blind_until = -math.inf
        self.backlog: list[Callable[[], None]] = []
        self.reborn()

    def reborn(self) -> None:
        self.life += 1
        self.elector = Elector(f"{self.number}.{self.life}", SETTINGS)
        self.request = 0
        self.busy = False
        self.step = 0

    def clock(self, at: float) -> float:
        return self.offset + at * self.rate

    def real(self, clock: float) -> float:
        return (clock - self.offset) / self.rate

    def leads(self, at: float) -> bool:
        return self.elector.leads(self.clock(at))


class Model:
    def __init__(self, world: World) -> None:
        self.rng = random.Random(world.seed)
        self.replicas = [Replica(number, rate, self.rng) for number, rate in enumerate(world.rates)]
        self.lease: Lease | None = None
        self.version = 0
        self.at = 0.0
        self.agenda: list[tuple[float, int, Callable[[], None]]] = []
        self.sequence = 0
        self.led: list[tuple[float, str]] = []
        self.commits = 0
        self.deletions: list[float] = []
        self.longest_overlap = 0.0
        for replica in self.replicas:
            self.wake(replica)
        for fault in world.faults:
            self.later(fault.at, lambda fault=fault: self.inject(fault))  # type: ignore[misc]

    def run(self, until: float) -> None:
        while self.agenda and self.agenda[0][0] <= until:
            self.at, _, do = heapq.heappop(self.agenda)
            do()
            leaders = [replica.elector.identity for replica in self.replicas if replica.leads(self.at)]
            if len(leaders) > 1:
                deleted = max(self.deletions, default=-math.inf)
                self.longest_overlap = max(self.longest_overlap, self.at - deleted)
                # The earlier leader's deadline counts from a renewal that was sent before the deletion.
                slowest = min(replica.rate for replica in self.replicas)
                assert self.at - deleted <= DEADLINE_S / slowest, f"at {self.at:.3f} s {leaders} lead"
            if leaders and (not self.led or self.led[-1][1] != leaders[0]):
                self.led.append((self.at, leaders[0]))
        self.at = until

    def leader(self) -> Replica | None:
        return next((replica for replica in self.replicas if replica.leads(self.at)), None)

    def later(self, at: float, do: Callable[[], None]) -> None:
        self.sequence += 1
        heapq.heappush(self.agenda, (max(at, self.at), self.sequence, do))

    def inside(self, replica: Replica, at: float, do: Callable[[], None]) -> None:
        """Does it in the replica: not after its death, and while it is stopped not before it goes on."""
        life = replica.life

        def when_it_can() -> None:
            if replica.life != life:
                return
            if self.at < replica.stopped_until:
                replica.backlog.append(do)
            else:
                do()

        self.later(at, when_it_can)

    def go_on(self, replica: Replica) -> None:
        """After SIGCONT everything that is overdue runs, in whatever order."""
        backlog, replica.backlog = replica.backlog, []
        self.rng.shuffle(backlog)
        for do in backlog:
            self.inside(replica, self.at, do)

    def inject(self, fault: Fault) -> None:
        replica, until = self.replicas[fault.replica % len(self.replicas)], self.at + fault.for_s
        match fault.name:
            case "crash":
                replica.reborn()
                replica.stopped_until = until
                replica.backlog = []
                self.wake(replica)
                self.later(until, lambda: self.go_on(replica))
            case "stop":
                replica.stopped_until = until
                self.later(until, lambda: self.go_on(replica))
            case "freeze":  # most likely with a request on its way
                replica.slow_until = self.at + 5
                stop = Fault(self.at + self.rng.uniform(0, 4), fault.replica, "stop", fault.for_s)
                self.later(stop.at, lambda: self.inject(stop))
            case "partition":
                replica.cut_until = until
            case "slow":
                replica.slow_until = until
            case "unwatch":
                self.blind(replica, until)
            case "delete":
                self.delete()
            case "release":
                self.inside(replica, self.at, lambda: self.release(replica))

    def blind(self, replica: Replica, until: float) -> None:
        replica.blind_until = until
        self.inside(replica, until, lambda: self.show(replica))
        self.wake(replica)

    def wake(self, replica: Replica, at: float | None = None) -> None:
        replica.step += 1
        step = replica.step

        def do() -> None:
            if step == replica.step and not replica.busy:
                self.act(replica)

        self.inside(replica, self.at if at is None else at, do)

    def act(self, replica: Replica) -> None:
        now = replica.clock(self.at)
        watching = self.at >= max(replica.blind_until, replica.cut_until)
        action = replica.elector.next(now, f"{self.at:.6f}", watching=watching)
        if isinstance(action, Wait):
            if action.until < math.inf:
                self.wake(replica, replica.real(action.until) + 1e-6)
        else:
            self.send(replica, action, now)

    def send(self, replica: Replica, action: Read | Write, sent_at: float) -> None:
        elector = replica.elector
        replica.request += 1
        number, replica.busy = replica.request, True

        def finish(take_in: Callable[[float], None]) -> None:
            if replica.request != number or not replica.busy:
                return
            replica.busy = False
            take_in(replica.clock(self.at))
            self.wake(replica)

        def answer(lease: Lease | None, refused: bool) -> Callable[[float], None]:
            def take_in(now: float) -> None:
                if isinstance(action, Write) and refused:
                    elector.conflicted(sent_at, self.rng.random())
                elif isinstance(action, Write) and lease is not None:
                    elector.wrote(lease, sent_at, now)
                else:
                    elector.saw(lease, now, live=True) if lease else elector.missing()
                    elector.polled(now, self.rng.random())

            return take_in

        def arrive() -> None:
            refused = isinstance(action, Write) and not self.commit(action)
            take_in = answer(self.lease, refused)
            if not self.lost(replica):
                self.inside(replica, self.at + self.delay(replica), lambda: finish(take_in))

        give_up_s = SETTINGS.request_timeout_s
        if elector.leads(sent_at):
            give_up_s = min(give_up_s, elector.leads_until - sent_at)
        if not self.lost(replica):
            self.later(self.at + self.delay(replica), arrive)
        self.inside(
            replica,
            self.at + give_up_s / replica.rate,
            lambda: finish(lambda now: elector.failed(sent_at, self.rng.random())),
        )

    def release(self, replica: Replica) -> None:
        """A graceful stop, after the answer to what is on its way; the replica comes back as a new one."""
        if replica.busy:
            self.inside(replica, self.at + 0.01, lambda: self.release(replica))
            return
        write = replica.elector.release(f"{self.at:.6f}")
        replica.reborn()
        self.wake(replica)
        if write is not None and not self.lost(replica):
            self.later(self.at + self.delay(replica), lambda: void(self.commit(write)))

    def commit(self, write: Write) -> bool:
        if write.resource_version != (self.lease.metadata.resource_version if self.lease else ""):
            return False
        self.version += 1
        self.commits += 1
        self.lease = Lease(ObjectMeta(name="l", resource_version=str(self.version)), write.spec)
        self.publish()
        return True

    def delete(self) -> None:
        if self.lease is not None:
            self.version += 1
            self.lease = None
            self.deletions.append(self.at)
            self.publish()

    def publish(self) -> None:
        for replica in self.replicas:
            if self.at >= replica.blind_until:
                self.show(replica, str(self.version))

    def show(self, replica: Replica, deletion: str = "") -> None:
        """Sends the watch's event. A watch that begins anew does not tell that there is no Lease."""
        lease = self.lease
        if self.lost(replica) or (lease is None and not deletion):
            return

        def news() -> None:
            if lease is None:
                replica.elector.missing(deletion)
            else:
                replica.elector.saw(lease, replica.clock(self.at), live=False)
            self.wake(replica)

        self.inside(replica, self.at + self.delay(replica), news)

    def lost(self, replica: Replica) -> bool:
        return self.at < replica.cut_until

    def delay(self, replica: Replica) -> float:
        slow = self.at < replica.slow_until
        return self.rng.uniform(0, BAD_DELAY_S if slow else GOOD_DELAY_S)


def void(_: object) -> None:
    """Makes a statement of an expression."""


RATES = st.floats(0.85, 1.2)
"""Their ratio stays below the 1.5 that the settings tolerate."""

FAULTS = st.builds(
    Fault,
    at=st.floats(0, FAULTS_END_S),
    replica=st.integers(0, 3),
    name=st.sampled_from(get_args(FaultName)),
    for_s=st.floats(0, 40),
)
WORLDS = st.builds(
    World,
    rates=st.lists(RATES, min_size=1, max_size=4).map(tuple),
    faults=st.lists(FAULTS, max_size=12).map(tuple),
    seed=st.integers(0, 2**32),
)


@given(WORLDS)
@settings(max_examples=examples(400), deadline=None)
def test_never_two_leaders_and_one_after_the_faults(world: World) -> None:
    model = Model(world)
    model.run(FAULTS_END_S)
    model.run(FAULTS_END_S + 40 + QUIET_S)
    assert model.leader() is not None


@given(st.lists(RATES, min_size=2, max_size=4).map(tuple), st.integers(0, 2**32))
@settings(max_examples=examples(50), deadline=None)
def test_a_healthy_leader_stays(rates: tuple[float, ...], seed: int) -> None:
    model = Model(World(rates, seed=seed))
    model.run(300)
    assert len(model.led) == 1


@given(st.lists(RATES, min_size=2, max_size=4).map(tuple), st.floats(20, 60), st.integers(0, 2**32), st.booleans())
@settings(max_examples=examples(100), deadline=None)
@example((1.0, 1.0), 30.0, 0, True)
def test_a_killed_leader_is_replaced_within_the_lease(
    rates: tuple[float, ...], killed_at: float, seed: int, blind: bool
) -> None:
    """With a watch within the lease; without, within the lease and one retry period more."""
    model = Model(World(rates, seed=seed))
    model.run(killed_at)
    leader = model.leader()
    assert leader is not None
    for replica in model.replicas:
        if blind:
            model.blind(replica, math.inf)
    model.inject(Fault(killed_at, leader.number, "crash", 1000))
    slowest = min(rates)
    bound = (LEASE_S + (LONGEST_RETRY_S if blind else 0)) / slowest + 6 * GOOD_DELAY_S
    model.run(killed_at + bound)
    assert model.leader() is not None


@given(st.lists(RATES, min_size=2, max_size=4).map(tuple), st.floats(20, 60), st.integers(0, 2**32))
@settings(max_examples=examples(100), deadline=None)
def test_a_released_lease_is_taken_within_one_watch_latency(
    rates: tuple[float, ...], released_at: float, seed: int
) -> None:
    model = Model(World(rates, seed=seed))
    model.run(released_at)
    leader = model.leader()
    assert leader is not None
    model.inject(Fault(released_at, leader.number, "release", 0))
    model.run(released_at + 8 * GOOD_DELAY_S)
    assert model.leader() is not None


@given(st.tuples(RATES, RATES), st.floats(20, 60), st.integers(0, 2**32), st.booleans())
@settings(max_examples=examples(100), deadline=None)
@example((1.0, 1.0), 30.0, 0, True)
@example((1.0, 1.0), 30.0, 0, False)
def test_leader_of_a_deleted_lease_is_out_within_one_retry(
    rates: tuple[float, float], deleted_at: float, seed: int, blind: bool
) -> None:
    """A newcomer that never saw the Lease leads at once. A leader that watches makes it anew, or hears of the other."""
    model = Model(World(rates, seed=seed))
    model.run(deleted_at)
    leader = model.leader()
    assert leader is not None
    if blind:
        model.blind(leader, math.inf)
    model.inject(Fault(deleted_at, 0, "delete", 0))
    model.inject(Fault(deleted_at, 1 - leader.number, "crash", 0))
    model.run(deleted_at + 30)
    heard_s = LONGEST_RETRY_S / leader.rate if blind else 0
    assert model.longest_overlap <= heard_s + 6 * GOOD_DELAY_S
    assert model.leader() is not None


def test_the_model_notices_two_leaders() -> None:
    """Clocks whose rates differ by more than the settings tolerate break the promise, and the model says so."""
    found = False
    for seed in range(30):
        model = Model(World((0.5, 1.6), (Fault(30.0, 0, "partition", 60), Fault(30, 1, "partition", 0)), seed))
        try:
            model.run(200)
        except AssertionError as error:
            found = found or "lead" in str(error)
    assert found
