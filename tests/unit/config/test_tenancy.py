"""The table of docs/design/tenancy.md has every attack, and each test that it names exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TENANCY = tuple(sorted((ROOT / "tests" / "envtest").glob("test_tenancy*.py")))
ROWS: dict[str, str] = dict(
    re.findall(r"^\| S(\d+) (.*)\|$", (ROOT / "docs" / "design" / "tenancy.md").read_text(), flags=re.MULTILINE)
)


def test_every_attack_has_a_row() -> None:
    assert list(ROWS) == [str(number) for number in range(1, 33)]


@pytest.mark.parametrize("number", ROWS)
def test_a_test_that_is_named_exists(number: str) -> None:
    named = re.findall(r"`(?:(tests/\S+\.py)::)?(test_\w+)`", ROWS[number])
    for path, name in named:
        files = (ROOT / path,) if path else TENANCY
        assert any(re.search(rf"def {name}\(", file.read_text()) for file in files), name
    assert named


def test_every_test_of_an_attack_is_in_the_table() -> None:
    for file in TENANCY:
        for number, name in re.findall(r"def (?:test_s(\d+)_)(\w+)\(", file.read_text()):
            assert f"test_s{number}_{name}" in ROWS[str(int(number))]
