"""The launcher's rules of trees are those of torchctl.workspace."""

import asyncio
import io
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest
from aiohttp import web
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from trees import NAMES, TREES, plant

from torchctl.launcher import launcher
from torchctl.workspace import core
from torchctl.workspace.answers import Handler
from torchctl.workspace.copies import list_tree, tar_chunks
from torchctl.workspace.core import Limits
from torchctl.workspace.marker import Marker, write_marker
from torchctl.workspace.serve import add_archive, running
from torchctl.workspace.steps import drive
from torchctl.workspace.tree import digest

LIMITS = Limits()


def test_reserved_names_are_the_same() -> None:
    assert core.RESERVED == launcher.RESERVED


@settings(max_examples=examples(60))
@given(tree=st.dictionaries(NAMES, TREES, max_size=4))
async def test_both_digest_and_unpack_a_tree_alike(tree: object) -> None:
    with tempfile.TemporaryDirectory() as directory:
        source, target = Path(directory, "source"), Path(directory, "target")
        plant(source, tree)
        plant(target, {})
        found = (await drive(digest(source, LIMITS))).digest
        assert launcher.tree_digest(str(source)) == found
        launcher.unpack(io.BytesIO(b"".join(tar_chunks(source, list_tree(source, LIMITS)))), str(target))
        assert launcher.tree_digest(str(target)) == found
        assert (await drive(digest(target, LIMITS))).digest == found


def member(name: str, kind: bytes = tarfile.REGTYPE, **fields: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    for field, value in fields.items():
        setattr(info, field, value)
    return info


@pytest.mark.parametrize(
    "members",
    [
        [member("/etc/passwd")],
        [member("../outside")],
        [member("a/../../outside")],
        [member(".sync_success")],
        [member(".torchctl-staging/x")],
        [member("fifo", tarfile.FIFOTYPE)],
        [member("hard", tarfile.LNKTYPE, linkname="/etc/passwd")],
        [member("twice"), member("twice")],
        [member("link", tarfile.SYMTYPE, linkname="/tmp"), member("link/x"), member("link/y")],
    ],
    ids=["absolute", "up", "within", "marker", "staging", "pipe", "hard", "twice", "through"],
)
def test_a_hostile_archive_writes_nothing_outside(members: list[tarfile.TarInfo], tmp_path: Path) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for info in members:
            archive.addfile(info)
    stream.seek(0)
    root = tmp_path / "root"
    root.mkdir()
    with pytest.raises((launcher.Unfit, OSError)):
        launcher.unpack(stream, str(root))
    assert os.listdir(tmp_path) == ["root"]


async def test_busy_companion_is_asked_again(tmp_path: Path) -> None:
    """It hands the tree out to sixteen at once; who comes later waits and reports no trouble."""
    claim, app = tmp_path / "claim", tmp_path / "app"
    write(claim, {"train.py": "new"})
    app.mkdir()
    launcher.note(str(app))
    found = await drive(digest(claim, LIMITS))
    write_marker(claim, Marker(revision="r", digest=found.digest, bytes=3, files=1, source="zip"))
    busy = [True, True]

    @web.middleware
    async def refuse(request: web.Request, handler: Handler) -> web.StreamResponse:
        if busy:
            busy.pop()
            return web.Response(status=503, headers={"Retry-After": "0"})
        return await handler(request)

    server = web.Application(middlewares=[refuse])
    add_archive(server, claim, limits=LIMITS, streams=1, key="KEY")
    async with running(server, host="127.0.0.1", port=0) as port:
        url = launcher.Url(f"http://127.0.0.1:{port}/launcher/KEY")
        await asyncio.to_thread(launcher.stage, url, str(app), found.digest)
    assert (app / launcher.STAGING / "tree" / "train.py").read_text() == "new"
    assert not busy


async def test_what_cannot_be_staged_leaves_no_half_tree(tmp_path: Path) -> None:
    """A disk that filled up while a tree was downloaded is full for the program too."""
    claim, app = tmp_path / "claim", tmp_path / "app"
    write(claim, {"train.py": "new"})
    app.mkdir()
    launcher.note(str(app))
    write_marker(claim, Marker(revision="r", digest="sha256:other", bytes=3, files=1, source="zip"))
    server = web.Application()
    add_archive(server, claim, limits=LIMITS, streams=1, key="KEY")
    async with running(server, host="127.0.0.1", port=0) as port:
        url = launcher.Url(f"http://127.0.0.1:{port}/launcher/KEY")
        with pytest.raises(launcher.Unfit, match="the archive has the digest"):
            await asyncio.to_thread(launcher.stage, url, str(app), "sha256:other")
    assert os.listdir(app / launcher.STAGING) == [launcher.PLACED]


CHUNKED = (st.lists(st.binary(min_size=1, max_size=40), max_size=5), st.integers(1, 50))


@given(*CHUNKED)
def test_content_in_chunks_is_what_was_sent(parts: list[bytes], size: int) -> None:
    sent = b"".join(b"%x;name=value\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    stream = io.BufferedReader(launcher.Chunked(io.BytesIO(sent)), size)
    assert b"".join(iter(lambda: stream.read(size), b"")) == b"".join(parts)


def placed(root: Path) -> dict[str, str]:
    files = (path for path in root.rglob("*") if path.is_file() and launcher.STAGING not in path.parts)
    return {str(path.relative_to(root)): path.read_text() for path in files}


def stage(root: Path, files: dict[str, str]) -> None:
    """Stage a tree, as the launcher does once it is downloaded."""
    tree = root / launcher.STAGING / "tree"
    tree.mkdir(parents=True)
    write(tree, files)
    launcher.write_record(str(tree.parent / launcher.COMES), launcher.record(str(tree), set()))
    (tree.parent / "marker").write_text('{"digest": "new"}')


@settings(max_examples=examples(60))
@given(
    old=st.dictionaries(st.sampled_from(["a", "b/c", "b/d", "e/f/g"]), st.just("old")),
    new=st.dictionaries(st.sampled_from(["a", "b/c", "b/d/e", "e"]), st.just("new")),
    made=st.dictionaries(st.sampled_from(["a", "b/x", "e/f/x", "b/__pycache__/x", "z/y"]), st.just("made")),
)
def test_a_swap_leaves_the_new_tree_and_what_was_made(
    old: dict[str, str], new: dict[str, str], made: dict[str, str]
) -> None:
    """The new tree is whole, nothing of the old one is left, and files of the program stay if nothing is in the way."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        write(root, old)
        launcher.note(str(root))
        written = {name: text for name, text in made.items() if write(root, {name: text})}
        stage(root, new)
        launcher.clean(launcher.swap(str(root), "new")["old"])
        found = placed(root)
        assert found.pop(launcher.MARKER) == '{"digest": "new"}'
        assert {name: text for name, text in found.items() if name in new} == new
        assert "old" not in found.values()
        blocked = {name for name in written if any(name.startswith(other + "/") for other in new)}
        compiled = {name for name in written if "__pycache__" in name and any(n.startswith("b/") for n in (*old, *new))}
        kept = {name: text for name, text in written.items() if name not in blocked | compiled}
        assert found == kept | new


def test_program_may_leave_anything_in_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets, pipes, links to directories and directories that nobody may write to are no obstacle, and stay."""
    write(tmp_path, {"train.py": "old", "run/old.py": "old"})
    launcher.note(str(tmp_path))
    monkeypatch.chdir(tmp_path)  # a socket's address is short
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind("run/socket")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "latest").symlink_to("/var")
    (tmp_path / "sealed").mkdir(mode=0o500)
    (tmp_path / "empty").mkdir()
    stage(tmp_path, {"train.py": "new"})
    launcher.swap(str(tmp_path), "new")
    left = {path.name for path in (*tmp_path.iterdir(), *(tmp_path / "run").iterdir())}
    assert left - launcher.RESERVED == {"train.py", "run", "socket", "pipe", "latest", "sealed", "empty"}


def test_swap_keeps_the_directory_that_a_program_is_in(tmp_path: Path) -> None:
    write(tmp_path, {"src/train.py": "old"})
    launcher.note(str(tmp_path))
    inside = os.open(tmp_path / "src", os.O_PATH)
    stage(tmp_path, {"src/train.py": "new"})
    launcher.clean(launcher.swap(str(tmp_path), "new")["old"])
    assert Path(f"/proc/self/fd/{inside}/train.py").read_text() == "new"
    os.close(inside)


def test_a_clock_that_was_set_back_loses_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": "old"})
    launcher.note(str(tmp_path))
    write(tmp_path, {"weights": "made"})
    os.utime(tmp_path / "weights", (0, 0))
    stage(tmp_path, {"train.py": "new"})
    launcher.swap(str(tmp_path), "new")
    assert (tmp_path / "weights").read_text() == "made"


def test_nothing_is_touched_where_a_volume_is_mounted(tmp_path: Path) -> None:
    """Not in it, although both trees have files there, and no directory around it is moved or removed."""
    write(tmp_path, {"out/old.py": "old", "out/ck/old": "of the volume", "out/ck/new": "of the volume"})
    staging = tmp_path / launcher.STAGING
    staging.mkdir()
    launcher.write_record(str(staging / launcher.PLACED), launcher.record(str(tmp_path), set()))
    stage(tmp_path, {"out/ck/new": "new", "train.py": "new"})
    (staging / "old").mkdir()
    launcher.replace(os.fsencode(tmp_path), os.fsencode(staging / "old"), {b"out/ck"})
    assert placed(tmp_path) == {"out/ck/old": "of the volume", "out/ck/new": "of the volume", "train.py": "new"}


def test_file_in_place_of_a_mounted_volume_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"out/ck/step": "of the volume"})
    launcher.note(str(tmp_path))
    stage(tmp_path, {"out": "a file"})
    with pytest.raises(launcher.Unfit, match="a volume is mounted below 'out'"):
        launcher.check_fits(str(tmp_path), {b"out/ck"})


@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare to mount with")
def test_mounted_volumes_are_found(tmp_path: Path) -> None:
    inside = tmp_path / "app" / "a b" / "c"
    inside.mkdir(parents=True)
    code = f"""
import subprocess, sys
sys.path.insert(0, {str(Path(launcher.__file__).parent)!r})
import launcher
subprocess.run(["mount", "--bind", {str(tmp_path)!r}, {str(inside)!r}], check=True)
print(launcher.mounts_below({str(tmp_path / "app")!r}))
"""
    done = subprocess.run(["unshare", "-rm", sys.executable, "-c", code], capture_output=True, text=True)
    if "Operation not permitted" in done.stderr:
        pytest.skip("nobody may mount here")
    assert done.stdout == "{b'a b/c'}\n", done.stderr


def write(root: Path, files: dict[str, str]) -> bool:
    for name, text in files.items():
        path = root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            return False
    return True
