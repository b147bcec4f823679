"""Explains why a worker that has a pod is not up yet, from the pod's status and the Events about it."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from torchctl.api.kube import ContainerStatus, Pod
from torchctl.api.names import DEFAULT_SCHEDULER, TRAINER
from torchctl.controllers.job import pods
from torchctl.controllers.job.observed import Observed
from torchctl.runtime.conditions import find

__all__ = ["first_late", "has_news", "look_again_s", "sentence"]

LATE = timedelta(seconds=60)
"""Age at which a pod that is not up is reported. Most are up by then, or have a reason that is reported at once."""
PERIOD_S = 30.0
"""Seconds between two looks at a late pod, because new Events about it start no pass."""
_UNTOLD = ("", "PodInitializing")
"""Reasons of containers that only wait for those before them."""


def first_late(observed: Observed, now: datetime) -> Pod | None:
    """The first worker, by index, that should be up by now and is not."""
    late = [pod for pod, due in _awaited(observed) if due <= now]
    return min(late, key=lambda pod: pods.index(pod) or 0, default=None)


def has_news(pod: Pod) -> bool:
    """Whether Events may say more than the pod's status: a scheduler writes all it knows into that."""
    return pods.is_scheduled(pod)


def look_again_s(observed: Observed, now: datetime) -> float | None:
    """Seconds until another worker is late; while one is that may have news, until its Events are read again."""
    waits = [(pod, (due - now).total_seconds()) for pod, due in _awaited(observed)]
    moments = [left if left > 0 else PERIOD_S for pod, left in waits if left > 0 or has_news(pod)]
    return min(moments, default=None)


def sentence(pod: Pod, warning: str) -> str:
    """The state that keeps a pod from being up, since when, and the newest Warning Event about it."""
    what, since = _delay(pod)
    begun = f" since {since.strftime('%Y-%m-%d %H:%M:%S')} UTC" if since is not None else ""
    news = pods.shorten(warning)
    told = f"; {news}" if news and news.partition(": ")[2] not in what else ""
    return f"pod {pod.metadata.name}: {what}{begun}{told}; see `kubectl describe pod {pod.metadata.name}`"


def _awaited(observed: Observed) -> Iterator[tuple[Pod, datetime]]:
    """Yields pods that are not up and have no reason that is reported at once, each with the time when it is late."""
    for pod in observed.pods:
        born, leaves = pod.metadata.creation_timestamp, pod.metadata.deletion_timestamp is not None
        over = leaves or pods.has_ended(pod) or pods.termination(pod, TRAINER) is not None
        if born is not None and not over and not pods.is_up(pod) and pods.problem(pod) is None:
            yield pod, born + LATE


def _delay(pod: Pod) -> tuple[str, datetime | None]:
    """Returns the state that the pod does not leave, and since when, if its status has the time."""
    if not pods.is_scheduled(pod):
        return _unscheduled(pod), pod.metadata.creation_timestamp
    if pods.is_out_of_sight(pod):
        return f"its node {pod.spec.node_name} does not answer", None
    box = _current(pod)
    if box is None:
        return f"node {pod.spec.node_name} has not begun to start it", pod.metadata.creation_timestamp
    state = box.state
    if state.running is not None and box.name == TRAINER:
        return f"container {TRAINER} runs and is not ready: its readiness probe fails", state.running.started_at
    if state.running is not None:
        return f"init container {box.name} runs, and the others wait for it", state.running.started_at
    return f"container {box.name} waits{_reason(box)}", pod.status.start_time


def _reason(box: ContainerStatus) -> str:
    waiting = box.state.waiting
    if waiting is None or not waiting.reason:
        return ""
    return f" ({waiting.reason}){': ' if waiting.message else ''}{pods.shorten(waiting.message)}"


def _unscheduled(pod: Pod) -> str:
    scheduled = find(pod.status.conditions, "PodScheduled")
    if scheduled is None:
        name = pod.spec.scheduler_name or DEFAULT_SCHEDULER
        return f"no scheduler has looked at it: schedulerName is {name}, does that run?"
    return f"not scheduled ({scheduled.reason}): {pods.shorten(scheduled.message)}"


def _current(pod: Pod) -> ContainerStatus | None:
    """The container that the others wait for: the first that says why it waits, else the last that has begun."""
    first, main = pod.status.init_container_statuses or (), pod.status.container_statuses or ()
    every = (*first, *(status for status in main if status.name == TRAINER))
    for status in every:
        if status.state.waiting is not None and status.state.waiting.reason not in _UNTOLD:
            return status
    runs = [status for status in every if status.state.running is not None]
    return runs[-1] if runs else every[-1] if every else None
