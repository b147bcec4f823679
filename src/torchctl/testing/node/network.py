"""The addresses of a node, and the cable between it and this machine."""

import ipaddress
import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchctl.testing.components import Options

__all__ = ["Network", "connect", "connected"]

# Two blocks of the range that is set aside for benchmarks (RFC 2544): no network in use has them.
_CABLES = ipaddress.ip_network("198.18.0.0/16")
_PODS = ipaddress.ip_network("198.19.0.0/16")


@dataclass(frozen=True, slots=True)
class Network:
    """A node's addresses. Nodes with different indices can run side by side on one machine."""

    index: int
    """0 to 255."""

    @classmethod
    def free(cls) -> "Network":
        """Returns a network that no other node of this machine uses. Raises OSError if there is none."""
        routes = _run("ip", "-4", "route", "show").split()
        free = [network for network in map(cls, range(256)) if network.pods not in routes]
        if not free:
            raise OSError("256 nodes run on this machine: no addresses are left")
        return random.SystemRandom().choice(free)

    @property
    def host(self) -> str:
        """This machine's address for the node and its pods. A server for pods listens on it."""
        return str(_CABLES[self.index * 4 + 1])

    @property
    def node(self) -> str:
        """The node's address for this machine. CoreDNS listens on it too."""
        return str(_CABLES[self.index * 4 + 2])

    @property
    def pods(self) -> str:
        """The address range of the pods."""
        return f"{_PODS[self.index * 256]}/24"

    @property
    def interface(self) -> str:
        """This machine's end of the cable."""
        return f"torchctl{self.index}"

    def control_plane_options(self) -> Options:
        """Returns options with which the node and its pods reach the control plane, and it reaches the kubelet."""
        return Options(
            bind_address="0.0.0.0",
            advertise_address=self.host,
            authorization_mode="Node,RBAC",
            flags={"kube-apiserver": ("--kubelet-preferred-address-types=InternalIP",)},
        )


def connect(network: Network, pid: int, inside: Sequence[str]) -> None:
    """Lays the cable into the network namespace of `pid`; it vanishes with that namespace.

    Args:
        inside: the command that runs another one in that namespace.

    Raises:
        subprocess.CalledProcessError: its `stderr` says why.
    """
    host, node = network.interface, "eth0"
    _run("ip", "link", "add", host, "type", "veth", "peer", "name", node, "netns", str(pid))
    _run("ip", "address", "add", f"{network.host}/30", "dev", host)
    _run("ip", "link", "set", host, "up")
    _run(*inside, "ip", "address", "add", f"{network.node}/30", "dev", node)
    _run(*inside, "ip", "link", "set", node, "up")
    _run(*inside, "ip", "link", "set", "lo", "up")
    _run(*inside, "ip", "route", "add", "default", "via", network.host)
    _run("ip", "route", "add", network.pods, "via", network.node)


def connected(network: Network) -> bool:
    """Tells if the cable still exists."""
    return Path("/sys/class/net", network.interface).exists()


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
