"""A field that no test proves, and a proof of no field, keep the page of proofs from being made."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def run(tests: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "hack/fields.py", "--tests", str(tests), "--page", str(tests / "fields.md"), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def unproved(tests: Path) -> list[str]:
    """The fields that the program misses."""
    return [line.partition(": no test proves it")[0] for line in run(tests).stderr.splitlines() if ": no test" in line]


def write(tests: Path, *proofs: str) -> None:
    marks = "".join(f"        pytest.param(0, marks=pytest.mark.proves({name!r})),\n" for name in proofs[1:])
    text = (
        f'import pytest\n\n\n@pytest.mark.proves("{proofs[0]}")\n'
        f'@pytest.mark.parametrize("number", [\n{marks}])\nasync def test_it(number: int) -> None: ...\n'
    )
    (tests / "test_some.py").write_text(text, encoding="utf-8")


def test_each_field_needs_a_test_that_names_it(tmp_path: Path) -> None:
    fields = unproved(tmp_path)
    assert {"TorchrunJob.spec.dependsOn[].job", "TorchrunQueue.status.conditions", "TorchrunJob.spec.env"} <= {*fields}
    assert not any(field.startswith("TorchrunJob.spec.env.") for field in fields)
    write(tmp_path, *fields[1:])
    assert unproved(tmp_path) == fields[:1]
    assert not (tmp_path / "fields.md").exists()
    write(tmp_path, *fields)
    assert run(tmp_path).returncode == 0
    assert (tmp_path / "fields.md").read_text(encoding="utf-8").count("[test_it](test_some.py)") == len(fields)


def test_page_that_differs_from_the_generated_one_is_stale(tmp_path: Path) -> None:
    write(tmp_path, *unproved(tmp_path))
    assert run(tmp_path, "--check").returncode == 1
    run(tmp_path)
    assert run(tmp_path, "--check").returncode == 0
    (tmp_path / "fields.md").write_text("# Other", encoding="utf-8")
    assert "stale" in run(tmp_path, "--check").stderr


def test_a_marker_that_names_no_field_is_found(tmp_path: Path) -> None:
    write(tmp_path, *unproved(tmp_path), "TorchrunJob.spec.nodes")
    assert "test_it proves TorchrunJob.spec.nodes, which is no field" in run(tmp_path).stderr


def test_proves_marker_takes_literal_names_only(tmp_path: Path) -> None:
    """A name that cannot be read without running the test is refused."""
    source = "import pytest\n\nNAME = 'x'\n\n\n@pytest.mark.proves(NAME)\ndef test_it() -> None: ...\n"
    (tmp_path / "test_some.py").write_text(source, encoding="utf-8")
    done = run(tmp_path)
    assert (done.returncode, "test_some.py:6: proves() takes" in done.stderr) == (1, True)
