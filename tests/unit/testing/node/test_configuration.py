"""The files that a node's components are configured with."""

import json
import tomllib
from pathlib import Path

from torchctl.testing.node import configuration
from torchctl.testing.node.network import Network

NETWORK = Network(7)
ROOT = Path("/run/node")


def test_addresses_of_nodes_side_by_side_do_not_meet() -> None:
    networks = [Network(index) for index in range(256)]
    assert len({network.pods for network in networks}) == 256
    assert len({address for network in networks for address in (network.host, network.node)}) == 512


def test_the_api_server_is_told_the_address_that_pods_reach() -> None:
    assert NETWORK.control_plane_options().advertise_address == NETWORK.host


def test_all_of_containerd_is_below_its_root() -> None:
    config = tomllib.loads(configuration.containerd(ROOT, "docker.io/local/sandbox:1"))
    plugin = config["plugins"]["io.containerd.grpc.v1.cri"]
    places = [config["root"], config["state"], config["grpc"]["address"], plugin["cni"]["conf_dir"]]
    assert all(place.startswith("/run/node/") for place in places)
    assert plugin["sandbox_image"] == "docker.io/local/sandbox:1"


def test_kubelet_owns_one_cgroup_and_asks_coredns_on_its_node() -> None:
    config = json.loads(configuration.kubelet(NETWORK, ROOT, "torchctl-node-1-x"))
    assert config["cgroupRoot"] == "/torchctl-node-1-x"
    assert config["clusterDNS"] == [NETWORK.node]


def test_pods_get_addresses_of_the_networks_range() -> None:
    plugin = json.loads(configuration.cni(NETWORK, ROOT))["plugins"][0]
    assert plugin["ipam"]["ranges"] == [[{"subnet": "198.19.7.0/24"}]]


def test_coredns_listens_where_the_kubelet_says() -> None:
    assert configuration.corefile(NETWORK, ROOT).count(f"bind {NETWORK.node}") == 2
