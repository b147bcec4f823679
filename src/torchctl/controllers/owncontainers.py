"""The resources of the operator's own containers, which the coordinator counts before their pods exist."""

__all__ = ["LIMITS", "REQUESTS"]

# No limit of ephemeral storage: the kubelet would apply it to the whole pod, the trainer's volumes included.
REQUESTS = {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "64Mi"}
LIMITS = {"cpu": "1", "memory": "512Mi"}
