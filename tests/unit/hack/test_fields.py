"""A field that no test proves, and a proof of no field, keep the page of proofs from being made."""

from pathlib import Path

import pytest

import fields


def run(tests: Path, *options: str) -> int:
    return fields.main(["--tests", str(tests), "--page", str(tests / "fields.md"), *options])


def unproved(tests: Path) -> list[str]:
    """The fields that the program misses."""
    wrong = fields.generated(tests)[1]
    return [line.partition(": no test proves it")[0] for line in wrong if ": no test" in line]


def write(tests: Path, *proofs: str) -> None:
    marks = "".join(f"        pytest.param(0, marks=pytest.mark.proves({name!r})),\n" for name in proofs[1:])
    text = (
        f'import pytest\n\n\n@pytest.mark.proves("{proofs[0]}")\n'
        f'@pytest.mark.parametrize("number", [\n{marks}])\nasync def test_it(number: int) -> None: ...\n'
    )
    (tests / "test_some.py").write_text(text, encoding="utf-8")


def test_each_field_needs_a_test_that_names_it(tmp_path: Path) -> None:
    known = unproved(tmp_path)
    assert {"TorchrunJob.spec.dependsOn[].job", "TorchrunQueue.status.conditions", "TorchrunJob.spec.env"} <= {*known}
    assert not any(field.startswith("TorchrunJob.spec.env.") for field in known)
    write(tmp_path, *known[1:])
    assert unproved(tmp_path) == known[:1]
    assert run(tmp_path) == 1
    assert not (tmp_path / "fields.md").exists()
    write(tmp_path, *known)
    assert run(tmp_path) == 0
    assert (tmp_path / "fields.md").read_text(encoding="utf-8").count("[test_it](test_some.py)") == len(known)


def test_page_that_differs_from_the_generated_one_is_stale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, *unproved(tmp_path))
    assert run(tmp_path, "--check") == 1
    run(tmp_path)
    assert run(tmp_path, "--check") == 0
    (tmp_path / "fields.md").write_text("# Other", encoding="utf-8")
    capsys.readouterr()
    run(tmp_path, "--check")
    assert "stale" in capsys.readouterr().err


def test_a_marker_that_names_no_field_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, *unproved(tmp_path), "TorchrunJob.spec.nodes")
    run(tmp_path)
    assert "test_it proves TorchrunJob.spec.nodes, which is no field" in capsys.readouterr().err


def test_proves_marker_takes_literal_names_only(tmp_path: Path) -> None:
    """A name that cannot be read without running the test is refused."""
    source = "import pytest\n\nNAME = 'x'\n\n\n@pytest.mark.proves(NAME)\ndef test_it() -> None: ...\n"
    (tmp_path / "test_some.py").write_text(source, encoding="utf-8")
    with pytest.raises(SystemExit, match=r"test_some\.py:6: proves\(\) takes") as ended:
        run(tmp_path)
    assert isinstance(ended.value.code, str), "the interpreter prints it and ends with 1"
