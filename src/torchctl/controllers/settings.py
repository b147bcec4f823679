"""What the operator is told at its start and the renderers need to know."""

from dataclasses import dataclass

__all__ = ["OperatorSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """Settings of one operator. Those that a child depends on are frozen into the job's template.

    Args:
        image: Image with `torchctl workspace`, for sync pods and the workers' init container.
        cluster_domain: The domain of the cluster's DNS. Rendezvous endpoints are fully qualified with it; a wrong
            one means that workers never find each other.
        etcd_endpoint: `host:port` for the rendezvous backends etcd and etcd-v2 where neither job nor queue names one.
        gpu_type_label: Node label that nodeResources.gpuType selects.
        kai_parent_queues: KAI queues under which a TorchrunQueue may create its own; None: all.
    """

    image: str
    cluster_domain: str = "cluster.local"
    etcd_endpoint: str = "etcd.etcd-system.svc:2379"
    gpu_type_label: str = "nvidia.com/gpu.product"
    kai_parent_queues: frozenset[str] | None = None
