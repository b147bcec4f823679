"""Free ports for servers that cannot be handed a bound socket."""

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import cycle, islice

__all__ = ["reserve"]

# Below the kernel's ephemeral range, in which any outgoing connection could take a port while its
# server is being restarted, and below the NodePort range 30000-32767.
_LOWEST, _HIGHEST = 20000, 29999
_BLOCK = 250


@contextmanager
def reserve(count: int, host: str = "127.0.0.1") -> Iterator[tuple[int, ...]]:
    """Yields free ports, held bound until the block ends: start the servers right after it.

    No other process that reserves ports is given one of them while this process lives, and this process is given all
    its others first. A program that picks its port in another way can take one in between: the caller must then try
    again.

    Raises:
        OSError: 40 processes have reserved ports, or nearly all ports of this one are in use.
    """
    with ExitStack() as held:
        yield tuple(_bind(held, host) for _ in range(count))


def _bind(held: ExitStack, host: str) -> int:
    for port in islice(_block(), _BLOCK):
        candidate = held.enter_context(socket.socket())
        try:
            candidate.bind((host, port))
        except OSError:
            continue
        return port
    raise OSError(f"no free port on {host} among the {_BLOCK - 1} of this process")


@cache
def _block() -> Iterator[int]:
    """The ports of this process, round and round. The port before them stays bound until it ends: that is its claim."""
    starts = range(_LOWEST, _HIGHEST, _BLOCK)
    for first in random.SystemRandom().sample(starts, len(starts)):
        with socket.socket() as claim:
            try:
                claim.bind(("127.0.0.1", first))
            except OSError:
                continue
            claim.detach()
        return cycle(range(first + 1, first + _BLOCK))
    raise OSError(f"other processes have reserved all ports between {_LOWEST} and {_HIGHEST}")
