"""Reserved ports are distinct, bound until handed over, and out of the kernel's way."""

import socket

import pytest

from torchctl.testing.ports import reserve


def test_ports_are_distinct_and_below_the_ephemeral_range() -> None:
    with reserve(8) as ports:
        assert len(set(ports)) == 8
        assert all(20000 <= port < 30000 for port in ports)


def test_port_is_taken_inside_the_block_and_free_afterwards() -> None:
    with reserve(1) as (port,), socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
