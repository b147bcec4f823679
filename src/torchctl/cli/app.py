"""The `torchctl` command: a list of subcommands. A subcommand's module is imported only if it runs."""

import importlib
from typing import NamedTuple

import click

__all__ = ["LazyGroup", "cli", "main"]


class _Command(NamedTuple):
    module: str
    attribute: str
    summary: str


COMMANDS = {
    "preflight": _Command(
        "torchctl.cli.preflight", "preflight", "Ask what a worker needs before it starts (used in its pods)."
    ),
    "run": _Command("torchctl.cli.run", "run", "Run the operator."),
    "workspace": _Command("torchctl.cli.workspace", "workspace", "Fetch and hand out a job's code (used in its pods)."),
}


class LazyGroup(click.Group):
    """A group that knows its commands' names and summaries without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = getattr(importlib.import_module(entry.module), entry.attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name].summary) for name in self.list_commands(ctx)])


@click.group(cls=LazyGroup, context_settings={"auto_envvar_prefix": "TORCHCTL", "help_option_names": ["-h", "--help"]})
@click.version_option(package_name="torchctl", prog_name="torchctl")
def cli() -> None:
    """Distributed PyTorch training on Kubernetes: the operator and the programs of its pods."""


def main() -> None:
    cli(prog_name="torchctl")
