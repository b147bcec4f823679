"""TCP sockets that detect a vanished peer within 30 seconds, even if idle, and how much TLS reads from them at once."""

import socket
from asyncio import sslproto

__all__ = [
    "KEEPALIVE_IDLE_S",
    "KEEPALIVE_PERIOD_S",
    "KEEPALIVE_PROBES",
    "TLS_BUFFER",
    "USER_TIMEOUT_S",
    "bound_tls_buffers",
    "open_socket",
]

KEEPALIVE_IDLE_S = 10
KEEPALIVE_PERIOD_S = 5
KEEPALIVE_PROBES = 3
USER_TIMEOUT_S = 20
"""Seconds without acknowledgement of sent data (keepalive probes included) after which a connection ends."""
TLS_BUFFER = 32 * 2**10
"""Bytes of memory that each TLS connection reads into: two records of TLS (RFC 8446, section 5.1)."""

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


def bound_tls_buffers() -> None:
    """Makes all TLS connections that this process opens from now on reserve `TLS_BUFFER` each, and no more.

    It is for a process of our own: a client in somebody's program has no say in the program's other connections.
    """
    # asyncio fills 256 KiB with zeros for each, of which OpenSSL takes one record of 16 KiB at a time. There is no
    # public way to say less; a test asks a connection what it reserved.
    sslproto.SSLProtocol.max_size = TLS_BUFFER
