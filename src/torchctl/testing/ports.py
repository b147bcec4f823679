"""Free ports for servers that cannot be handed a bound socket."""

import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

__all__ = ["reserve"]

# Below the kernel's ephemeral range, in which any outgoing connection could take a port while its
# server is being restarted, and below the NodePort range 30000-32767.
_LOWEST, _HIGHEST = 20000, 29999


@contextmanager
def reserve(count: int, host: str = "127.0.0.1") -> Iterator[tuple[int, ...]]:
    """Yields free ports, held bound until the block ends: start the servers right after it.

    Another process can take a port in between; the caller must then try again.
    """
    with ExitStack() as held:
        yield tuple(_bind(held, host) for _ in range(count))


def _bind(held: ExitStack, host: str) -> int:
    for port in random.SystemRandom().sample(range(_LOWEST, _HIGHEST + 1), 200):
        candidate = held.enter_context(socket.socket())
        try:
            candidate.bind((host, port))
        except OSError:
            continue
        return port
    raise OSError(f"no free port between {_LOWEST} and {_HIGHEST} on {host}")
