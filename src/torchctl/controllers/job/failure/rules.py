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
_EVICTIONS = ("EvictionByEvictionAPI", "TerminationByKubelet")
_NODE_REASONS = ("NodeLost", "NodeShutdown", "Terminated", "Shutdown")
_NODE_DISRUPTIONS = ("DeletionByTaintManager", "DeletionByPodGC")
_LOST_TRACK = ("Unknown", "ContainerStatusUnknown")
_NOT_STARTED = ("StartError", "ContainerCannotRun")
_OWN_COMMAND = re.compile(r'exec: "|\bexec /\S+: |chdir to cwd|crun: executable file')
"""What runc or crun says of a command or a directory that is missing or that nobody may run."""
_NODES_OWN = re.compile(r"fork/exec|hook #\d|unable to retrieve OCI runtime error")
"""What is said of a hook of the node, or of the runtime itself, whose program may be missing as well."""


def _rejected(it: Evidence) -> bool:
    if it.end.reason in _NOT_STARTED:
        return bool(_NODES_OWN.search(it.end.message)) or not _OWN_COMMAND.search(it.end.message)
    return bool(it.reason) and not it.container


RULES = (
    Rule(
        "condition `DisruptionTarget` with reason `PreemptionByScheduler`, or reason `Preempting`",
        Cause.PREEMPTED,
        lambda it: it.disruption == "PreemptionByScheduler" or it.reason == "Preempting",
    ),
    Rule(
        "reason `Evicted` with a message about a limit of the pod: an emptyDir, or ephemeral storage",
        Cause.LIMIT_EXCEEDED,
        lambda it: it.reason == "Evicted" and bool(_LIMITS.search(it.pod.status.message)),
    ),
    Rule(
        "reason `Evicted`, or no reason and `DisruptionTarget` with `EvictionByEvictionAPI` or `TerminationByKubelet`",
        Cause.EVICTED,
        lambda it: it.reason == "Evicted" or (not it.reason and it.disruption in _EVICTIONS),
    ),
    Rule(
        "reason `NodeLost`, `NodeShutdown`, `Shutdown` or `Terminated`, `DisruptionTarget` with "
        "`DeletionByTaintManager` or `DeletionByPodGC`, or a container that ended as `Unknown` or "
        "`ContainerStatusUnknown`: its node was restarted, or lost track of it",
        Cause.NODE_LOST,
        lambda it: it.reason in _NODE_REASONS or it.disruption in _NODE_DISRUPTIONS or it.end.reason in _LOST_TRACK,
    ),
    Rule(
        "another reason of its node's (`OutOfnvidia.com/gpu`, `NodeAffinity`, `UnexpectedAdmissionError`, ...) and no "
        "container that failed, or one that ended with `StartError` or `ContainerCannotRun`, unless it is the command "
        "that cannot be run",
        Cause.REJECTED,
        _rejected,
    ),
    Rule(
        "told to stop, without a report of a rank that failed; `Preempted` if KAI evicted within 15 s of it",
        Cause.DELETED,
        lambda it: it.obeyed,
    ),
    Rule("a container ended with `OOMKilled`", Cause.OOM_KILLED, lambda it: it.end.reason == "OOMKilled"),
    Rule(f"init container `{INIT_CONTAINER}` failed", Cause.WORKSPACE_LOST, lambda it: it.container == INIT_CONTAINER),
    Rule(
        f"init container `{PREFLIGHT_CONTAINER}` failed",
        Cause.RENDEZVOUS_UNREACHABLE,
        lambda it: it.container == PREFLIGHT_CONTAINER,
    ),
    Rule(
        f"`{TRAINER}` reports a connection that another rank, or the rendezvous, has closed",
        Cause.PEER_LOST,
        lambda it: it.report.follows,
    ),
    Rule("a container failed", Cause.ERROR, lambda it: bool(it.container)),
    Rule("failed, and nothing of it says why", Cause.VANISHED, lambda it: True),
)


def cause_of(evidence: Evidence) -> Cause:
    """The cause of the first row that holds."""
    return next(rule.cause for rule in RULES if rule.holds(evidence))
