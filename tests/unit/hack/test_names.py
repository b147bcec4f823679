"""Names stay short and have one meaning each."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import torchctl

TESTS = Path(__file__).parents[2]
SOURCES = Path(torchctl.__file__).parent
MOST_WORDS = 10


@cache
def statements(folder: Path) -> list[tuple[Path, ast.stmt]]:
    return [
        (path.relative_to(folder), node)
        for path in sorted(folder.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef | ast.Assign | ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def defined(folder: Path, *kinds: type[ast.stmt]) -> Iterator[tuple[Path, ast.stmt]]:
    return ((path, node) for path, node in statements(folder) if isinstance(node, kinds))


def names(node: ast.stmt) -> list[str]:
    """Returns the names that a class, a function or an assignment gives."""
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return [node.name] if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) else []


def test_each_test_name_has_at_most_ten_words() -> None:
    """What does not fit into the claim stands in the docstring."""
    long = [
        f"{path}: {name}"
        for path, node in defined(TESTS, ast.FunctionDef, ast.AsyncFunctionDef)
        for name in names(node)
        if name.startswith("test_") and len(name.split("_")) > 1 + MOST_WORDS
    ]
    assert long == []


@pytest.mark.parametrize("word", ["Applied", "Outcome", "Refusal", "Refused", "Stage", "Verdict"])
def test_decisive_word_names_at_most_one_type(word: str) -> None:
    found = [path for path, node in defined(SOURCES, ast.ClassDef, ast.Assign) if word in names(node)]
    assert len(found) <= 1
