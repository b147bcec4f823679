"""The command line of `submit`, as far as no cluster is asked."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from torchctl.cli.kubectl import cli
from torchctl.testing.certificates import Authority
from torchctl.testing.kubeconfig import write_kubeconfig


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a script and what stays here, in a context for the namespace ml."""
    ca = tmp_path / "ca"
    ca.write_bytes(Authority("127.0.0.1").certificate)
    server = "https://127.0.0.1:1"
    path = write_kubeconfig(tmp_path / "config", server=server, ca=ca, user={"token": "x"}, namespace="ml")
    monkeypatch.setenv("KUBECONFIG", str(path))
    project = tmp_path / "my-project"
    project.mkdir()
    (project / "train.py").write_text("print(1)\n")
    (project / ".env").write_text("KEY=1\n")
    monkeypatch.chdir(project)
    return project


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["submit", *arguments])


def job(*arguments: str) -> dict[str, Any]:
    """The job that would be made."""
    done = run("--dry-run", *arguments)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = yaml.safe_load(done.stdout)
    return found


def test_documented_line_is_shown_with_what_it_would_send() -> None:
    done = run("--dry-run", "--queue", "h100-training", "--gpus", "8", "python train.py --epochs 10")
    made = yaml.safe_load(done.stdout)
    assert made["spec"] == {
        "jobQueue": "h100-training",
        "numGPUs": 8,
        "command": "python train.py --epochs 10",
        "volumes": {"workspace": {"source": "zip"}},
    }
    assert made["metadata"]["name"].startswith("my-project-")
    assert made["metadata"]["namespace"] == "ml"
    assert "Would send 1 file, 9 bytes, of " in done.stderr
    assert "  train.py (9 bytes)" in done.stderr
    assert "  .env (secret)" in done.stderr


def test_what_stands_behind_two_dashes_is_an_argv() -> None:
    spec = job("--queue", "q", "--nodes", "1", "--", "python", "x.py", "--queue", "two words", "--", "$HOME")["spec"]
    assert spec["args"] == ["python", "x.py", "--queue", "two words", "--", "$HOME"]
    assert (spec["jobQueue"], "command" in spec) == ("q", False)


def test_every_flag_reaches_the_job() -> None:
    arguments = ["--queue", "q", "--elastic", "2:8", "--nodes", "4", "-e", "A=1", "--env", "B=x=y", "--image", "i:1"]
    arguments += ["--name", "run", "-n", "other", "--git", "https://host.example/code@v1", "--git-secret", "keys"]
    made = job(*arguments, "--label", "team=a", "--annotation", "why=b c", "python train.py")
    assert made["metadata"] == {
        "name": "run",
        "namespace": "other",
        "labels": {"team": "a"},
        "annotations": {"why": "b c"},
    }
    assert made["spec"] == {
        "jobQueue": "q",
        "numNodes": 4,
        "elastic": {"minNodes": 2, "maxNodes": 8},
        "command": "python train.py",
        "image": "i:1",
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "x=y"}],
        "labels": {"team": "a"},
        "annotations": {"why": "b c"},
        "volumes": {
            "workspace": {
                "source": "git",
                "url": "https://host.example/code",
                "ref": "v1",
                "secretRef": "keys",
            }
        },
    }


def test_file_is_submitted_with_the_directory(directory: Path) -> None:
    spec = {"jobQueue": "q", "numNodes": 2, "command": "python train.py"}
    manifest = {"apiVersion": "torchrun.ai/v1alpha1", "kind": "TorchrunJob", "metadata": {"name": "vit"}, "spec": spec}
    (directory / "job.yaml").write_text(yaml.safe_dump(manifest))
    made = json.loads(run("--dry-run", "-f", "job.yaml", "-o", "json").stdout)
    assert made["metadata"] == {"name": "vit", "namespace": "ml"}
    assert made["spec"] == spec | {"volumes": {"workspace": {"source": "zip"}}}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["python", "train.py"], "the command has 2 parts, beginning with 'python' and 'train.py'. Write it in quotes"),
        (["python", "train.py", "--epochs", "10"], "There is no option --epochs. If it belongs to the command"),
        (["--workspace", ".", "--no-workspace", "x"], "--workspace and --no-workspace exclude each other"),
        (["--workspace", "absent", "x"], "Directory 'absent' does not exist"),
        (["-f", "absent.yaml"], "absent.yaml cannot be read: No such file or directory"),
        (["-f", "two.yaml"], "two.yaml has 2 documents"),
        (["-f", "broken.yaml"], "broken.yaml is no YAML"),
        (["--gpus", "many", "x"], "'many' is not a valid integer"),
        (["--queue", "q", "--gpus", "1"], "the command is missing"),
    ],
)
def test_bad_lines_are_usage_errors(directory: Path, arguments: list[str], told: str) -> None:
    (directory / "two.yaml").write_text("{}\n---\n{}\n")
    (directory / "broken.yaml").write_text("a: [\n")
    done = run("--dry-run", *arguments)
    assert done.exit_code == 2
    assert told in done.stderr
    assert "Traceback" not in done.output


def test_names_of_files_reach_no_terminal_unescaped(directory: Path) -> None:
    (directory / "a\x1b[2Jb\n.py").write_text("")
    (directory / os.fsdecode(b"c\xff.py")).write_text("")
    done = run("--dry-run", "--queue", "q", "--gpus", "1", "x")
    assert "  a [2Jb .py (0 bytes)\n  c .py (0 bytes)\n" in done.stderr
