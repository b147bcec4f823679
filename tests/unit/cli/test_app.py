"""The command line: names without imports, one version, no heavy library where none is needed."""

import importlib.metadata
import subprocess
import sys

import pytest
from click.testing import CliRunner

from torchctl.cli.app import COMMANDS, cli
from torchctl.cli.kubectl import cli as kubectl

HEAVY = ("kubernetes_asyncio", "pydantic", "rich", "aiohttp", "torchctl.cli.run")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["workspace", "--help"], ["workspace", "wait", "--help"]]
)
def test_light_commands_import_nothing_heavy(arguments: list[str]) -> None:
    script = (
        "import sys\nfrom torchctl.cli.app import cli\n"
        f"try:\n    cli({arguments!r})\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_help_lists_every_command_with_its_summary() -> None:
    shown = CliRunner().invoke(cli, ["--help"]).output
    assert all(name in shown and entry.summary in shown for name, entry in COMMANDS.items())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_listed_command_exists_and_says_the_same_of_itself(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0
    assert f"Usage: cli {name}" in result.output


def test_an_unknown_command_is_a_usage_error() -> None:
    assert CliRunner().invoke(cli, ["frobnicate"]).exit_code == 2


def test_both_entry_points_say_the_same_version() -> None:
    version = importlib.metadata.version("torchctl")
    assert version in CliRunner().invoke(cli, ["--version"]).output
    assert version in CliRunner().invoke(kubectl, ["--version"]).output


def test_it_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "torchctl", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("torchctl, version ")
