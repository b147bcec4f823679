"""What the companion says in its log: which workers do not have the wanted tree, and why."""

from typing import Any, cast

import anyio

from .companion import TICK_S, Companion

__all__ = ["line_of", "tell"]

_NAMED = 20


async def tell(companion: Companion) -> None:
    """Say who has which tree, each time that it has changed, until cancelled."""
    said = ""
    while True:
        line = line_of(companion.state())
        if line and line != said:
            print(line, flush=True)
            said = line
        await anyio.sleep(TICK_S)


def line_of(state: dict[str, object]) -> str:
    """Return the line for a state of the companion; empty while there is no tree or no worker."""
    launchers = cast(list[dict[str, Any]], state["launchers"])
    if not launchers or not state["revision"]:
        return ""
    behind = [f"worker {one['index']} ({one['trouble'] or one['state']})" for one in launchers if one["behind"]]
    rest = f" and {len(behind) - _NAMED} more" if len(behind) > _NAMED else ""
    if not behind and not state["whole"]:
        return ""
    if behind:
        who = f"waits for {', '.join(behind[:_NAMED])}{rest}"
    else:
        who = "the worker has it" if len(launchers) == 1 else f"all {len(launchers)} workers have it"
    return f"companion: revision {state['revision']}: {who}"
