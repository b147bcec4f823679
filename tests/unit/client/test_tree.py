"""Which files are sent, which stay and why, and what cannot be sent at all."""

import os
import re
import socket
import subprocess
from pathlib import Path

import pytest
from receivers import plant

from torchctl.client.errors import UsageError
from torchctl.client.ignore import DEFAULTS
from torchctl.client.tree import Tree, scan
from torchctl.workspace.core import Limits
from torchctl.workspace.errors import Refused
from torchctl.workspace.tree import walk


def sent(tree: Tree) -> list[str]:
    return [local.member.path for local in tree.members if local.member.kind != "directory"]


def left(tree: Tree) -> dict[str, str]:
    return dict(tree.left_out.paths)


def test_defaults_leave_out_what_nobody_wants(tmp_path: Path) -> None:
    reasons = {
        ".git/config": "version control",
        "node_modules/x/y.js": "environment",
        "env/pyvenv.cfg": "environment",
        "miniconda/conda-meta/x": "environment",
        "pkg/__pycache__/a.pyc": "cache",
        ".mypy_cache/x": "cache",
        "wandb/run-1": "run logs",
        "model.pt": "checkpoint",
        "out/last.ckpt": "checkpoint",
        "out/model.safetensors": "checkpoint",
        ".env": "secret",
        ".env.production": "secret",
        "deploy/server.pem": "secret",
        "id_rsa": "secret",
        ".aws/credentials": "secret",
    }
    stays = ["train.py", ".env.example", "wandb.py", "pkg/venv.py", "environment/x.py", "tokenizer.bin", "id_rsa.pub"]
    stays += ["pt", "key", "server.pem.txt", "a.pt.py"]
    tree = scan(plant(tmp_path / "t", dict.fromkeys([*reasons, *stays], b"")))
    assert sent(tree) == sorted(stays)
    assert {path.rstrip("/"): why for path, why in left(tree).items()} == {
        ".git": "version control",
        "node_modules": "environment",
        "env": "environment",
        "miniconda": "environment",
        "pkg/__pycache__": "cache",
        ".mypy_cache": "cache",
        "wandb": "run logs",
        "model.pt": "checkpoint",
        "out/last.ckpt": "checkpoint",
        "out/model.safetensors": "checkpoint",
        ".env": "secret",
        ".env.production": "secret",
        "deploy/server.pem": "secret",
        "id_rsa": "secret",
        ".aws": "secret",
    }
    assert tree.left_out.counts["secret"] == 5


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ({".gitignore": b"*.log\n!keep.log\n/data/\n"}, ["a/keep.log", "a/x.py", "b.py"]),
        ({".gitignore": b"*.py\n", "a/.gitignore": b"!x.py\n"}, ["a/keep.log", "a/x.py", "a/y.log", "data/d"]),
        ({"a/.gitignore": b"/x.py\n"}, ["a/keep.log", "a/y.log", "b.py", "data/d"]),
        ({".dockerignore": b"# all\n*\n!a\n./a/x.py\n"}, ["a/keep.log", "a/y.log"]),
        ({".dockerignore": b"x.py\n**/y.log\n"}, ["a/keep.log", "a/x.py", "b.py", "data/d"]),
        ({".gitignore": b"data\n", ".dockerignore": b"b.py"}, ["a/keep.log", "a/x.py", "a/y.log"]),
        ({".gitignore": b"*\n", ".torchrunignore": b"*.log\n"}, ["a/x.py", "b.py", "data/d"]),
    ],
)
def test_ignore_files_are_read_as_their_tools_do(
    patterns: dict[str, bytes], expected: list[str], tmp_path: Path
) -> None:
    files = dict.fromkeys(["a/x.py", "a/y.log", "a/keep.log", "b.py", "data/d"], b"")
    tree = scan(plant(tmp_path / "t", {**files, **patterns}))
    assert [path for path in sent(tree) if "ignore" not in path] == expected


def test_only_torchrunignore_brings_defaults_back(tmp_path: Path) -> None:
    files = {"base.pt": b"", ".env": b"", "other.pt": b""}
    assert sent(scan(plant(tmp_path / "a", {**files, ".gitignore": b"!*.pt\n!.env\n"}))) == [".gitignore"]
    ours = scan(plant(tmp_path / "b", {**files, ".torchrunignore": b"!base.pt\n"}))
    assert sent(ours) == [".torchrunignore", "base.pt"]


def test_what_cannot_be_in_a_workspace_is_listed(tmp_path: Path) -> None:
    place = plant(
        tmp_path / "t", {"a/in": "../b", "a/out": "../../b", "data": "/mnt/data", ".sync_success": b"{}", "b": b""}
    )
    os.mkfifo(place / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place / "socket"))
        tree = scan(place)
    assert sent(tree) == ["a/in", "b"]
    assert left(tree) == {
        "a/out": "link that leads out",
        "data": "link that leads out",
        ".sync_success": "reserved name",
        "pipe": "no file",
        "socket": "no file",
    }


def test_too_much_names_the_largest(tmp_path: Path) -> None:
    place = plant(tmp_path / "t", {"data/train.bin": bytes(3000), "data/x": bytes(2000), "a.py": b"1"})
    with pytest.raises(UsageError) as caught:
        scan(place, Limits(max_bytes=4000))
    assert str(caught.value) == (
        f"{place} has 4.9 KiB to send, and 3.9 KiB are allowed; the largest: 'data/train.bin' (2.9 KiB), "
        "'data/x' (2.0 KiB), 'a.py' (1 bytes). "
        "Leave out what training does not need: put a pattern into .torchrunignore"
    )


def test_too_many_names_where_they_are(tmp_path: Path) -> None:
    place = plant(tmp_path / "t", dict.fromkeys([f"data/raw/{n}" for n in range(30)] + ["src/a.py"], b""))
    with pytest.raises(UsageError, match=r"more than 20 files to send; the most are in 'data/raw' \("):
        scan(place, Limits(max_entries=20))


def test_path_that_is_too_long_is_named(tmp_path: Path) -> None:
    place = plant(tmp_path / "t", {"x" * 100 + "/" + "y" * 100: b""})
    with pytest.raises(UsageError, match=r"the path 'xxx.* is too long"):
        scan(place, Limits(max_path=150))


def test_no_directory_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no directory .*nowhere\. Name the directory with your code"):
        scan(tmp_path / "nowhere")


def test_order_is_that_of_the_manifest(tmp_path: Path) -> None:
    tree = scan(plant(tmp_path / "t", dict.fromkeys(["a/b", "a.txt", "a-c", "B", "é", "z\udcff"], b"")))
    paths = [local.member.path.encode(errors="surrogateescape") for local in tree.members]
    assert paths == sorted(paths)


def test_documentation_lists_every_default() -> None:
    text = Path("docs/storage.md").read_text()
    shortened = {".env.*", "id_dsa", "id_ecdsa", "id_ed25519"}
    missing = {name for names in DEFAULTS.values() for name in names} - shortened - set(re.findall(r"`([^`]+)`", text))
    assert missing == set()


def test_tree_that_is_too_deep_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything runs out of stack; the same holds for the volume of a claim."""
    monkeypatch.chdir(tmp_path)
    for _ in range(1200):
        os.mkdir("a")
        os.chdir("a")
    os.chdir(tmp_path)
    with pytest.raises(UsageError, match="too long"):
        scan(tmp_path)
    with pytest.raises(Refused, match="too long"):
        walk(tmp_path, Limits())
    subprocess.run(["rm", "-rf", tmp_path / "a"], check=True)  # Python's own way runs out of stack
