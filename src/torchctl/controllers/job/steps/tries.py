"""Reads the tries of a workspace sync from the sync pods: each one's request, its end, and the time used so far.

A sync pod is judged by its own containers, `fetch` and `serve`. Clusters inject others beside them (a mesh's proxy),
which run on after ours have ended; such a pod is stopped and not deleted, so that its log stays.

The exit code of `fetch` says what follows a failed try: 1 is a refusal, which no other try changes; 75 is a source that
could not be reached, which is tried again until the time is over, after ever longer pauses; anything else (a pod that
was evicted, a container that ran out of memory) counts to `TRIES`.

The time counts while `fetch` runs, and between tries. It does not count while a pod waits for a node, a volume or an
image, because that is not the source's fault. It begins anew when the job is suspended or resumed.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from torchctl.api import labels
from torchctl.api.kube import Pod, Terminated
from torchctl.controllers.job import pods
from torchctl.controllers.job.actions import Halt
from torchctl.controllers.job.children.sync import FETCH, SERVE
from torchctl.runtime.kinds import key_of

__all__ = [
    "TRIES",
    "after_latest_fetch",
    "failure",
    "fetched",
    "halt",
    "has_begun",
    "has_ended",
    "is_kept",
    "is_refused",
    "is_unreachable",
    "number",
    "number_in",
    "pause_s",
    "revision_of",
    "runs_on",
    "serves",
    "used_s",
]

TRIES = 3
"""Sync pods that may fail for a reason that is not the source's before the job does."""
_REFUSED, _UNREACHABLE = 1, 75
"""Exit codes of `torchctl workspace fetch` (see torchctl.workspace.errors)."""
_PAUSE_S = 10.0
_LONGEST_PAUSE_S = 60.0


def revision_of(pod: Pod) -> str:
    """The revision that a sync pod was asked for."""
    return pod.metadata.annotations.get(labels.WORKSPACE_REVISION, "")


def is_kept(pod: Pod) -> bool:
    """Whether the pod leaves what the claim has."""
    return labels.WORKSPACE_KEPT in pod.metadata.annotations


def serves(pod: Pod) -> bool:
    """Whether the pod has brought the workspace and its server runs, ready or not."""
    every = pod.status.container_statuses or ()
    return fetched(pod) and any(status.name == SERVE and status.state.running is not None for status in every)


def number(pod: Pod) -> int:
    """The number in a sync pod's name."""
    return number_in(pod.metadata.name)


def number_in(name: str) -> int:
    tail = name.rpartition("-")[2]
    return int(tail) if tail.isdecimal() else 0


def fetched(pod: Pod) -> bool:
    """Whether the pod has brought the workspace, whatever became of it afterwards."""
    ended = pods.termination(pod, FETCH)
    return ended.exit_code == 0 if ended is not None else pods.succeeded(pod)


def has_begun(pod: Pod) -> bool:
    """Whether `fetch` has started."""
    return _started_at(pod) is not None or pod.status.phase == "Running" or has_ended(pod)


def has_ended(pod: Pod) -> bool:
    """Whether the try is over: nothing of the pod runs, or only what the cluster put beside our container."""
    return pods.has_ended(pod) or _main(pod) is not None


def runs_on(pod: Pod) -> bool:
    """Whether the try is over and another container keeps the pod from ending."""
    return has_ended(pod) and not pods.has_ended(pod) and pod.metadata.deletion_timestamp is None


def failure(pod: Pod) -> Terminated | None:
    """Returns the failed end of our container, or of the first one that failed; None if no container reports one."""
    ours = [ended for name in (FETCH, SERVE) if (ended := pods.termination(pod, name)) and ended.exit_code]
    fatal = pods.fatal(pod)
    return ours[0] if ours else fatal[1] if fatal else None


def is_refused(pod: Pod) -> bool:
    """Whether the source, or what it has, is not acceptable."""
    return _exit_code(pod) == _REFUSED


def is_unreachable(pod: Pod) -> bool:
    """Whether the source could not be reached, which may be otherwise later."""
    return _exit_code(pod) == _UNREACHABLE


def after_latest_fetch(every: Iterable[Pod], since: datetime | None) -> list[Pod]:
    """The tries that count, in order: those after the last pod that brought the workspace, and not over before `since`.

    A pod that is only to serve what is there may come late.
    """
    known = sorted(every, key=number)
    last = max((number(pod) for pod in known if fetched(pod)), default=-1)
    return [pod for pod in known if number(pod) > last and not _was_over(pod, since)]


def pause_s(tries: Sequence[Pod]) -> float:
    """Seconds between the end of the last of these tries and the next one."""
    unreachable = sum(map(is_unreachable, tries))
    if not tries or not is_unreachable(tries[-1]):
        return 0.0
    return min(_PAUSE_S * 2.0 ** min(unreachable - 1, 10), _LONGEST_PAUSE_S)


def used_s(tries: Sequence[Pod], since: datetime | None, now: datetime) -> float:
    """Seconds that these tries have run for, and the pauses after them, as far as they are over."""
    used = 0.0
    for index, pod in enumerate(tries):
        start, end = _started_at(pod), ended_at(pod)
        if start is not None and (end is not None or not has_ended(pod)):
            used += _seconds(max(start, since or start), end or now)
        if end is not None:
            used += min(_seconds(end, now), pause_s(tries[: index + 1]))
    return used


def ended_at(pod: Pod) -> datetime | None:
    """Returns when the try was over; None if no container reports it, as may be with a pod that was evicted."""
    ended = _main(pod) or pods.termination(pod, FETCH)
    return _not_before(pod, ended.finished_at) if ended is not None else None


def halt(every: Iterable[Pod], now: datetime, *, recorded: bool) -> tuple[Halt, ...]:
    """Ends the pods whose try is over and in which another container runs on. Deleting them would delete their log.

    Args:
        recorded: Whether status records the workspace already; the pod that brought it is not ended before.
    """
    over = [pod for pod in every if runs_on(pod) and pod.spec.active_deadline_seconds is None]
    return tuple(
        Halt(key_of(pod), pod.metadata.uid, max(1, int(_seconds(pod.status.start_time or now, now))))
        for pod in over
        if recorded or not fetched(pod)
    )


def _main(pod: Pod) -> Terminated | None:
    """Returns the end of our main container: `fetch`, or `serve` in a pod that serves."""
    every = pod.status.container_statuses or ()
    return next((status.state.terminated for status in every if status.name in (FETCH, SERVE)), None)


def _exit_code(pod: Pod) -> int | None:
    ended = pods.termination(pod, FETCH)
    return ended.exit_code if ended is not None else None


def _started_at(pod: Pod) -> datetime | None:
    every = (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
    state = next((status.state for status in every if status.name == FETCH), None)
    begun = (state.running or state.terminated) if state is not None else None
    return _not_before(pod, begun.started_at) if begun is not None else None


def _not_before(pod: Pod, moment: datetime | None) -> datetime | None:
    """A time of the node's clock, which may be behind: nothing of a pod happened before the pod was created."""
    made = pod.metadata.creation_timestamp
    return max(moment, made) if moment is not None and made is not None else moment


def _was_over(pod: Pod, since: datetime | None) -> bool:
    over = ended_at(pod) or pod.metadata.creation_timestamp
    return has_ended(pod) and since is not None and over is not None and over < since


def _seconds(start: datetime, end: datetime) -> float:
    return max(0.0, (end - start).total_seconds())
