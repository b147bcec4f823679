"""The plugin as krew installs it."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import krew

WRITTEN = Path(krew.CLONE / "config" / "krew" / "torchrun.yaml")


def test_krew_accepts_the_manifest() -> None:
    document = yaml.safe_load(WRITTEN.read_text())
    assert list(krew.problems(WRITTEN.stem, document, released=False)) == []
    assert len(list(krew.problems(WRITTEN.stem, document, released=True))) == len(krew.PLATFORMS)


def test_a_release_has_the_digest_of_every_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archives = [tmp_path / krew.archive(*platform) for platform in krew.PLATFORMS]
    for number, path in enumerate(archives):
        path.write_bytes(bytes([number]))
    url = "https://example.com/v1"
    assert krew.main(["manifest", url, *map(str, archives[1:])]) == 1
    assert "is a placeholder" in capsys.readouterr().err
    assert krew.main(["manifest", url, *map(str, archives)]) == 0
    document = yaml.safe_load(capsys.readouterr().out)
    assert list(krew.problems("torchrun", document, released=True)) == []
    assert len({each["sha256"] for each in document["spec"]["platforms"]}) == len(archives)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("kind",), "Addon", "not krew's"),
        (("metadata", "name"), "other", "not the file's"),
        (("spec", "version"), "1.0", "no v1.2.3"),
        (("spec", "shortDescription"), "two\nlines", "one line"),
        (("spec", "platforms"), [], "no platforms"),
        (("spec", "platforms", 0, "selector"), {"matchLabels": {"cpu": "x"}}, "os and arch"),
        (("spec", "platforms", 0, "uri"), "http://example.com/a.tar.gz", "no address"),
        (("spec", "platforms", 0, "sha256"), "abc", "no SHA-256"),
        (("spec", "platforms", 0, "bin"), "", "bin or files"),
        (("spec", "platforms", 0, "files"), [{"from": "*"}], "bin or files"),
    ],
)
def test_what_krew_refuses_is_found(path: tuple[str | int, ...], value: object, says: str) -> None:
    document = krew.manifest(krew.PLACE, {})
    place: Any = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert [says in problem for problem in krew.problems("torchrun", document, released=False)] == [True]


def test_the_plugin_runs_from_its_directory_alone(tmp_path: Path) -> None:
    """Without this environment: only the Python that it was packed with; started through a link, as krew does it."""
    krew.lay_out(tmp_path / "plugin")
    link = tmp_path / krew.PROGRAM
    link.symlink_to(tmp_path / "plugin" / krew.PROGRAM)
    done = subprocess.run([link, "version", "--client"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("client: ")
    refused = subprocess.run([link, "list", "--kubeconfig", "/missing"], capture_output=True, text=True, check=False)
    assert (refused.returncode, "no kubeconfig at /missing" in refused.stderr) == (2, True)
