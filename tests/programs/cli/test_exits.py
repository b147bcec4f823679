"""Every error is a line on standard error and a documented exit status, never a traceback."""

import os
import subprocess
import sys
from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner, Result

from torchctl.cli.exits import Exit, farewell, verbosity
from torchctl.cli.lazy import Program
from torchctl.client import errors
from torchctl.runtime.client.errors import Unavailable


def run(body: Callable[[], object], *, verbose: bool = False) -> Result:
    """The result of a program whose one command does this."""
    program = Program("program", params=[])

    @click.command()
    def command() -> object:
        verbosity(int(verbose))
        return body()

    program.add_command(command, "command")
    return CliRunner().invoke(program, ["command"])


def failing(error: BaseException) -> Callable[[], object]:
    def body() -> object:
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.JobFailed("it failed"), 1),
        (errors.UsageError("no such flag"), 2),
        (errors.ConfigError("no such context"), 2),
        (click.UsageError("no such option"), 2),
        (errors.ClusterError("refused"), 3),
        (errors.Unreachable("away"), 3),
        (errors.NotLoggedIn("expired"), 3),
        (errors.NotAllowed("no right"), 3),
        (errors.NotInstalled("no CRDs"), 3),
        (Unavailable("not explained by the verb"), 3),
        (errors.NotFound("no job"), 4),
        (errors.TimedOut("too long"), 5),
        (ExceptionGroup("tasks", [ExceptionGroup("inner", [errors.NotFound("no job")])]), 4),
        (ZeroDivisionError("a defect"), 70),
        (errors.ClientError("of no class"), 70),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_each_error_has_one_line_and_a_status(error: BaseException, status: int) -> None:
    result = run(failing(error))
    assert result.exit_code == status
    assert "Traceback" not in result.output
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_usage_error_names_the_page_that_helps() -> None:
    program = Program("program", params=[])
    program.add_command(click.Command("command", params=[click.Argument(["job"])]), "command")
    result = CliRunner().invoke(program, ["command"])
    assert result.stderr == "Error: Missing argument 'JOB'. See `program command --help`.\n"
    assert result.exit_code == 2
    assert "Commands:" not in result.stdout + result.stderr


@pytest.mark.parametrize(("returned", "status"), [(None, 0), (0, 0), (1, 1), ("text", 0)])
def test_a_command_may_return_its_status(returned: object, status: int) -> None:
    assert run(lambda: returned).exit_code == status


def test_an_interrupt_says_how_to_come_back() -> None:
    def body() -> None:
        farewell("The job goes on.")
        raise KeyboardInterrupt

    assert run(body).stderr.strip() == "The job goes on."
    assert run(failing(KeyboardInterrupt())).stderr.strip() == "Interrupted."


def test_verbose_adds_the_causes_of_an_error() -> None:
    error = errors.Unreachable("away")
    error.__cause__ = Unavailable("cannot connect")
    assert "because of Unavailable: cannot connect" in run(failing(error), verbose=True).stderr
    assert "because of" not in run(failing(error)).stderr


def test_verbose_shows_where_a_defect_is() -> None:
    assert "Traceback" in run(failing(ZeroDivisionError("1/0")), verbose=True).stderr


@pytest.mark.parametrize("arguments", [["--help"], ["preflight", "--help"]], ids=" ".join)
def test_a_reader_that_goes_away_gets_no_complaint(arguments: list[str]) -> None:
    """`torchctl list | head -1`."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "torchctl", *arguments], stdout=closed, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (Exit.BROKEN_PIPE, b"")


@pytest.mark.parametrize("arguments", [["--help"], ["preflight", "--help"], ["version", "--client"]], ids=" ".join)
def test_output_on_a_full_disk_is_named(arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "torchctl", *arguments], stdout=full, stderr=subprocess.PIPE, check=False, text=True
        )
    assert done.returncode == Exit.OUTPUT
    assert done.stderr.splitlines() == [
        "Error: the output cannot be written: No space left on device. Write it to another place, or make room."
    ]


def test_an_encoding_without_the_characters_is_no_error() -> None:
    program = (
        "import click\nfrom torchctl.cli.lazy import Program\n"
        "program = Program('program', params=[])\n"
        "program.add_command(click.Command('say', callback=lambda: click.echo('loss \\u2193 \\udcff')))\n"
        "program.main(['say'])"
    )
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (0, b"loss \\u2193 \\udcff\n")
