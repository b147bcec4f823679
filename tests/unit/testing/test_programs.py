"""The pinned modules say which programs there are, and every change of a pin is another cache directory."""

import re
from pathlib import Path

import pytest

from torchctl.testing import programs
from torchctl.testing.programs import (
    GROUPS,
    PROGRAMS,
    cache_key,
    go_version,
    kubernetes_modules,
    linker_flags,
    modules,
    programs_of,
    version,
)

OLDER = {minor: programs_of(minor)["kube-apiserver"] for minor, module in kubernetes_modules().items() if "-" in module}


def test_every_program_of_a_group_is_known() -> None:
    assert {name for group in GROUPS.values() for name in group} == set(PROGRAMS)


EVERY = [*PROGRAMS.values(), *(each for minor in OLDER for each in programs_of(minor).values() if each.is_older)]


@pytest.mark.parametrize("program", EVERY, ids=str)
def test_each_program_is_a_pinned_tool_of_its_module(program: programs.Program) -> None:
    text = (modules() / program.module / "go.mod").read_text()
    assert re.fullmatch(r"v\d+\.\d+\.\d+", version(program))
    assert re.search(rf"^(tool|\s+)\s*{re.escape(program.package)}$", text, re.MULTILINE)
    assert (modules() / program.module / "go.sum").exists()
    assert go_version(program) >= (1, 21)


def test_kubernetes_programs_are_told_their_version() -> None:
    flags = linker_flags(PROGRAMS["kubectl"])
    assert f"-X k8s.io/component-base/version.gitVersion={version(PROGRAMS['kubectl'])}" in flags
    assert "gitMinor=36" in flags
    assert linker_flags(PROGRAMS["etcd"]) == "-s -w"


def test_the_cache_key_follows_the_pins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in ("etcd", "kubernetes", "coredns"):
        (tmp_path / module).mkdir()
        for file in ("go.mod", "go.sum"):
            (tmp_path / module / file).write_bytes((modules() / module / file).read_bytes())
    before = cache_key(PROGRAMS["kubectl"])
    monkeypatch.setattr(programs, "modules", lambda: tmp_path)
    assert cache_key(PROGRAMS["kubectl"]) == before
    with (tmp_path / "etcd" / "go.sum").open("a") as pins:
        pins.write("another line\n")
    assert cache_key(PROGRAMS["kubectl"]) != before


@pytest.mark.parametrize(("minor", "program"), OLDER.items(), ids=OLDER)
def test_an_older_kubernetes_is_pinned_in_every_part(minor: str, program: programs.Program) -> None:
    """Its staging modules are published under v0: one that is left out would be built from another version."""
    patch = version(program)
    assert patch.startswith(f"v{minor}.")
    text = (modules() / program.module / "go.mod").read_text()
    staged = re.findall(r"^\tk8s\.io/\S+ => k8s\.io/\S+ (v\S+)$", text, re.MULTILINE)
    assert set(staged) == {patch.replace("v1", "v0", 1)}
    assert (
        cache_key(program) == cache_key(programs_of(minor)["kube-scheduler"]) != cache_key(PROGRAMS["kube-apiserver"])
    )


def test_the_newest_kubernetes_may_be_asked_for_by_its_version() -> None:
    *_, newest = kubernetes_modules()
    assert programs_of(newest) is programs_of() is PROGRAMS
    assert [*kubernetes_modules()] == [*OLDER, newest]


def test_a_missing_pin_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "etcd").mkdir()
    (tmp_path / "etcd" / "go.mod").write_text("module x\n")
    monkeypatch.setattr(programs, "modules", lambda: tmp_path)
    with pytest.raises(ValueError, match=r"etcd/go\.mod has no line"):
        version(PROGRAMS["etcd"])


def test_without_the_modules_both_places_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(programs, "_CLONE", tmp_path / "clone")
    monkeypatch.setattr(programs, "_INSTALLED", tmp_path / "installed")
    with pytest.raises(FileNotFoundError, match=r"clone nor in .*installed"):
        programs.modules.__wrapped__()
