"""What a shell gets for a word that is not finished."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from torchctl.cli.app import cli as torchctl
from torchctl.cli.kubectl import cli as kubectl
from torchctl.cli.torchrun import completion


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_completes_the_program_that_printed_it(shell: str) -> None:
    plugin = CliRunner().invoke(kubectl, ["completion", shell], prog_name="kubectl torchrun").stdout
    assert "kubectl-torchrun" in plugin
    assert f"_KUBECTL_TORCHRUN_COMPLETE={shell}_complete" in plugin
    operator = CliRunner().invoke(torchctl, ["completion", shell], prog_name="torchctl").stdout
    assert f"_TORCHCTL_COMPLETE={shell}_complete" in operator


def suggestions(*words: str) -> list[str]:
    *before, incomplete = words
    completer = ShellComplete(kubectl, {}, "kubectl torchrun", "")
    return [item.value for item in completer.get_completions([*before], incomplete)]


def test_verbs_and_options_are_completed() -> None:
    assert suggestions("comp") == ["completion"]
    assert suggestions("completion", "") == ["bash", "zsh", "fish"]
    assert suggestions("list", "--all") == ["--all-namespaces"]


def test_without_a_cluster_there_are_no_names_and_no_complaint(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert suggestions("status", "--kubeconfig", str(tmp_path / "missing"), "") == []
    assert capfd.readouterr() == ("", "")


def test_verbs_are_completed_without_importing_them() -> None:
    script = (
        "import sys\nsys.argv = ['kubectl_complete-torchrun', 'li']\n"
        "from torchctl.cli.torchrun.completion import for_kubectl\nfor_kubectl()\n"
        "print([name for name in ('torchctl.client', 'aiohttp', 'torchctl.cli.torchrun.list') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["list\tList jobs.", ":4", "[]"]


@pytest.mark.parametrize(("words", "last"), [([], ":4"), (["list", "--kubeconfig", ""], ":4"), (["wat"], ":4")])
def test_kubectl_gets_a_directive_after_the_words(
    words: list[str], last: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-torchrun", *words])
    completion.for_kubectl()
    assert capsys.readouterr().out.splitlines()[-1] == last
