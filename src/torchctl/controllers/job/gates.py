"""Explains a scheduling gate of a pod: which it is, whose it is, and what it waits for.

A gate keeps the pod from every scheduler until the controller that put it there takes it off. The operator puts none on
a pod, so each one is a queue's template's or somebody else's, such as Kueue's on the pods of a LocalQueue `default`.
"""

from torchctl.api.kube import Pod
from torchctl.api.labels import KUEUE_QUEUE

__all__ = ["GATED", "sentence"]

GATED = "SchedulingGated"
"""The reason that the API server gives for a pod with a gate."""


def sentence(pod: Pod) -> str:
    """Names the gates of a pod and who has to remove them; empty if it has none."""
    gates = [gate.name for gate in pod.spec.scheduling_gates or ()]
    if not gates:
        return ""
    owners = dict.fromkeys(gate.partition("/")[0] for gate in gates)
    queue = pod.metadata.labels.get(KUEUE_QUEUE)
    until = f" when Kueue's LocalQueue {queue} has quota for the pod" if queue else ""
    return f"held by scheduling gate {', '.join(gates)}, which the controller of {', '.join(owners)} removes{until}"
