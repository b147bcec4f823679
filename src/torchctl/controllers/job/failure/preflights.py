"""Reads the result of a worker's preflight from the end of its init container."""

from dataclasses import dataclass

from torchctl.api.conditions import JobReason
from torchctl.api.kube import Pod
from torchctl.api.names import PREFLIGHT_CONTAINER
from torchctl.controllers.job import pods

__all__ = ["Preflight", "preflight"]

_REASONS = {69: JobReason.ETCD_V2_DISABLED, 75: JobReason.PREFLIGHT_FAILED, 76: JobReason.PREFLIGHT_FAILED}
"""Reasons by exit status of `torchctl preflight`, whose message says what is wrong. Any other status is an accident of
the container's own."""
_MAY_HEAL = 75


@dataclass(frozen=True, slots=True)
class Preflight:
    """A preflight that failed.

    Args:
        reason: The reason of the condition.
        message: What is wrong and the next step, with the pod's name.
        permanent: Whether another attempt would find the same; False if the server only did not answer in time.
    """

    reason: JobReason
    message: str
    permanent: bool


def preflight(pod: Pod) -> Preflight | None:
    """Returns the failure that the pod's preflight found, or None.

    It is None if there is no preflight, if nothing is wrong, and if the preflight was stopped.
    """
    ended = pods.termination(pod, PREFLIGHT_CONTAINER)
    reason = _REASONS.get(ended.exit_code) if ended is not None else None
    if ended is None or reason is None:
        return None
    said = pods.shorten(ended.message).removeprefix("preflight: ") or f"exit code {ended.exit_code}"
    return Preflight(reason, f"pod {pod.metadata.name}: {said}", ended.exit_code != _MAY_HEAL)
