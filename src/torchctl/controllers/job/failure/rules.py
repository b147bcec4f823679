"""The cause of a loss: one ordered table, of which the first row that holds counts. docs/reference is made from it.

A row that names what the cluster says of a pod stands above those that read its containers: how a trainer ends that was
told to stop says how it took it, not what went wrong.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from torchctl.api.causes import Cause
from torchctl.api.names import INIT_CONTAINER, PREFLIGHT_CONTAINER, TRAINER
from torchctl.controllers.job.failure.evidence import Evidence

__all__ = ["RULES", "Rule", "cause_of"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: what is seen of a pod, in words and as a condition, and the cause that it tells of."""

    seen: str
    cause: Cause
    holds: Callable[[Evidence], bool]


_LIMITS = re.compile(r"exceeds the (?:total )?limit|exceeded its local ephemeral storage limit")
"""The kubelet's eviction manager, of a volume, container or pod above its own limit; of a node it says "was low on"."""
_NODE_REASONS = ("NodeLost", "NodeShutdown", "Terminated", "Shutdown")
_NODE_DISRUPTIONS = ("DeletionByTaintManager", "DeletionByPodGC")
_EVICTIONS = ("EvictionByEvictionAPI", "TerminationByKubelet")
_LOST_TRACK = ("Unknown", "ContainerStatusUnknown")
_NOT_STARTED = ("StartError", "ContainerCannotRun")
_OWN_COMMAND = re.compile(r'exec: "|\bexec /\S+: |chdir to cwd')
"""runc's message about a command or a directory that is missing or that nobody may run."""
_HOOK = re.compile(r"nvidia-container|(?:prestart|createRuntime|createContainer) hook|hook #\d")
"""runc's message about a hook of the node, whose program may be missing as well."""


def _not_started(it: Evidence) -> bool:
    if it.end.reason not in _NOT_STARTED:
        return False
    return bool(_HOOK.search(it.end.message)) or not _OWN_COMMAND.search(it.end.message)


RULES = (
    Rule(
        "condition `DisruptionTarget` with reason `PreemptionByScheduler`, KAI's eviction within 15 s of the deletion, "
        "or reason `Preempting`",
        Cause.PREEMPTED,
        lambda it: it.preempted or it.reason == "Preempting",
    ),
    Rule(
        "reason `Evicted` with a message about a limit of the pod: an emptyDir, or ephemeral storage",
        Cause.LIMIT_EXCEEDED,
        lambda it: it.reason == "Evicted" and bool(_LIMITS.search(it.pod.status.message)),
    ),
    Rule(
        "reason `Evicted`",
        Cause.EVICTED,
        lambda it: it.reason == "Evicted",
    ),
    Rule(
        "reason `NodeLost`, `NodeShutdown`, `Shutdown` or `Terminated`, or `DisruptionTarget` with "
        "`DeletionByTaintManager` or `DeletionByPodGC`",
        Cause.NODE_LOST,
        lambda it: it.reason in _NODE_REASONS or it.disruption in _NODE_DISRUPTIONS,
    ),
    Rule(
        "a container ended as `Unknown` or `ContainerStatusUnknown`: its node was restarted, or lost track of it",
        Cause.NODE_LOST,
        lambda it: it.end.reason in _LOST_TRACK,
    ),
    Rule(
        "`DisruptionTarget` with `EvictionByEvictionAPI` or `TerminationByKubelet`",
        Cause.EVICTED,
        lambda it: it.disruption in _EVICTIONS,
    ),
    Rule(
        "failed with a reason of its node's (`OutOfnvidia.com/gpu`, `NodeAffinity`, `UnexpectedAdmissionError`, ...) "
        "before any container began",
        Cause.REJECTED,
        lambda it: bool(it.reason) and not it.began and not it.container,
    ),
    Rule(
        "a container ended with `StartError` or `ContainerCannotRun`, unless it is the command that cannot be run",
        Cause.REJECTED,
        _not_started,
    ),
    Rule(
        "a container ended with `OOMKilled`",
        Cause.OOM_KILLED,
        lambda it: it.end.reason == "OOMKilled",
    ),
    Rule(
        f"init container `{INIT_CONTAINER}` failed",
        Cause.WORKSPACE_LOST,
        lambda it: it.speaks and it.container == INIT_CONTAINER,
    ),
    Rule(
        f"init container `{PREFLIGHT_CONTAINER}` failed",
        Cause.RENDEZVOUS_UNREACHABLE,
        lambda it: it.speaks and it.container == PREFLIGHT_CONTAINER,
    ),
    Rule(
        f"`{TRAINER}` reports a connection that another rank, or the rendezvous, has closed",
        Cause.PEER_LOST,
        lambda it: it.report.follows,
    ),
    Rule(
        "a container failed; of a pod that was told to stop, torchrun reports a rank that failed",
        Cause.ERROR,
        lambda it: it.speaks,
    ),
    Rule("told to stop", Cause.DELETED, lambda it: it.told),
    Rule("failed, and nothing of it says why", Cause.VANISHED, lambda it: True),
)


def cause_of(evidence: Evidence) -> Cause:
    """The cause of the first row that holds."""
    return next(rule.cause for rule in RULES if rule.holds(evidence))
