"""A real terminal, by tmux: what a person sees and types."""

import secrets
import shlex
import shutil
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from waiting import until

__all__ = ["TMUX", "Terminal", "terminal"]

TMUX = shutil.which("tmux")
SCRIPTS = Path(sys.executable).parent
"""Where the programs of this environment are."""


class Terminal:
    """A screen of 140 columns and 50 lines with a shell in it."""

    def __init__(self, server: str) -> None:
        self._server = server

    async def type(self, text: str) -> None:
        """Types text, as it stands."""
        await self._tmux("send-keys", "-l", text)

    async def press(self, key: str) -> None:
        """Presses a key by tmux' name: Enter, Tab, C-c."""
        await self._tmux("send-keys", key)

    async def enter(self, line: str) -> None:
        """Types a line and presses Enter."""
        await self.type(line)
        await self.press("Enter")

    async def screen(self) -> str:
        """Everything that is on the screen now."""
        return await self._tmux("capture-pane", "-p")

    async def shows(self, *texts: str, timeout_s: float = 30.0) -> str:
        """Waits until all texts are on the screen at once, and returns the screen."""

        async def look() -> str:
            screen = await self.screen()
            return screen if all(text in screen for text in texts) else ""

        try:
            return await until(look, timeout_s=timeout_s)
        except AssertionError:
            raise AssertionError(f"{texts} not on the screen:\n{await self.screen()}") from None

    async def start(self, environment: Mapping[str, str]) -> None:
        """Starts the shell, which has no settings of anybody's."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
        shell = f"env {' '.join(variables)} PATH={SCRIPTS}:$PATH PS1='ready> ' bash --norc --noprofile -i"
        await self._tmux("-f", "/dev/null", "new-session", "-d", "-x", "140", "-y", "50", shell)
        await self.shows("ready>")

    async def end(self) -> None:
        """Ends the shell and what runs in it."""
        await self._tmux("kill-server")

    async def _tmux(self, *arguments: str) -> str:
        assert TMUX is not None
        return (await anyio.run_process([TMUX, "-L", self._server, *arguments])).stdout.decode()


@asynccontextmanager
async def terminal(**environment: str) -> AsyncGenerator[Terminal]:
    """Yields a terminal on a tmux server of its own."""
    found = Terminal(f"torchctl-{secrets.token_hex(4)}")
    await found.start(environment)
    try:
        yield found
    finally:
        with anyio.CancelScope(shield=True):
            await found.end()
