"""Makes docs/reference/cli.md from the commands themselves: their help, options and exit statuses."""

from collections.abc import Iterator
from pathlib import Path

import click

from reference import DOCS, HEADER, table
from torchctl.cli.exits import Exit
from torchctl.cli.kubectl import cli
from torchctl.cli.torchrun import SECTIONS
from torchctl.cli.torchrun.common import COMMON

__all__ = ["generated"]

PROGRAM = "kubectl torchrun"
SHARED = {option.name for option in COMMON}


def generated() -> dict[Path, str]:
    """The page with its content."""
    return {DOCS / "cli.md": HEADER.format(source="src/torchctl/cli/") + "\n".join(_page())}


def _page() -> Iterator[str]:
    yield "# kubectl torchrun\n"
    yield (
        "`kubectl torchrun VERB` and `torchctl VERB` are the same. The cluster is found as kubectl finds it: "
        "`--kubeconfig`, else the files in `$KUBECONFIG`, else `~/.kube/config`, with contexts, plugins for "
        "credentials, proxies and impersonation. A pod without a kubeconfig uses its service account. "
        "`NO_COLOR` turns colours off.\n"
    )
    yield "## Exit statuses\n"
    yield table(("Status", "Means"), ((str(status.value), status.meaning) for status in Exit))
    yield "Why a command did not succeed is one line on standard error.\n"
    yield "## Options of every verb\n"
    yield "Before or after the verb; after it wins.\n"
    context = click.Context(cli, info_name=PROGRAM)
    yield _options([option for option in COMMON if isinstance(option, click.Option)], context)
    for section in SECTIONS:
        yield f"## {section.title}\n"
        for name, entry in section.entries.items():
            yield from _verb(name, entry.load(), context)


def _verb(name: str, command: click.Command, parent: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"### {name}\n"
    yield f"    {PROGRAM} {name} {usage}\n"
    yield f"{_help(command)}\n"
    own = [each for each in command.params if isinstance(each, click.Option) and each.name not in SHARED]
    if own:
        yield _options(own, context)


def _help(command: click.Command) -> str:
    """The help in Markdown: paragraphs that click must not wrap are examples."""
    paragraphs = (command.help or "").split("\n\n")
    return "\n\n".join(
        "\n".join(f"    {line.strip()}" for line in paragraph.splitlines()[1:])
        if paragraph.lstrip().startswith("\b")
        else " ".join(paragraph.split())
        for paragraph in paragraphs
    )


def _options(options: list[click.Option], context: click.Context) -> str:
    records = (option.get_help_record(context) for option in options if not option.hidden)
    rows = ((f"`{names}`", text) for names, text in filter(None, records))
    return table(("Option", "Does"), rows)
