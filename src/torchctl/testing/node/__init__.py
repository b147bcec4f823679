"""A real node for a control plane under test: kubelet, containerd, kube-proxy and CoreDNS, real containers.

    network = Network.free()
    async with ControlPlane(options=network.control_plane_options()) as cluster, LocalNode(cluster, network) as node:
        await node.load_image(path)

It needs root and Debian's packages (hack/node/install.sh), and leaves nothing behind: see `namespaces`.
"""

from torchctl.testing.node.network import Network
from torchctl.testing.node.node import LocalNode, NodeFailed

__all__ = ["LocalNode", "Network", "NodeFailed"]
