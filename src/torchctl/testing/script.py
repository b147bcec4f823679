"""Scripts the lives of pods: a script gives each pod a play, and a play is a sequence of stages. Pure.

    script = Script().when(named("-1$"), Play(exit_code=1, run_s=2)).when(role("sync"), BROKEN_IMAGE)

The rule that was added last is tried first; a pod that no rule matches gets `default_play`.
"""

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from torchctl.api.labels import ROLE, ROLE_SYNC
from torchctl.testing.nodekinds import Container, Pod

__all__ = [
    "SYNC_MESSAGE",
    "Done",
    "LoseNode",
    "Part",
    "Pause",
    "Play",
    "PodReport",
    "Running",
    "Script",
    "Show",
    "Step",
    "Waiting",
    "default_play",
    "finish",
    "inside",
    "labelled",
    "named",
    "overdue",
    "perform",
    "role",
]

FETCH = "fetch"
"""The container of a sync pod that reports what it fetched."""

SYNC_MESSAGE = '{"revision":"0123abc","digest":"sha256:00","bytes":1024,"files":3,"source":"git"}'

LOG_IN_MESSAGE = 2048
"""The bytes of the log that become the termination message under FallbackToLogsOnError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The scripted life of one container.

    Attributes:
        run_s: Seconds that it runs; None: until it is told to stop.
        exit_code: Its exit code then.
        reason: The reason of its end, such as OOMKilled; None: Completed or Error, depending on the exit code.
        ready: It becomes ready.
        blocked: The waiting reason that it never leaves, such as CrashLoopBackOff.
        blocked_message: The message that goes with it.
    """

    run_s: float | None = 0.0
    exit_code: int = 0
    reason: str | None = None
    ready: bool = True
    blocked: str = ""
    blocked_message: str = ""


_SIDECAR = Part(run_s=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """The scripted life of one pod once it is on a node.

    Attributes:
        start_delay_s: Seconds from its binding to the start of its first container.
        run_s: Seconds that its main containers run; None: until the pod is deleted.
        exit_code: The exit code of its main containers.
        reason: The reason of their end, such as OOMKilled; None: Completed or Error, depending on the exit code.
        parts: Containers that differ, by name. Without a part, a main container follows the three fields above, an
            init container succeeds at once, and a native sidecar runs until the main containers have ended.
        messages: Termination messages by container.
        log: The output of its main containers.
        blocked: The waiting reason that its first container never leaves, such as ImagePullBackOff.
        blocked_message: The message that goes with it.
        evicted: The node evicts it with this message, instead of its own end.
        node_lost: Its node is lost, instead of its own end.
        ready: Its main containers become ready.
        stop_s: Seconds that it takes to end when it is deleted.
        stop_exit_code: Its exit code then.
    """

    start_delay_s: float = 0.0
    run_s: float | None = 0.1
    exit_code: int = 0
    reason: str | None = None
    parts: Mapping[str, Part] = field(default_factory=dict)
    messages: Mapping[str, str] = field(default_factory=dict)
    log: str = ""
    blocked: str = ""
    blocked_message: str = ""
    evicted: str = ""
    node_lost: bool = False
    ready: bool = True
    stop_s: float = 0.0
    stop_exit_code: int = 143

    def main(self, container: str) -> Part:
        """Returns the scripted life of a main container."""
        own = Part(run_s=self.run_s, exit_code=self.exit_code, reason=self.reason, ready=self.ready)
        return self.parts.get(container, own)

    def init(self, container: Container) -> Part:
        """Returns the scripted life of an init container."""
        return self.parts.get(container.name, _SIDECAR if container.is_sidecar else Part())


@dataclass(frozen=True, slots=True)
class Waiting:
    """A container that does not run yet."""

    reason: str = "PodInitializing"
    message: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    ready: bool = True


@dataclass(frozen=True, slots=True)
class Done:
    """A container that has ended."""

    exit_code: int = 0
    reason: str = "Completed"
    message: str = ""


State = Waiting | Running | Done
Phase = Literal["Pending", "Running", "Succeeded", "Failed"]


@dataclass(frozen=True, slots=True)
class PodReport:
    """A pod as its node reports it.

    Attributes:
        phase: The pod's phase.
        init: States of its init containers, in order.
        main: States of its containers, in order.
        reason: The reason of the whole pod, e.g. Evicted.
        message: A text for people.
        disrupted: The reason of the condition DisruptionTarget; empty without that condition.
    """

    phase: Phase
    init: tuple[State, ...] = ()
    main: tuple[State, ...] = ()
    reason: str = ""
    message: str = ""
    disrupted: str = ""

    @property
    def is_terminal(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing happens for a while."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Show:
    """The node reports the state of the pod."""

    report: PodReport


@dataclass(frozen=True, slots=True)
class LoseNode:
    """The pod's node stops reporting."""


Step = Pause | Show | LoseNode
Matcher = Callable[[Pod], bool]


def default_play(pod: Pod) -> Play:
    """Returns the default play: a sync pod reports what it fetched; any other pod runs for a moment and succeeds.

    If an init container does the fetching, the main one serves until the pod is deleted.
    """
    if pod.metadata.labels.get(ROLE) != ROLE_SYNC:
        return Play()
    serves = any(container.name == FETCH for container in pod.spec.init_containers)
    return Play(run_s=None if serves else 0.1, messages={FETCH: SYNC_MESSAGE}, stop_exit_code=0)


@dataclass(frozen=True, slots=True)
class Script:
    """Gives each pod its play: the first rule that matches, else `fallback`."""

    rules: tuple[tuple[Matcher, Play | Callable[[Pod], Play]], ...] = ()
    fallback: Callable[[Pod], Play] = default_play

    def when(self, matches: Matcher, play: Play | Callable[[Pod], Play]) -> "Script":
        """Returns a script with one more rule, which precedes the others."""
        return replace(self, rules=((matches, play), *self.rules))

    def __call__(self, pod: Pod) -> Play:
        for matches, play in self.rules:
            if matches(pod):
                return play if isinstance(play, Play) else play(pod)
        return self.fallback(pod)


def named(pattern: str) -> Matcher:
    """Matches pods whose name contains the regular expression."""
    expression = re.compile(pattern)
    return lambda pod: expression.search(pod.metadata.name) is not None


def inside(namespace: str) -> Matcher:
    """Matches pods of one namespace."""
    return lambda pod: pod.metadata.namespace == namespace


def labelled(**labels: str) -> Matcher:
    """Matches pods with these labels, for label names that are Python names."""
    return lambda pod: labels.items() <= pod.metadata.labels.items()


def role(value: str) -> Matcher:
    """Matches pods of this role: `sync` or `worker`."""
    return lambda pod: pod.metadata.labels.get(ROLE) == value


def perform(pod: Pod, play: Play) -> Iterator[Step]:
    """Yields the steps of a pod from its binding until it ends, or nothing more happens by itself."""
    idle, waits = (Waiting(),) * len(pod.spec.init_containers), (Waiting(),) * len(pod.spec.containers)
    first = Waiting() if idle else Waiting("ContainerCreating")
    yield Show(PodReport("Pending", idle, (first,) * len(waits)))
    if play.start_delay_s:
        yield Pause(play.start_delay_s)
    if play.blocked:
        yield Show(_blocked(pod, play))
        return
    init = yield from _initialise(pod, play)
    if init is None:
        return
    if any(isinstance(state, Done) and state.exit_code for state in init):
        ended = tuple(state if isinstance(state, Waiting) else _stopped(state, 0) for state in init)
        yield Show(PodReport("Failed", (*ended, *idle[len(ended) :]), waits))
        return
    main = tuple(_begun(play.main(container.name)) for container in pod.spec.containers)
    yield Show(PodReport(_phase(main), init, main))
    if not any(isinstance(state, Waiting) for state in main):
        yield from _run(pod, play, init, main)


def finish(pod: Pod, play: Play, now: PodReport | None) -> PodReport | None:
    """Returns the last report of a deleted pod that was in `now`; None if it had ended before.

    Containers that never ran fail without an exit code; running ones end with the play's `stop_exit_code`.
    """
    if now is not None and now.is_terminal:
        return None
    if now is None or now.phase == "Pending":
        init = now.init if now is not None else (Waiting(),) * len(pod.spec.init_containers)
        main = now.main if now is not None else (Waiting("ContainerCreating"),) * len(pod.spec.containers)
        init, main = (tuple(_stopped(state, play.stop_exit_code) for state in states) for states in (init, main))
        return PodReport("Failed", init, main)
    pairs = zip(pod.spec.containers, now.main, strict=True)
    main = tuple(
        _done(container, play, Part(exit_code=play.stop_exit_code, reason=play.reason)) if _runs(state) else state
        for container, state in pairs
    )
    return _over(now.init, main)


def overdue(report: PodReport) -> PodReport:
    """Returns the last report of a pod that its activeDeadlineSeconds ended (pkg/kubelet/active_deadline.go)."""
    message = "Pod was active on the node longer than the specified deadline"
    return replace(report, phase="Failed", reason="DeadlineExceeded", message=message)


def _initialise(pod: Pod, play: Play) -> Generator[Step, None, tuple[State, ...] | None]:
    """Runs the init containers one after another, native sidecars beside the next ones.

    Returns the states of those that were started; None if one of them blocks the pod.
    """
    begun: tuple[State, ...] = ()
    waits = (Waiting(),) * len(pod.spec.containers)
    for index, container in enumerate(pod.spec.init_containers):
        part, rest = play.init(container), (Waiting(),) * (len(pod.spec.init_containers) - index - 1)
        yield Show(PodReport("Pending", (*begun, _begun(part), *rest), waits))
        if part.blocked or (part.run_s is None and not container.is_sidecar):
            return None
        if container.is_sidecar:
            begun = (*begun, _begun(part))
            continue
        if part.run_s:
            yield Pause(part.run_s)
        begun = (*begun, _done(container, play, part))
        if part.exit_code:
            break
    return begun


def _run(pod: Pod, play: Play, init: tuple[State, ...], main: tuple[State, ...]) -> Iterator[Step]:
    """Ends the main containers in the order of their times; a play that loses its node or is evicted ends as one."""
    if play.node_lost or play.evicted:
        if play.run_s is not None:
            yield Pause(play.run_s)
            yield LoseNode() if play.node_lost else Show(_evicted(pod, play, init))
        return
    parts, passed_s = [play.main(container.name) for container in pod.spec.containers], 0.0
    for end_s in sorted({part.run_s for part in parts if part.run_s is not None}):
        yield Pause(end_s - passed_s)
        passed_s, triples = end_s, zip(pod.spec.containers, parts, main, strict=True)
        main = tuple(_done(box, play, part) if part.run_s == end_s else state for box, part, state in triples)
        over = not any(map(_runs, main))
        yield Show(_over(init, main) if over else PodReport("Running", init, main))


def _blocked(pod: Pod, play: Play) -> PodReport:
    """Returns the report of a pod whose first container cannot start."""
    stuck = Waiting(play.blocked, play.blocked_message)
    init, main = pod.spec.init_containers, pod.spec.containers
    if init:
        return PodReport("Pending", (stuck, *(Waiting(),) * (len(init) - 1)), (Waiting(),) * len(main))
    return PodReport("Pending", (), (stuck,) * len(main))


def _over(init: tuple[State, ...], main: tuple[State, ...]) -> PodReport:
    """Returns the report after the main containers ended: native sidecars are stopped, whatever their exit codes."""
    failed = any(isinstance(state, Done) and state.exit_code for state in main)
    return PodReport("Failed" if failed else "Succeeded", tuple(_stopped(state, 0) for state in init), main)


def _evicted(pod: Pod, play: Play, init: tuple[State, ...]) -> PodReport:
    killed = Part(exit_code=137, reason="Error")
    states = tuple(_done(container, play, killed) for container in pod.spec.containers)
    ended = tuple(_stopped(state, 137) for state in init)
    return PodReport("Failed", ended, states, "Evicted", play.evicted, "TerminationByKubelet")


def _phase(main: tuple[State, ...]) -> Phase:
    """Returns the pod's phase: Pending if any container never started, whatever the others do (kubelet's getPhase)."""
    return "Pending" if any(isinstance(state, Waiting) for state in main) else "Running"


def _begun(part: Part) -> State:
    return Waiting(part.blocked, part.blocked_message) if part.blocked else Running(part.ready)


def _runs(state: State) -> bool:
    return isinstance(state, Running)


def _stopped(state: State, code: int) -> State:
    return Done(code, _reason(code)) if _runs(state) else state


def _done(container: Container, play: Play, part: Part) -> Done:
    code, message = part.exit_code, play.messages.get(container.name, "")
    if not message and code and container.termination_message_policy == "FallbackToLogsOnError":
        message = play.log[-LOG_IN_MESSAGE:]
    return Done(code, part.reason or _reason(code), message)


def _reason(code: int) -> str:
    return "Error" if code else "Completed"
