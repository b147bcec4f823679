"""Makes docs/reference/fields.md: every field of both kinds with the tests that prove it.

A test says what it proves with `@pytest.mark.proves("TorchrunJob.spec.numNodes", ...)`, or a case of it with
`pytest.param(..., marks=pytest.mark.proves(...))`. The markers are read from the sources; nothing is run. A field
without a test, and a marker that names no field, are failures: they are printed, and nothing is written.
"""

import argparse
import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os.path import relpath
from pathlib import Path
from typing import Any

from reference import HEADER, table
from torchctl.api.crd import crds

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
PAGE = ROOT / "docs" / "reference" / "fields.md"
TIERS = ("envtest", "e2e", "sim", "programs", "unit")
"""Directories of tests, the most telling first."""
WHOLE = frozenset({"conditions", "env", "envFrom", "tolerations", "podTemplate"})
"""Objects of Kubernetes' own, which are passed on or merged as they are: one field, whatever is in them."""

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Proof:
    """A test that says it proves a field."""

    field: str
    path: Path
    test: str


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when the page is stale")
    parser.add_argument("--tests", type=Path, default=TESTS, help="where the tests are")
    parser.add_argument("--page", type=Path, default=PAGE, help="what is written")
    options = parser.parse_args(arguments)
    texts, wrong = generated(options.tests, options.page)
    for line in wrong:
        print(line, file=sys.stderr)
    for path, text in texts.items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if options.check:
            print(f"{path.name} is stale: run `make manifests`", file=sys.stderr)
            return 1
        path.write_text(text, encoding="utf-8")
        print(path.name)
    return 1 if wrong else 0


def generated(tests: Path = TESTS, where: Path = PAGE) -> tuple[dict[Path, str], list[str]]:
    """The page with its content, and what keeps it from being made; there is one of the two."""
    known, proofs = [*fields()], [*collected(tests)]
    wrong = [*complaints(known, proofs)]
    return ({}, wrong) if wrong else ({where: page(known, proofs, where)}, [])


# Fields.


def fields() -> Iterator[str]:
    """Every field of spec and status that has no fields below it: `TorchrunJob.spec.dependsOn[].job`."""
    for crd in crds():
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for part in ("spec", "status"):
            yield from leaves(schema["properties"][part], f"{crd['spec']['names']['kind']}.{part}")


def leaves(schema: Schema, path: str) -> Iterator[str]:
    for name, field in schema["properties"].items():
        listed = field.get("type") == "array"
        inner = field["items"] if listed else field
        if name in WHOLE or "properties" not in inner or inner.get("x-kubernetes-preserve-unknown-fields"):
            yield f"{path}.{name}"
        else:
            yield from leaves(inner, f"{path}.{name}[]" if listed else f"{path}.{name}")


# Tests.


def collected(tests: Path) -> Iterator[Proof]:
    """What all tests say they prove.

    Raises:
        SystemExit: A marker names a field otherwise than by a literal.
    """
    for path in sorted(tests.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield from (Proof(field, path, node.name) for field in proved_by(node, path))


def proved_by(test: ast.FunctionDef | ast.AsyncFunctionDef, path: Path) -> Iterator[str]:
    for decorator in test.decorator_list:
        for call in ast.walk(decorator):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.proves":
                yield from (literal(argument, path) for argument in call.args)


def literal(argument: ast.expr, path: Path) -> str:
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return argument.value
    raise SystemExit(f"{path}:{argument.lineno}: proves() takes the names of fields as they are")


def complaints(known: Iterable[str], proofs: Iterable[Proof]) -> Iterator[str]:
    """What keeps the page from being made."""
    names, proved = set(known), {proof.field for proof in proofs}
    for proof in proofs:
        if proof.field not in names:
            yield f"{proof.path}: {proof.test} proves {proof.field}, which is no field"
    for name in known:
        if name not in proved:
            yield f"{name}: no test proves it; mark one with @pytest.mark.proves"


# The page.


def page(known: Iterable[str], proofs: Iterable[Proof], where: Path) -> str:
    tests: dict[str, dict[str, None]] = {}
    for proof in sorted(proofs, key=order):
        link = f"[{proof.test}]({Path(relpath(proof.path, where.parent)).as_posix()})"
        tests.setdefault(proof.field, {})[link] = None
    parts: dict[str, list[tuple[str, str]]] = {}
    for name in known:
        kind, part, field = name.split(".", 2)
        parts.setdefault(f"## {kind}.{part}\n", []).append((f"`{field}`", ", ".join(tests[name])))
    sections = (text for title, rows in parts.items() for text in (title, table(("Field", "Proved by"), rows)))
    return HEADER.format(source="the markers `proves` in tests/") + "\n".join(
        (
            "# What proves each field of torchrun.ai/v1alpha1\n",
            "`tests/envtest` runs on a real control plane, `tests/e2e` on a real node, `tests/unit` on the pure rules. "
            "What a field is for is in [api.md](api.md).\n",
            *sections,
        )
    )


def order(proof: Proof) -> tuple[int, str, str]:
    tier = next((index for index, tier in enumerate(TIERS) if tier in proof.path.parts), len(TIERS))
    return tier, str(proof.path), proof.test


if __name__ == "__main__":
    sys.exit(main())
