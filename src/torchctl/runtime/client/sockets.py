"""TCP sockets that detect a vanished peer within 30 seconds, even if idle."""

import socket

__all__ = ["KEEPALIVE_IDLE_S", "KEEPALIVE_PERIOD_S", "KEEPALIVE_PROBES", "USER_TIMEOUT_S", "open_socket"]

KEEPALIVE_IDLE_S = 10
KEEPALIVE_PERIOD_S = 5
KEEPALIVE_PROBES = 3
USER_TIMEOUT_S = 20
"""Seconds without acknowledgement of sent data (keepalive probes included) after which a connection ends."""


AddrInfo = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]


def open_socket(address: AddrInfo) -> socket.socket:
    """Makes a socket for one entry of getaddrinfo, not connected yet."""
    family, type_, protocol, _, _ = address
    opened = socket.socket(family, type_, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_PERIOD_S),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
        ("TCP_USER_TIMEOUT", USER_TIMEOUT_S * 1000),
    ):
        option = getattr(socket, name, None)  # macOS lacks some of them
        if option is not None:
            opened.setsockopt(socket.IPPROTO_TCP, option, value)
    return opened
