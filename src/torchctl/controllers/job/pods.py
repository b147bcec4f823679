"""Reads a pod's status: its progress, what is wrong with it, and how it ended."""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from torchctl.api.kube import ContainerStatus, Pod, Terminated
from torchctl.api.names import JOB_TRACKING, TRAINER
from torchctl.controllers.job import gates
from torchctl.runtime.conditions import find, is_true

__all__ = [
    "NEXT_STEPS",
    "failed",
    "fatal",
    "finds_no_node",
    "has_ended",
    "has_finished",
    "index",
    "is_done",
    "is_out_of_sight",
    "is_ready",
    "is_scheduled",
    "is_up",
    "outlives_trainer",
    "problem",
    "pulled",
    "runs_on",
    "shorten",
    "succeeded",
    "termination",
    "told_at",
    "told_to_stop",
    "waits_for_claim",
    "was_forced",
]

INDEX_KEY = "batch.kubernetes.io/job-completion-index"

_PROBLEMS = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ImagePullBackOff",
        "InvalidImageName",
        "RunContainerError",
    }
)
_SAME = {"ErrImagePull": "ImagePullBackOff", "RegistryUnavailable": "ImagePullBackOff"}
"""Reasons that mean one problem to a person, because the kubelet goes back and forth between trying and waiting."""
NEXT_STEPS = {
    "ImagePullBackOff": "check the image's name and the pull secrets",
    "ErrImageNeverPull": "check the image's name and imagePullPolicy",
    "InvalidImageName": "correct the image's name",
    "CreateContainerConfigError": "check the Secrets and ConfigMaps that it names, and securityContext",
    "CreateContainerError": "check command, mounts and securityContext",
    "RunContainerError": "check command, mounts and securityContext",
    gates.GATED: "see what that controller says of the pod (docs/troubleshooting.md)",
    "Unschedulable": "free or add such nodes, ask for less, or create what is not found",
}
"""Next steps for a person, by the state that Kubernetes reports of a pod."""
UNBOUND = "unbound immediate PersistentVolumeClaims"
"""Words of kube-scheduler's message while a claim is not bound (pkg/scheduler/framework/plugins/volumebinding)."""
FITS = "Schedulable"
"""Volcano's reason for a pod of a waiting gang that would fit: what keeps it is said of its peers."""
_WORD = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
"""The pattern of a reason in metav1.Condition. A pod's conditions may have any text there: schedulers are many."""
_MAX_MESSAGE = 1024
_NODE_SKEW = timedelta(seconds=2)
"""The most by which a node's clock may be behind the control plane's."""
_LAST_DELETE = timedelta(seconds=30)
"""The longest time from the end of a stopped pod's containers to the kubelet's deletion of the pod; usual is a second
or two. A person's deletion that soon after the end is taken for the kubelet's; such a pod is there only for a moment,
until the Job controller has counted it."""


def index(pod: Pod) -> int | None:
    """The pod's completion index, which is its node's rank for static rendezvous."""
    text = pod.metadata.annotations.get(INDEX_KEY) or pod.metadata.labels.get(INDEX_KEY, "")
    return int(text) if text.isdecimal() else None


def succeeded(pod: Pod) -> bool:
    return pod.status.phase == "Succeeded"


def is_up(pod: Pod) -> bool:
    """Whether a worker is up: its trainer runs and passes its readiness probe, if it has one.

    Other containers of the pod, and its readiness gates, say nothing about the training.
    """
    trainer = _status(pod, TRAINER)
    if trainer is None or trainer.state.running is None:
        return False
    return trainer.ready and not is_out_of_sight(pod)


def is_out_of_sight(pod: Pod) -> bool:
    """Whether the pod's node does not answer: all that is known of its containers is old.

    The node controller sets Ready to False then, and leaves ContainersReady and the reason as the kubelet wrote them
    (pkg/controller/util/node, MarkPodsNotReady).
    """
    ready = find(pod.status.conditions, "Ready")
    unsaid = ready is not None and ready.status == "False" and not ready.reason
    return unsaid and is_true(pod.status.conditions, "ContainersReady")


def has_finished(pod: Pod) -> bool:
    """Whether the trainer exited 0, also because it was told to stop."""
    ended = _ended(pod, TRAINER)
    return ended is not None and ended.exit_code == 0


def is_done(pod: Pod) -> bool:
    """Whether a worker is done: its trainer exited 0 without having been told to stop.

    What the pod's other containers do, and how they end, does not count. If the kubelet itself ended the pod (evicted
    it, or shut its node down), the pod has a reason, and nothing says whether the trainer had exited before.
    """
    return has_finished(pod) and not told_to_stop(pod) and not (pod.status.phase == "Failed" and pod.status.reason)


def failed(pod: Pod) -> bool:
    """Whether a worker failed: its trainer did, or the pod did before its trainer was done."""
    ended = _ended(pod, TRAINER)
    if ended is not None and ended.exit_code != 0:
        return True
    return pod.status.phase == "Failed" and not is_done(pod)


def runs_on(pod: Pod) -> bool:
    """Whether the trainer failed and another container keeps the pod from ending."""
    return failed(pod) and outlives_trainer(pod)


def outlives_trainer(pod: Pod) -> bool:
    """Whether a plain container runs on after the trainer has ended. Native sidecars do not, Kubernetes ends them."""
    if has_ended(pod) or _ended(pod, TRAINER) is None:
        return False
    return any(status.state.terminated is None for status in pod.status.container_statuses or ())


def is_ready(pod: Pod) -> bool:
    return is_true(pod.status.conditions, "Ready")


def is_scheduled(pod: Pod) -> bool:
    return bool(pod.spec.node_name) or is_true(pod.status.conditions, "PodScheduled")


def told_to_stop(pod: Pod) -> bool:
    """Whether the pod was told to stop before it ended by itself.

    Both times are whole seconds, and of two clocks; a trainer that ends in the second in which it was told to may well
    have been told first, and one that exits 0 up to two seconds before it. An exit 0 that is doubted wrongly has the
    training repeated; one that is believed wrongly is the end of a training that was not done.

    The kubelet deletes a pod once more when its containers have ended, without grace, and that moves the deletion time
    to the time of the end (k8s.io/apiserver BeforeDelete): when it was told first is not to be seen any more.
    """
    told, ended = told_at(pod), _ended_at(pod)
    if told is None:
        return False
    if ended is None or told <= ended + (_NODE_SKEW if has_finished(pod) else timedelta()):
        return True
    return not pod.metadata.deletion_grace_period_seconds and told - ended <= _LAST_DELETE


def told_at(pod: Pod) -> datetime | None:
    """The time at which the pod was told to stop; its deletion time is the end of its grace period."""
    until = pod.metadata.deletion_timestamp
    return until - timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0) if until is not None else None


def is_tracked(pod: Pod) -> bool:
    """Whether the pod has the finalizer of its Job's controller, which takes it off the pods that it stops itself.

    That is before it deletes them (k8s.io/kubernetes pkg/controller/job deleteJobPods). If somebody else deletes a pod,
    a Job with podReplacementPolicy Failed leaves it on until the pod has ended, and an exit 0 counts for its index. One
    with TerminatingOrFailed, as elastic jobs have, counts the pod at once and takes it off.
    """
    return JOB_TRACKING in pod.metadata.finalizers


def was_forced(pod: Pod) -> bool:
    """Whether the pod was deleted without grace: nothing more can be done to it, it goes when nobody holds it."""
    return pod.metadata.deletion_timestamp is not None and pod.metadata.deletion_grace_period_seconds == 0


def has_ended(pod: Pod) -> bool:
    """Whether nothing of the pod runs any more."""
    return pod.status.phase in ("Succeeded", "Failed")


def pulled(pod: Pod, container: str) -> bool:
    """Whether an init container of the pod has done its work."""
    ended = next((s.state.terminated for s in pod.status.init_container_statuses or () if s.name == container), None)
    return ended is not None and ended.exit_code == 0


def problem(pod: Pod) -> tuple[str, str] | None:
    """Explains why a pod does not start: reason and message with pod and next step; None if all is well."""
    found = next(_problems(pod), None)
    if found is None:
        return None
    reason, message = found
    step = NEXT_STEPS.get(reason, "see `kubectl describe pod`")
    return reason, f"pod {pod.metadata.name}: {shorten(message) or reason}; {step}"


def finds_no_node(pod: Pod) -> bool:
    """Whether the scheduler has looked for a node for the pod, and there is none."""
    scheduled = find(pod.status.conditions, "PodScheduled")
    unfit = scheduled is not None and (scheduled.status, scheduled.reason) == ("False", "Unschedulable")
    return unfit and not waits_for_claim(pod)


def waits_for_claim(pod: Pod) -> bool:
    """Whether the scheduler only waits for a claim to be bound, which every claim needs a moment for."""
    scheduled = find(pod.status.conditions, "PodScheduled")
    return scheduled is not None and scheduled.status == "False" and UNBOUND in scheduled.message


def _problems(pod: Pod) -> Iterator[tuple[str, str]]:
    gated = gates.sentence(pod)
    if gated:
        yield gates.GATED, gated
    scheduled = find(pod.status.conditions, "PodScheduled")
    waits_for_peers = scheduled is not None and scheduled.reason == FITS
    if scheduled is not None and scheduled.status == "False" and not waits_for_claim(pod) and not waits_for_peers:
        yield scheduled.reason if _WORD.fullmatch(scheduled.reason) else "Unschedulable", scheduled.message
    for status in _statuses(pod):
        waiting = status.state.waiting
        reason = _SAME.get(waiting.reason, waiting.reason) if waiting else ""
        if waiting and reason in _PROBLEMS:
            yield reason, f"container {status.name}: {waiting.message}"


def termination(pod: Pod, container: str) -> Terminated | None:
    """The end of one container of the pod, or None while it has not ended."""
    return _ended(pod, container)


def fatal(pod: Pod) -> tuple[str, Terminated] | None:
    """Returns the container that failed first, the trainer before all others, with its end; or None.

    A sidecar that failed has not kept its trainer from going on.
    """
    trainer = _ended(pod, TRAINER)
    if trainer is not None and trainer.exit_code != 0:
        return TRAINER, trainer
    ended = [(status.name, status.state.terminated) for status in _statuses(pod) if status.state.terminated]
    bad = [(name, state) for name, state in ended if state is not None and state.exit_code != 0]
    return min(bad, key=lambda item: _time(item[1].finished_at), default=None)


def _ended(pod: Pod, container: str) -> Terminated | None:
    status = _status(pod, container)
    return status.state.terminated if status is not None else None


def _status(pod: Pod, container: str) -> ContainerStatus | None:
    return next((status for status in _statuses(pod) if status.name == container), None)


def _ended_at(pod: Pod) -> datetime | None:
    trainer = _ended(pod, TRAINER)
    if trainer is not None:
        return trainer.finished_at
    others = [state for status in _statuses(pod) if (state := status.state.terminated)]
    finished = pod.status.phase in ("Succeeded", "Failed") and len(others) > 0
    return max((state.finished_at for state in others if state.finished_at), default=None) if finished else None


def _statuses(pod: Pod) -> Iterable[ContainerStatus]:
    return (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))


def _time(moment: datetime | None) -> float:
    return moment.timestamp() if moment is not None else float("inf")


def shorten(text: str) -> str:
    """One line of bounded length, without the back-off times that change from one look to the next."""
    line = re.sub(r"back-off \d+[a-z0-9.]* ", "back-off ", " ".join(text.split()))
    return line if len(line) <= _MAX_MESSAGE else line[: _MAX_MESSAGE - 3] + "..."
