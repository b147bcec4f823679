"""The launcher runs under every Python that a user's image may have: those of this machine are tried."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launchers import LAUNCHER, crew

MINORS = range(8, 16)


def pythons() -> list[str]:
    """The interpreters from 3.8 on that start here (a shim of a version that is not set up does not), oldest first."""
    found = {sys.version_info.minor: sys.executable}
    for minor in MINORS:
        places = [
            *map(str, Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")),
            shutil.which(f"python3.{minor}"),
        ]
        for place in filter(None, places if minor not in found else ()):
            code = "import sys; print(sys.version_info[1], sys.executable)"
            done = subprocess.run([place, "-I", "-c", code], capture_output=True, text=True)
            if done.returncode == 0:
                version, path = done.stdout.split(maxsplit=1)
                found.setdefault(int(version), path.strip())
    return [found[minor] for minor in sorted(found)]


PYTHONS = pythons()
ENDS = sorted({PYTHONS[0], PYTHONS[-1]})


def test_the_file_is_valid_for_python_38() -> None:
    ast.parse(LAUNCHER.read_text(), feature_version=(3, 8))


@pytest.mark.parametrize("python", ENDS)
async def test_oldest_and_newest_take_up_new_code(python: str, tmp_path: Path) -> None:
    async with crew(tmp_path, {"train.py": "one"}, python=python) as job:
        pods = await job.two()
        for pod in pods:
            await pod.started(1)
        await job.commit({"train.py": "two"})
        assert [(await pod.started(2))["text"] for pod in pods] == ["two", "two"]
        pods[0].tell_program(3)
        assert await pods[0].ended() == 3
        assert [pod.log.read_text() for pod in pods] == ["", ""]


@pytest.mark.parametrize("python", PYTHONS)
def test_wrong_arguments_are_one_line(python: str) -> None:
    """All that every version does in a test run: parse, import, start itself again without the user's modules."""
    done = subprocess.run([python, str(LAUNCHER), "--nodes", "2", "--", "x"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "torchctl launcher: wrong arguments: 'companion'\n")


def test_modules_of_the_user_are_never_imported(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")
    environ = {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, str(LAUNCHER), "--", "x"], env=environ, capture_output=True, text=True)
    assert done.stderr == "torchctl launcher: wrong arguments: 'companion'\n"


FAULTY = """\
import sys
from torchctl.launcher import launcher

def talk(loop):
    if loop.program or not sys.argv[1:]:
        raise RuntimeError("a fault")

launcher.Loop._talk = talk
options = ["--companion", "http://127.0.0.1:9/KEY", "--index", "0", "--nodes", "1", "--workdir", "."]
sys.exit(launcher.main([*options, *sys.argv[1:], "--", "sh", "-c", "read line; exit 7"]))
"""


@pytest.mark.parametrize("more", [[], ["--patience=0"]], ids=["before", "after"])
def test_fault_of_the_launcher_ends_no_training(more: list[str], tmp_path: Path) -> None:
    """Whether it comes before the program was started or after."""
    (tmp_path / ".sync_success").write_text('{"digest": "sha256:1"}')
    command = [sys.executable, "-c", FAULTY, *more]
    done = subprocess.run(command, input="line\n", capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 7
    assert "it has a fault" in done.stderr
