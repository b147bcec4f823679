"""Reserved ports are distinct, bound until handed over, and out of the way of the kernel and of other processes."""

import socket
import subprocess
import sys

import pytest

from torchctl.testing.ports import reserve

OTHER = """
from torchctl.testing.ports import reserve
with reserve(3) as ports:
    pass
print(*ports, flush=True)
input()
"""


def test_ports_are_distinct_and_below_the_ephemeral_range() -> None:
    with reserve(8) as ports:
        assert len(set(ports)) == 8
        assert all(20000 <= port < 30000 for port in ports)


def test_port_is_taken_inside_the_block_and_free_afterwards() -> None:
    with reserve(1) as (port,), socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))


def test_released_port_is_given_to_nobody_else() -> None:
    """Its server may start late, or start again: neither this process nor another one may have it meanwhile."""
    with subprocess.Popen([sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        others = {int(port) for port in other.stdout.readline().split()}
        assert len(others) == 3
        with reserve(1) as (released,):
            pass
        seen: set[int] = set()
        for _ in range(200):
            with reserve(1) as (port,):
                seen.add(port)
        assert released not in seen
        assert not others & seen
        other.communicate(b"\n")


def test_all_ports_in_use_is_told() -> None:
    with pytest.raises(OSError, match="no free port"), reserve(250):
        pass
