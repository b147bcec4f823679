"""The workspace commands as processes: exit status, termination message, SIGTERM."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from torchctl.testing.ports import reserve


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "torchctl", "workspace", *map(str, arguments)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "termination-log"
    path.touch()
    return path


@pytest.fixture
def claim(tmp_path: Path) -> Path:
    root = tmp_path / "claim"
    (root / "code").mkdir(parents=True)
    (root / "code" / "train.py").write_text("x = 1\n")
    return root


def test_success_is_json_in_the_termination_message(claim: Path, log: Path) -> None:
    arguments = ("fetch", "--source=existing", f"--root={claim}", "--sub-path=code", f"--termination-log={log}")
    done = subprocess.run(command(*arguments), capture_output=True, text=True, check=True)
    report = json.loads(log.read_text())
    assert json.loads(done.stdout) == report
    assert set(report) == {"revision", "digest", "bytes", "files", "source"}
    assert (report["bytes"], report["files"], report["source"]) == (6, 1, "existing")


def test_options_come_from_the_environment_too(claim: Path, log: Path) -> None:
    environ = {
        "TORCHCTL_WORKSPACE_FETCH_SOURCE": "existing",
        "TORCHCTL_WORKSPACE_FETCH_ROOT": str(claim),
        "TORCHCTL_TERMINATION_LOG": str(log),
    }
    subprocess.run(command("fetch"), env=environ, check=True, capture_output=True)
    assert json.loads(log.read_text())["files"] == 1


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("--upload-pack=touch x", "is not one"),
        ("https://me:canary@example.com/x", "secretRef"),
        ("s3://bucket/x", "scheme"),
    ],
)
def test_a_refusal_is_one_clear_line_and_exit_status_1(claim: Path, log: Path, url: str, words: str) -> None:
    arguments = ("fetch", "--source=git", f"--root={claim}", f"--url={url}", f"--termination-log={log}")
    done = subprocess.run(command(*arguments), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert log.read_text().startswith("fetch: ")
    assert words in log.read_text()
    assert "canary" not in log.read_text() + done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_a_missed_deadline_is_exit_status_75(claim: Path, log: Path) -> None:
    arguments = ("wait", f"--root={claim}", "--timeout=0.1", f"--termination-log={log}")
    done = subprocess.run(command(*arguments), capture_output=True, text=True, check=False)
    assert done.returncode == 75
    assert "waiting for the workspace" in log.read_text()


def catches_sigterm(process: "subprocess.Popen[str]") -> bool:
    """Whether the process has a handler for SIGTERM yet, from the mask that the kernel shows."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("subcommand", ["wait", "serve"])
def test_sigterm_ends_it_with_a_word(claim: Path, log: Path, subcommand: str) -> None:
    options = ["--host=127.0.0.1", f"--port={free_port()}"] if subcommand == "serve" else ["--timeout=60"]
    process = subprocess.Popen(
        command(subcommand, f"--root={claim}", f"--termination-log={log}", *options), stderr=subprocess.PIPE, text=True
    )
    while not catches_sigterm(process):
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert log.read_text() == f"{subcommand}: stopped by SIGTERM"
    assert "Traceback" not in errors


def free_port() -> int:
    with reserve(1) as (port,):
        return port
