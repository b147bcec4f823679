"""Lists the node labels that tell the type of a GPU, one of each vendor's labeller. Pure."""

from torchctl.api.conditions import JobReason
from torchctl.api.queue import NodeResources
from torchctl.controllers.job.template.errors import Impossible

__all__ = ["LABELS", "label"]

LABELS = {
    "nvidia.com": "nvidia.com/gpu.product",
    "amd.com": "amd.com/gpu.product-name",
    "gpu.intel.com": "gpu.intel.com/product",
}
"""GPU type labels by the domain of the resource that counts GPUs, as GPU feature discovery, AMD's node labeller and
Intel's rules for node feature discovery set them."""


def label(resources: NodeResources, chosen: str, queue: str) -> str:
    """The label that nodeResources.gpuType selects; empty if the queue says no type.

    Args:
        chosen: The operator's --gpu-type-label, which holds for every resource; empty if it has none.

    Raises:
        Impossible: Nobody knows the label of this resource.
    """
    if resources.gpu_type is None:
        return ""
    resource = resources.gpu_resource_name
    found = chosen or LABELS.get(resource.partition("/")[0])
    if not found:
        raise Impossible(
            JobReason.INVALID_SPEC,
            f"nodeResources.gpuType of TorchrunQueue {queue}: which node label tells the type of {resource} is not "
            "known: have the operator started with --gpu-type-label, or use scheduling.nodeSelector instead",
        )
    return found
