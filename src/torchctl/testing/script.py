"""What happens to pods, written down ahead: a script gives each pod a play, a play is a sequence of stages. Pure.

    script = Script().when(named("-1$"), Play(exit_code=1, run_s=2)).when(role("sync"), BROKEN_IMAGE)

The rule that was added last is asked first; a pod that no rule matches gets `default_play`.
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
    "Pause",
    "Play",
    "Running",
    "Script",
    "Show",
    "Stage",
    "Step",
    "Waiting",
    "default_play",
    "finish",
    "inside",
    "labelled",
    "named",
    "perform",
    "role",
]

FETCH = "fetch"
"""The container of a sync pod that reports what it fetched."""

SYNC_MESSAGE = '{"revision":"0123abc","digest":"sha256:00","bytes":1024,"files":3,"source":"git"}'

LOG_IN_MESSAGE = 2048
"""Bytes of the log that become the termination message under FallbackToLogsOnError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """What happens to one pod once it is on a node.

    Attributes:
        start_delay_s: From being bound to its first container.
        run_s: How long its main containers run; None: until the pod is deleted.
        exit_code: Of its main containers.
        reason: Of their end; None: Completed or Error, as the exit code has it. OOMKilled, for instance.
        init_exit_codes: By name of an init container; one that is not 0 fails the pod.
        messages: Termination messages by container.
        log: What its main containers print.
        blocked: Waiting reason that it never leaves: ImagePullBackOff, CreateContainerConfigError, ...
        blocked_message: The message that goes with it.
        evicted: Instead of ending by itself it is evicted by the node, with this message.
        node_lost: Instead of ending by itself it takes its node away with it.
        ready: Whether its main containers become ready.
        stop_s: How long it takes to end when it is deleted.
        stop_exit_code: With which code it ends then.
    """

    start_delay_s: float = 0.0
    run_s: float | None = 0.1
    exit_code: int = 0
    reason: str | None = None
    init_exit_codes: Mapping[str, int] = field(default_factory=dict)
    messages: Mapping[str, str] = field(default_factory=dict)
    log: str = ""
    blocked: str = ""
    blocked_message: str = ""
    evicted: str = ""
    node_lost: bool = False
    ready: bool = True
    stop_s: float = 0.0
    stop_exit_code: int = 143


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
class Stage:
    """A pod as its node reports it.

    Attributes:
        phase: The pod's phase.
        init: States of its init containers, in order.
        main: States of its containers, in order.
        reason: Of the pod as a whole, e.g. Evicted.
        message: For people.
        disrupted: Reason of the condition DisruptionTarget; empty without.
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
    """The node reports a stage."""

    stage: Stage


@dataclass(frozen=True, slots=True)
class LoseNode:
    """The pod's node falls silent."""


Step = Pause | Show | LoseNode
Matcher = Callable[[Pod], bool]


def default_play(pod: Pod) -> Play:
    """A sync pod reports what it fetched; whatever else there is runs for a moment and succeeds.

    Where the fetching is done by an init container, the main one serves until the pod is deleted.
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
        """A script with one more rule, which goes before the others."""
        return replace(self, rules=((matches, play), *self.rules))

    def __call__(self, pod: Pod) -> Play:
        for matches, play in self.rules:
            if matches(pod):
                return play if isinstance(play, Play) else play(pod)
        return self.fallback(pod)


def named(pattern: str) -> Matcher:
    """Pods in whose name the regular expression is found."""
    expression = re.compile(pattern)
    return lambda pod: expression.search(pod.metadata.name) is not None


def inside(namespace: str) -> Matcher:
    """Pods of one namespace."""
    return lambda pod: pod.metadata.namespace == namespace


def labelled(**labels: str) -> Matcher:
    """Pods with these labels, for label names that are Python names."""
    return lambda pod: labels.items() <= pod.metadata.labels.items()


def role(value: str) -> Matcher:
    """Pods of this role: `sync` or `worker`."""
    return lambda pod: pod.metadata.labels.get(ROLE) == value


def perform(pod: Pod, play: Play) -> Iterator[Step]:
    """What happens to the pod from the moment it is on a node, until it ends or nothing more happens by itself."""
    count = len(pod.spec.containers)
    idle = (Waiting(),) * len(pod.spec.init_containers)
    first = Waiting() if idle else Waiting("ContainerCreating")
    yield Show(Stage("Pending", idle, (first,) * count))
    if play.start_delay_s:
        yield Pause(play.start_delay_s)
    if play.blocked:
        yield Show(_blocked(pod, play))
        return
    done = yield from _initialise(pod, play)
    if any(state.exit_code for state in done):
        yield Show(Stage("Failed", (*done, *idle[len(done) :]), (Waiting(),) * count))
        return
    yield Show(Stage("Running", done, (Running(play.ready),) * count))
    if play.run_s is None:
        return
    yield Pause(play.run_s)
    if play.node_lost:
        yield LoseNode()
    elif play.evicted:
        yield Show(_evicted(pod, play, done))
    else:
        yield Show(_ended(pod, play, done, play.exit_code))


def finish(pod: Pod, play: Play, now: Stage | None) -> Stage | None:
    """The stage that a deleted pod ends in, coming from `now`; None if it had ended before.

    What never ran fails without an exit code; what runs ends with the play's `stop_exit_code`.
    """
    if now is not None and now.is_terminal:
        return None
    if now is None or now.phase == "Pending":
        init = now.init if now is not None else (Waiting(),) * len(pod.spec.init_containers)
        return Stage("Failed", _stopped(init, play), (Waiting("ContainerCreating"),) * len(pod.spec.containers))
    return _ended(pod, play, now.init, play.stop_exit_code)


def _initialise(pod: Pod, play: Play) -> Generator[Step, None, tuple[Done, ...]]:
    """Runs the init containers one after another; returns how they ended."""
    done: tuple[Done, ...] = ()
    count = len(pod.spec.containers)
    names = [container.name for container in pod.spec.init_containers]
    for index, container in enumerate(pod.spec.init_containers):
        rest = (Waiting(),) * (len(names) - index - 1)
        yield Show(Stage("Pending", (*done, Running(), *rest), (Waiting(),) * count))
        code = play.init_exit_codes.get(container.name, 0)
        done = (*done, _done(container, play, code, None))
        if code:
            break
    return done


def _blocked(pod: Pod, play: Play) -> Stage:
    """The first container that would start cannot."""
    stuck = Waiting(play.blocked, play.blocked_message)
    init, main = pod.spec.init_containers, pod.spec.containers
    if init:
        return Stage("Pending", (stuck, *(Waiting(),) * (len(init) - 1)), (Waiting(),) * len(main))
    return Stage("Pending", (), (stuck,) * len(main))


def _ended(pod: Pod, play: Play, init: tuple[State, ...], code: int) -> Stage:
    states = tuple(_done(container, play, code, play.reason) for container in pod.spec.containers)
    return Stage("Failed" if code else "Succeeded", init, states)


def _evicted(pod: Pod, play: Play, init: tuple[State, ...]) -> Stage:
    states = tuple(_done(container, play, 137, "Error") for container in pod.spec.containers)
    return Stage("Failed", init, states, "Evicted", play.evicted, "TerminationByKubelet")


def _stopped(states: tuple[State, ...], play: Play) -> tuple[State, ...]:
    return tuple(
        Done(play.stop_exit_code, _reason(play.stop_exit_code)) if isinstance(state, Running) else state
        for state in states
    )


def _done(container: Container, play: Play, code: int, reason: str | None) -> Done:
    message = play.messages.get(container.name, "")
    if not message and code and container.termination_message_policy == "FallbackToLogsOnError":
        message = play.log[-LOG_IN_MESSAGE:]
    return Done(code, reason or _reason(code), message)


def _reason(code: int) -> str:
    return "Error" if code else "Completed"
