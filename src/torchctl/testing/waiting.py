"""Waits for a state that a controller must reach; a timeout's message has the last state."""

from collections.abc import Callable
from typing import TypeVar

import anyio

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import NotFound
from torchctl.runtime.kinds import Kind, Object

__all__ = ["wait_for"]

T = TypeVar("T", bound=Object)

_POLL_S = 0.05


async def wait_for(
    client: Client,
    kind: Kind[T],
    name: str,
    namespace: str = "",
    *,
    until: Callable[[T | None], object],
    timeout_s: float = 30.0,
) -> T | None:
    """Polls an object (None while there is none) until `until` returns true for it, and returns it.

    Raises TimeoutError with the last state.
    """
    state: T | None = None
    with anyio.move_on_after(timeout_s):
        while not until(state := await _read(client, kind, name, namespace)):  # noqa: ASYNC110 - another program acts
            await anyio.sleep(_POLL_S)
        return state
    raise TimeoutError(f"{kind.kind} {name} was not as awaited within {timeout_s:g} s; it is {state!r}")


async def _read(client: Client, kind: Kind[T], name: str, namespace: str) -> T | None:
    try:
        return await client.get(kind, name, namespace)
    except NotFound:
        return None
