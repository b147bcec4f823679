"""Which commands can start warm: those that the operator renders for a script or a module, and no other."""

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchctl.controllers.job.children.command import argv
from torchctl.launcher.launcher import Url, as_python, options, simple_words, world_environment


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A PATH with a torchrun, as pip installs it, and the interpreters that it may name."""
    for name, text in (("torchrun", f"#!{tmp_path}/python3\nimport sys\n"), ("python3", ""), ("python3.11", "")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return {"PATH": f"/nowhere:{tmp_path}"}


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("python train.py --epochs 10", ["train.py", "--epochs", "10"]),
        ("python3 -m pkg.train", ["-m", "pkg.train"]),
        ("torchrun train.py", ["train.py"]),
        ("python3.11 train.py 'a b' \"c\"", ["train.py", "a b", "c"]),
        ("python train.py --lr=1e-3 --name=a/b:c,d", ["train.py", "--lr=1e-3", "--name=a/b:c,d"]),
    ],
)
def test_simple_line_starts_warm(line: str, arguments: list[str], environ: dict[str, str]) -> None:
    found = as_python(argv(line=line, args=()), environ)
    assert found is not None
    assert found[1] == arguments
    assert Path(found[0]).name.startswith("python3")


def test_argv_starts_warm(environ: dict[str, str]) -> None:
    found = as_python(argv(line=None, args=["python", "train.py", "$HOME", "a b"]), environ)
    assert found == (f"{environ['PATH'].partition(':')[2]}/python3", ["train.py", "$HOME", "a b"])


@pytest.mark.parametrize(
    "line",
    [
        "python train.py $EPOCHS",
        "python train.py *.yaml",
        "cd sub && python train.py",
        "OMP_NUM_THREADS=4 python train.py",
        "python train.py > log",
        "python train.py; echo done",
        "bash train.sh",
        "python train.py `date`",
        'python train.py "$(date)"',
        "python train.py 'unclosed",
        "nowhere/torchrun train.py",
    ],
)
def test_line_that_a_shell_must_read_starts_anew(line: str, environ: dict[str, str]) -> None:
    assert as_python(argv(line=line, args=()), environ) is None


@pytest.mark.parametrize("first", ["#!/bin/sh", "#!/usr/bin/env -S python3 -u", "", "#!/usr/bin/python3 -s"])
def test_torchrun_of_an_unusual_kind_starts_anew(first: str, environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "torchrun").write_text(f"{first}\n")
    assert as_python(["torchrun", "train.py"], environ) is None


def test_interpreter_may_be_found_by_env(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "torchrun").write_text("#!/usr/bin/env python3\n")
    assert as_python(["torchrun", "train.py"], environ) == (f"{tmp_path}/python3", ["train.py"])


@given(st.text(alphabet="ab1 _-./=:'\"$`\\*~#&;|<>(){}\té\n", max_size=30))
def test_words_are_those_of_a_shell_or_none(line: str) -> None:
    words = simple_words(line)
    assert words == [] or words == shlex.split(line)


def test_options_come_in_both_forms() -> None:
    given, program = options(["--nodes", "2", "--min=1", "--warm", "--", "torchrun", "--nodes", "x"])
    assert (given, program) == ({"nodes": "2", "min": "1", "warm": "yes"}, ["torchrun", "--nodes", "x"])


@pytest.mark.parametrize("url", ["https://host/KEY", "http://host/", "host/KEY", "http:///KEY", "http://host:x/KEY"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="not an address"):
        Url(url)


def test_address_may_be_ipv6() -> None:
    url = Url("http://[fd00::1]:8080/launcher/KEY")
    assert (url.host, url.port, url.key) == ("fd00::1", 8080, "KEY")
    world = {"master": "fd00::1", "port": 1, "nodes": 1, "rank": 0, "id": "w"}
    assert world_environment({}, world)["PET_RDZV_ENDPOINT"] == "[fd00::1]:1"
