"""Files to and from a pod: what is packed arrives the same, and what a pod sends besides is refused."""

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from torchctl.client.copying import Place, parse
from torchctl.client.errors import RequestRefused, UsageError
from torchctl.client.tarring import Arriving, members_of, packed
from torchctl.workspace.errors import Refused


def tree(root: Path) -> dict[str, tuple[int, bytes]]:
    """Modes, and contents or targets, by path."""
    found = {}
    for path in sorted(root.rglob("*")):
        content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[str(path.relative_to(root))] = (path.lstat().st_mode, content)
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "run"
    (root / "deep" / "empty").mkdir(parents=True)
    (root / "model.pt").write_bytes(bytes(range(256)) * 10_000)
    (root / "train.sh").write_text("echo\n")
    (root / "train.sh").chmod(0o755)
    (root / ("long" * 50)).write_text("name")
    (root / "last").symlink_to("model.pt")
    return root


def arrive(data: bytes, name: str, directory: Path, size: int = 1000) -> tuple[int, int]:
    arriving = Arriving(directory, name)
    for start in range(0, len(data), size):
        arriving.write(data[start : start + size])
    return arriving.end()


def test_a_directory_arrives_as_it_was_under_its_new_name(source: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    data = b"".join(packed(source, "copy", members_of(source)))
    assert arrive(data, "copy", tmp_path / "there") == (4, 2_560_009)
    assert tree(tmp_path / "there" / "copy") == tree(source)


def test_a_file_arrives_under_its_new_name(source: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    data = b"".join(packed(source / "train.sh", "new.sh", members_of(source / "train.sh")))
    assert arrive(data, "new.sh", tmp_path / "there") == (1, 5)
    assert (tmp_path / "there" / "new.sh").read_text() == "echo\n"


def test_tar_of_a_pod_understands_and_is_understood(source: Path, tmp_path: Path) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    there.mkdir()
    back.mkdir()
    data = b"".join(packed(source, "copy", members_of(source)))
    subprocess.run(["tar", "-x", "-f", "-", "-C", there], input=data, check=True)
    assert tree(there / "copy") == tree(source)
    sent = subprocess.run(["tar", "-c", "-f", "-", "-C", there, "--", "copy"], stdout=subprocess.PIPE, check=True)
    assert arrive(sent.stdout, "copy", back) == (4, 2_560_009)
    assert tree(back / "copy") == tree(source)


def archive(*members: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    return buffer.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, size
    return info


@pytest.mark.parametrize(
    "members",
    [
        [member("other")],
        [member("copy/../../.bashrc")],
        [member("/etc/passwd")],
        [member("copy", tarfile.DIRTYPE), member("copy/link", tarfile.SYMTYPE, "/etc")],
        [member("copy", tarfile.SYMTYPE, ".."), member("copy/file")],
        [member("copy", tarfile.LNKTYPE, "/etc/passwd")],
        [member("copy", tarfile.CHRTYPE)],
        [member("copy"), member("copy")],
    ],
)
def test_what_a_hostile_pod_sends_is_refused(members: list[tarfile.TarInfo], tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises((Refused, RequestRefused)):
        arrive(archive(*members), "copy", tmp_path / "there")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_an_archive_that_was_cut_off_is_refused(source: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    data = b"".join(packed(source, "copy", members_of(source)))
    with pytest.raises(RequestRefused, match="cut off"):
        arrive(data[:-2048], "copy", tmp_path / "there")


def test_file_that_shrinks_while_it_is_sent_is_named(source: Path) -> None:
    members = members_of(source)
    (source / "model.pt").write_bytes(b"")
    with pytest.raises(UsageError, match=r"model\.pt became shorter"):
        list(packed(source, "copy", members))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("vit:/checkpoints/1", Place("/checkpoints/1", "vit")),
        ("vit:out", Place("out", "vit")),
        ("./odd:name", Place("./odd:name")),
        ("/odd:name", Place("/odd:name")),
        ("plain", Place("plain")),
    ],
)
def test_a_place_is_here_or_in_a_job(text: str, place: Place) -> None:
    assert parse(text) == place


def test_a_job_without_a_path_is_refused() -> None:
    with pytest.raises(UsageError, match="names no path"):
        parse("vit:")
