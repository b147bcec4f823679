"""A click group that knows its commands' names and summaries without importing them, and gives errors exit statuses."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from torchctl.cli.exits import ended, lenient, while_read

__all__ = ["Entry", "Program", "Section"]

KUBECTLS = {"get": "list", "ls": "list", "describe": "status", "create": "submit", "apply": "submit", "log": "logs"}
"""Words that people know from kubectl, and the commands that they mean."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A command that is imported only if it runs.

    Attributes:
        module: The module that defines it.
        summary: One sentence for the group's help.
        attribute: The command's name in the module.
        variables: Prefix of environment variables that give options a value; empty for none.
    """

    module: str
    summary: str
    attribute: str = "command"
    variables: str = ""

    def load(self) -> click.Command:
        command: click.Command = getattr(importlib.import_module(self.module), self.attribute)
        if self.variables:
            command.context_settings["auto_envvar_prefix"] = self.variables
        return command


@dataclass(frozen=True, slots=True)
class Section:
    """Commands that stand together in the help."""

    title: str
    entries: Mapping[str, Entry]


class Program(click.Group):
    """A program: a group of lazy commands whose errors are one line on standard error and an exit status."""

    def __init__(self, *args: Any, sections: Sequence[Section] = (), **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.sections = sections

    @property
    def entries(self) -> dict[str, Entry]:
        """All commands by their names, in the order of the help."""
        return {name: entry for section in self.sections for name, entry in section.entries.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        return super().get_command(ctx, cmd_name) if entry is None else entry.load()

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Finds a command. For one that is misspelt, or is kubectl's, names the one that is meant."""
        if args and self.get_command(ctx, args[0]) is None and (meant := self._meant(args[0])):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {meant}?")
        return super().resolve_command(ctx, args)

    def _meant(self, word: str) -> str:
        from difflib import get_close_matches

        known = [*self.entries, *(name for name, meant in KUBECTLS.items() if meant in self.entries)]
        found = get_close_matches(word, known, n=1)
        return KUBECTLS.get(found[0], found[0]) if found else ""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section in self.sections:
            with formatter.section(section.title):
                formatter.write_dl([(name, entry.summary) for name, entry in section.entries.items()])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Runs the program. Standalone, it ends the process with an exit status of `torchctl.cli.exits`."""
        run = partial(super().main, args, prog_name, complete_var, standalone_mode=False, **extra)
        if not standalone_mode:
            return run()
        lenient()
        raise SystemExit(ended(run))

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with while_read():  # --help prints here
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with while_read():
            return super().invoke(ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Completes names of commands without importing the commands."""
        from click.shell_completion import CompletionItem

        named = [
            CompletionItem(name, help=entry.summary)
            for name, entry in self.entries.items()
            if name.startswith(incomplete)
        ]
        return named + click.Command.shell_complete(self, ctx, incomplete)
