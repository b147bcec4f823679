"""The components' arguments follow the options, and the last one wins."""

from pathlib import Path

import pytest

from torchctl.testing.components import COMPONENTS, Layout, Options, Ports, command_line

LAYOUT, PORTS = Layout(Path("/cp")), Ports(1, 2, 3, 4)


def arguments(component: str, options: Options | None = None) -> dict[str, str]:
    line = command_line(component, LAYOUT, PORTS, options or Options())
    return {name: value for name, _, value in (argument.partition("=") for argument in line)}


@pytest.mark.parametrize("component", COMPONENTS)
def test_everything_is_in_the_directory_and_on_the_loopback(component: str) -> None:
    for name, value in arguments(component).items():
        if "/" in value and "://" not in value and name != "--service-cluster-ip-range":
            assert value.startswith("/cp/"), name
        if "address" in name or "urls" in name:
            assert "127.0.0.1" in value, name


def test_a_cluster_with_nodes_is_told_its_addresses() -> None:
    options = Options(bind_address="0.0.0.0", advertise_address="10.244.0.1", service_cidr="10.97.0.0/24")
    line = arguments("kube-apiserver", options)
    assert line["--bind-address"] == "0.0.0.0"
    assert line["--advertise-address"] == "10.244.0.1"
    assert line["--service-cluster-ip-range"] == "10.97.0.0/24"
    assert "--endpoint-reconciler-type" not in line
    assert arguments("kube-apiserver")["--endpoint-reconciler-type"] == "none"


def test_further_flags_come_last_and_only_where_they_belong() -> None:
    options = Options(flags={"kube-scheduler": ("--v=4",)})
    assert command_line("kube-scheduler", LAYOUT, PORTS, options)[-1] == "--v=4"
    assert "--v=4" not in command_line("etcd", LAYOUT, PORTS, options)


def test_an_unknown_component_is_an_error() -> None:
    with pytest.raises(KeyError):
        command_line("kubelet", LAYOUT, PORTS, Options())
