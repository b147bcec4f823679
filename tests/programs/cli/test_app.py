"""The command line: names without imports, one version, no heavy library where none is needed."""

import importlib.metadata
import subprocess
import sys

import pytest
from click.testing import CliRunner

from torchctl.cli.app import cli
from torchctl.cli.kubectl import cli as kubectl
from torchctl.cli.lazy import Program
from torchctl.cli.torchrun import SECTIONS

HEAVY = (
    "aiohttp",
    "anyio",
    "kubernetes_asyncio",
    "msgspec",
    "pydantic",
    "rich",
    "structlog",
    "yaml",
    "torchctl.cli.run",
    "torchctl.client",
)
VERBS = [name for section in SECTIONS for name in section.entries]
PROGRAMS = pytest.mark.parametrize("program", [cli, kubectl], ids=["torchctl", "kubectl-torchrun"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["workspace", "--help"],
        ["workspace", "wait", "--help"],
        *([name, "--help"] for name in VERBS),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("module", ["app", "kubectl"])
def test_light_commands_import_nothing_heavy(module: str, arguments: list[str]) -> None:
    if module == "kubectl" and arguments[0] == "workspace":
        return
    script = (
        f"import sys\nfrom torchctl.cli.{module} import cli\n"
        f"try:\n    cli({arguments!r})\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@PROGRAMS
def test_help_lists_every_command_with_its_summary(program: Program) -> None:
    shown = CliRunner().invoke(program, ["--help"], terminal_width=200).output
    assert all(name in shown and entry.summary in shown for name, entry in program.entries.items())


@pytest.mark.parametrize("name", cli.entries)
def test_every_listed_command_exists_and_says_the_same_of_itself(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0
    assert f"Usage: cli {name}" in result.output


def test_both_programs_have_the_same_verbs() -> None:
    assert list(kubectl.entries) == VERBS == list(cli.entries)[: len(VERBS)]


@pytest.mark.parametrize("name", [name for name in VERBS if name != "completion"])
def test_every_verb_has_the_options_of_kubectl(name: str) -> None:
    command = cli.entries[name].load()
    known = {option for parameter in command.params for option in parameter.opts}
    assert {"--kubeconfig", "--context", "--namespace", "-n", "--as", "--as-group", "--request-timeout", "-v"} <= known


@PROGRAMS
def test_an_unknown_command_is_a_usage_error(program: Program) -> None:
    assert CliRunner().invoke(program, ["frobnicate"]).exit_code == 2


def test_both_entry_points_say_the_same_version() -> None:
    version = importlib.metadata.version("torchctl")
    assert version in CliRunner().invoke(cli, ["--version"]).output
    assert version in CliRunner().invoke(kubectl, ["--version"]).output


def test_it_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "torchctl", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("torchctl, version ")


def test_options_of_programs_in_pods_come_from_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """TORCHCTL_WORKSPACE_WAIT_ROOT is the option --root of `torchctl workspace wait`; TIMEOUT_S makes it fail."""
    monkeypatch.setenv("TORCHCTL_WORKSPACE_WAIT_TIMEOUT_S", "0")
    result = CliRunner().invoke(cli, ["workspace", "wait", "--root=/nowhere"])
    assert (result.exit_code, "0.0 is not in the range" in result.output) == (2, True)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("sumbit", "submit"), ("statsu", "status"), ("get", "list"), ("ls", "list"), ("describe", "status")],
)
@PROGRAMS
def test_misspelt_command_names_the_one_that_is_meant(program: Program, typed: str, meant: str) -> None:
    done = CliRunner().invoke(program, [typed])
    assert done.exit_code == 2
    assert done.stderr == f"Error: No such command '{typed}'. Did you mean {meant}? See `cli --help`.\n"
    assert "Did you mean" not in CliRunner().invoke(program, ["frobnicate"]).stderr
