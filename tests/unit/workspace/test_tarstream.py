"""The tar stream: what it accepts, however it is cut into pieces, and what it refuses."""

import contextlib
import io
import tarfile
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchctl.workspace.core import Limits, Member
from torchctl.workspace.errors import Refused
from torchctl.workspace.tarstream import END, TarParser, padding, tar_header


def parse(pieces: Iterable[bytes]) -> tuple[list[tuple[Member, bytes]], bool]:
    parser, found = TarParser(Limits()), list[tuple[Member, bytes]]()
    for piece in pieces:
        for event in parser.feed(piece):
            if isinstance(event, Member):
                found.append((event, b""))
            else:
                found[-1] = (found[-1][0], found[-1][1] + event)
    return found, parser.ended


def pack(entries: Iterable[tuple[Member, bytes]]) -> bytes:
    return b"".join(tar_header(m) + data + bytes(padding(len(data))) for m, data in entries) + END


NAME = st.text(alphabet="abcé-_", min_size=1, max_size=80)
FILE = st.builds(
    lambda parts, data, mode, mtime: (Member(tuple(parts), "file", mode, len(data), mtime=mtime), data),
    st.lists(NAME, min_size=1, max_size=3),
    st.binary(max_size=1500),
    st.integers(0, 0o777),
    st.integers(0, 2**32),
)
LINK = st.builds(lambda name, target: (Member((name,), "link", 0o777, target=target), b""), NAME, NAME)


@given(st.lists(FILE | LINK, max_size=5), st.integers(1, 2000))
def test_what_was_written_is_read_however_it_is_cut(entries: list[tuple[Member, bytes]], piece: int) -> None:
    data = pack(entries)
    assert parse(data[i : i + piece] for i in range(0, len(data), piece)) == (entries, True)


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_archives_of_other_programs_are_read(form: int) -> None:
    buffer = io.BytesIO()
    long = "/".join(["é" * 20] * (6 if form != tarfile.USTAR_FORMAT else 1))
    with tarfile.open(fileobj=buffer, mode="w", format=form, pax_headers={"comment": "x"}) as tar:
        for name, data in ((long, b"1"), ("b", b"2" * 600)):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    found, ended = parse([buffer.getvalue()])
    assert [(m.path, data) for m, data in found] == [(long, b"1"), ("b", b"2" * 600)]
    assert ended


@pytest.mark.parametrize(
    "kind", [tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE, b"Z"]
)
def test_hard_links_devices_pipes_and_unknown_members_are_refused(kind: bytes) -> None:
    info = tarfile.TarInfo("x")
    info.type, info.linkname = kind, "/etc/passwd"
    with pytest.raises(Refused, match="of a kind"):
        parse([info.tobuf(tarfile.GNU_FORMAT)])


def test_an_extension_of_a_gigabyte_is_refused_before_it_comes() -> None:
    for kind in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
        info = tarfile.TarInfo("x")
        info.type, info.size = kind, 2**30
        with pytest.raises(Refused, match="header extension"):
            parse([info.tobuf(tarfile.GNU_FORMAT)])


@pytest.mark.parametrize("name", ["/abs", "../up", "a/../../b"])
def test_unsafe_names_are_refused(name: str) -> None:
    with pytest.raises(Refused, match="unsafe"):
        parse([tarfile.TarInfo(name).tobuf(tarfile.GNU_FORMAT)])


def test_a_stream_that_stops_early_has_not_ended() -> None:
    data = pack([(Member(("a",), "file", size=1000), bytes(1000))])
    assert parse([data[:900]])[1] is False
    assert parse([data[:-1024]])[1] is False


@given(st.binary(max_size=3000))
def test_arbitrary_bytes_are_refused_or_read_and_nothing_else(data: bytes) -> None:
    with contextlib.suppress(Refused):
        parse([data])


def pax(records: Iterable[tuple[str, str]]) -> bytes:
    """The blocks of a pax header."""
    data = b""
    for key, value in records:
        rest = f" {key}={value}\n".encode()
        length = len(rest) + 1
        while len(str(length)) + len(rest) != length:
            length += 1
        data += str(length).encode() + rest
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, len(data)
    return info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(padding(len(data)))


def test_pax_headers_without_end_take_no_memory() -> None:
    parser = TarParser(Limits())
    for number in range(100):
        assert list(parser.feed(pax([(f"comment.{number}", "x" * 1000), (f"GNU.sparse.{number}", "1")]))) == []
    assert len(parser._overrides) <= 4
    with pytest.raises(Refused, match="of a kind"):
        list(parser.feed(tarfile.TarInfo("sparse").tobuf(tarfile.USTAR_FORMAT)))
