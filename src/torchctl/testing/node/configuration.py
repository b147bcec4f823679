"""The configuration files of a node's components, as values."""

import json
from pathlib import Path
from typing import Any

from torchctl.testing.node.network import Network

__all__ = ["CNI_PLUGINS", "CONTAINER_LOGS", "cni", "containerd", "coredns_role", "corefile", "kube_proxy", "kubelet"]

CNI_PLUGINS = Path("/usr/lib/cni")
CONTAINER_LOGS = "pods"
"""The directory of the containers' output, below the node's directory."""

_DOMAIN = "cluster.local"
_COREDNS = "torchctl:coredns"


def containerd(root: Path, sandbox_image: str) -> str:
    """Returns the configuration of containerd with the CRI plugin, with all files and sockets below `root`."""
    return f"""\
version = 2
root = "{root}/containerd"
state = "{root}/containerd-state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp"]
[grpc]
address = "{root}/containerd.sock"
[ttrpc]
address = "{root}/containerd.sock.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{sandbox_image}"
# Where CAP_SYS_RESOURCE is missing, runc cannot make a process less likely to be killed than its parent.
restrict_oom_score_adj = true
disable_tcp_service = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{CNI_PLUGINS}"
conf_dir = "{root}/cni"
"""


def cni(network: Network, root: Path) -> str:
    """Returns the CNI configuration: a veth pair and a route for each pod, so Services need no bridge netfilter."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": network.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": f"{root}/ipam",
    }
    plugins = [{"type": "ptp", "ipam": ipam}, {"type": "portmap", "capabilities": {"portMappings": True}}]
    return json.dumps({"cniVersion": "1.0.0", "name": "torchctl", "plugins": plugins}, indent=2)


def kubelet(network: Network, root: Path, cgroup: str) -> str:
    """Returns the configuration of a kubelet that uses only its directory and one cgroup, and never evicts."""
    config: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": network.node,
        # Only this machine and the pods reach that address.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{root}/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        "oomScoreAdj": 0,
        "clusterDNS": [network.node],
        "clusterDomain": _DOMAIN,
        "resolvConf": "",
        "podLogsDir": f"{root}/{CONTAINER_LOGS}",
        "volumePluginDir": f"{root}/volume-plugins",
        "staticPodPath": "",
        "healthzBindAddress": network.node,
        "makeIPTablesUtilChains": True,
        "registerNode": True,
        # The defaults of some of these are minutes, but a test has to see a change soon.
        "syncFrequency": "10s",
        "nodeStatusUpdateFrequency": "5s",
        "serializeImagePulls": False,
    }
    return json.dumps(config, indent=2)


def kube_proxy(network: Network, root: Path) -> str:
    config: dict[str, Any] = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": network.pods,
        "clientConnection": {"kubeconfig": f"{root}/kube-proxy.kubeconfig"},
        "healthzBindAddress": f"{network.node}:10256",
        "metricsBindAddress": f"{network.node}:10249",
        "oomScoreAdj": 0,
        # The size of the connection table belongs to the whole machine.
        "conntrack": {"maxPerCore": 0, "min": 0},
    }
    return json.dumps(config, indent=2)


def corefile(network: Network, root: Path) -> str:
    """Returns CoreDNS' configuration: cluster.local from the API, NXDOMAIN for the rest.

    In one block, the template would answer for both.
    """
    return f"""\
{_DOMAIN}:53 in-addr.arpa:53 {{
    bind {network.node}
    kubernetes {_DOMAIN} in-addr.arpa {{
        kubeconfig {root}/coredns.kubeconfig
        ttl 0
    }}
    errors
}}
.:53 {{
    bind {network.node}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
    errors
}}
"""


def coredns_role(user: str) -> str:
    """Returns the ClusterRole of CoreDNS and its binding, for kubectl apply."""
    rules = [
        {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": _COREDNS}, "rules": rules}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": _COREDNS},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": _COREDNS},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [role, binding]})
