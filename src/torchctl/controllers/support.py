"""Which fields ask for behaviour that does not exist yet. They are refused by name, never silently ignored. Pure."""

from torchctl.api.common import PodRetention, RunPolicy
from torchctl.api.queue import QueueSpec

__all__ = ["VOLCANO", "unsupported_in_queue", "unsupported_in_run_policy"]

VOLCANO = "volcano"


def unsupported_in_queue(spec: QueueSpec) -> tuple[str, ...]:
    """Paths of the fields of a TorchrunQueue that ask for what does not work yet."""
    asked = {
        "spec.scheduling.scheduler": spec.scheduling.scheduler == VOLCANO,
        "spec.weight": spec.weight != 1,
        "spec.maxNodes": spec.max_nodes is not None,
        "spec.quota.gpus": spec.quota.gpus is not None,
    }
    return (*(path for path, is_asked in asked.items() if is_asked), *unsupported_in_run_policy(spec.run_policy))


def unsupported_in_run_policy(policy: RunPolicy) -> tuple[str, ...]:
    """Restart fields are accepted: their defaults are always there, and the first failure says what is missing."""
    asked = {
        "spec.runPolicy.ttlSecondsAfterFinished": policy.ttl_seconds_after_finished is not None,
        "spec.runPolicy.activeDeadlineSeconds": policy.active_deadline_seconds is not None,
        "spec.runPolicy.startupTimeoutSeconds": policy.startup_timeout_seconds is not None,
        "spec.runPolicy.podRetention": policy.pod_retention not in (None, PodRetention.FAILED, PodRetention.ALL),
    }
    return tuple(path for path, is_asked in asked.items() if is_asked)
