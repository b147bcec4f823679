"""What the pages point to exists: links, files, flags, targets of make; and their manifests are valid."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from torchctl.api.job import JobSpec
from torchctl.api.queue import QueueSpec
from torchctl.api.rules import problems
from torchctl.cli.app import cli

CLONE = Path(__file__).parents[3]
WRITTEN = [
    *(CLONE / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((CLONE / "docs").glob("*.md")),
    *sorted((CLONE / "docs" / "design").glob("*.md")),
    *sorted((CLONE / "examples").rglob("*.md")),
]
"""Every page that people write. Those in docs/reference are generated, and held against their source."""

ROOTS = (CLONE, CLONE / "src" / "torchctl", CLONE / "src" / "torchctl" / "runtime")
"""Where the path of a file may begin."""

OF_OTHERS = {
    "--default-staleness-grace-period": "KAI's scheduler",
    "--enable-v2": "etcd",
    "--feature-gates": "Kubernetes' own programs",
    "--force-conflicts": "kubectl",
    "--nproc-per-node": "torchrun",
    "--runtime-config": "kube-apiserver",
    "--strict": "mypy",
    "--update-pod-eviction-condition": "KAI's scheduler",
}
"""Flags of other programs that the text names."""

TEN = ("queue", "attempt", "incident", "template", "revision", "gang", "settle", "barrier", "fence", "claim")


def name(page: Path) -> str:
    return str(page.relative_to(CLONE))


def prose(page: Path) -> str:
    """The page without its examples, which are indented or fenced."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^ {4}\S.*$", "", text, flags=re.MULTILINE)


def commands(command: click.Command) -> Iterator[click.Command]:
    """A command and all below it."""
    yield command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below)


def options(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as Markdown renderers make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{name(page)}: {target}"
        assert not anchor or anchor in anchors(there), f"{name(page)}: {target}"


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_every_file_of_ours_that_is_named_exists(page: Path) -> None:
    named = re.findall(r"`((?:[a-z_*]+/)+[a-z_]+\.(?:py|yaml|sh))(?:::\w+)?`", prose(page))
    assert [path for path in named if not any((root / path).exists() for root in ROOTS)] == []


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_every_flag_is_one_of_a_command(page: Path) -> None:
    flags = {"--help", *OF_OTHERS, *(option for command in commands(cli) for option in options(command))}
    assert set(re.findall(r"`(--[a-z][a-z0-9-]+)", prose(page))) <= flags


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_every_command_line_of_ours_can_be_parsed(page: Path) -> None:
    lines = re.findall(r"^ *(?:\$ )?kubectl torchrun (.*[^\\])$", page.read_text(), re.MULTILINE)
    for line in lines:
        verb, *arguments = shlex.split(line, comments=True)
        command = cli.get_command(click.Context(cli), verb)
        assert command is not None, line
        command.make_context(verb, arguments, resilient_parsing=False)


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_every_target_of_make_exists(page: Path) -> None:
    targets = re.findall(r"^([a-z0-9-]+):", (CLONE / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"(?:^ {4}|`)make ([a-z0-9-]+(?: [a-z]+)*)", page.read_text(), re.MULTILINE)
    assert {target for words in named for target in words.split()} <= {*targets}


def manifests() -> Iterator[tuple[Path, str]]:
    for page in WRITTEN:
        for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            if "torchrun.ai/" in block:
                yield page, block


@pytest.mark.parametrize("block", [pytest.param(block, id=name(page)) for page, block in manifests()])
def test_every_manifest_is_valid(block: str) -> None:
    for body in yaml.safe_load_all(block):
        spec = JobSpec(**body["spec"]) if body["kind"] == "TorchrunJob" else QueueSpec(**body["spec"])
        assert list(problems(spec)) == []


def test_the_glossary_has_the_ten_words_and_is_linked() -> None:
    glossary = (CLONE / "docs" / "glossary.md").read_text()
    assert tuple(re.findall(r"^\| \*\*(\w+)\*\* \|", glossary, re.MULTILINE)) == TEN
    for page in ("README.md", "docs/architecture.md"):
        assert "glossary.md" in (CLONE / page).read_text()
