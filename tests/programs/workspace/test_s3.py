"""What an s3 URL names, how a request to it is signed, and what servers' answers mean."""

import asyncio
import gzip
import io
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from torchctl.workspace.ahead import AT_ONCE
from torchctl.workspace.core import Limits
from torchctl.workspace.errors import Refused, Unreachable
from torchctl.workspace.fetch import fetch
from torchctl.workspace.marker import Marker, read_marker
from torchctl.workspace.request import FetchRequest
from torchctl.workspace.s3 import Bucket, Page, S3Source, StoredObject, explain, parse_page
from torchctl.workspace.s3sign import signature
from torchctl.workspace.secret import S3Access, load_secret
from torchctl.workspace.tars import unpack_tar

if TYPE_CHECKING:
    from .conftest import Server

EXAMPLE = S3Access(
    access_key_id="AKIAIOSFODNN7EXAMPLE",
    secret_access_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
)
"""The keys of AWS's own examples of signatures (Authenticating Requests: Using the Authorization Header)."""


@pytest.mark.parametrize(
    ("url", "bucket", "key", "archive"),
    [
        ("s3://data/team/code/", "data", "team/code/", ""),
        ("s3://data", "data", "", ""),
        ("s3://data/", "data", "", ""),
        ("s3://my.data-1/a/code.zip", "my.data-1", "a/code.zip", "zip"),
        ("s3://data/code.tar", "data", "code.tar", "tar"),
        ("s3://data/code.TAR.GZ", "data", "code.TAR.GZ", "tar.gz"),
        ("s3://data/code.tgz", "data", "code.tgz", "tar.gz"),
    ],
)
def test_url_ends_like_an_archive_or_with_a_slash(url: str, bucket: str, key: str, archive: str) -> None:
    """A slash at the end names a folder."""
    source = S3Source.parse(url)
    assert (source.bucket, source.key, source.archive, source.is_folder) == (bucket, key, archive, not archive)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://data/code", "End it with '/'"),
        ("s3://data/code.rar", "neither a folder nor an archive"),
        ("s3://data/code/?versionId=1", r"without '\?'"),
        ("s3://data/code/#x", "'#'"),
        ("s3://data:9000/code/", "AWS_ENDPOINT_URL"),
        ("s3://key:secret@data/code/", "credentials"),
        ("s3://a/code/", "not the name of a bucket"),
        ("s3:///code/", "no valid host"),
        ("https://data/code.zip", "scheme 'https'"),
    ],
)
def test_what_is_neither_is_refused(url: str, says: str) -> None:
    with pytest.raises(Refused, match=says):
        S3Source.parse(url)


@pytest.mark.parametrize(
    ("access", "name", "base"),
    [
        ({}, "data", "https://data.s3.us-east-1.amazonaws.com"),
        ({"region": "eu-west-1"}, "data", "https://data.s3.eu-west-1.amazonaws.com"),
        ({}, "my.data", "https://s3.us-east-1.amazonaws.com/my.data"),
        ({"addressing": "path"}, "data", "https://s3.us-east-1.amazonaws.com/data"),
        ({"endpoint": "https://minio.example.com:9000/"}, "data", "https://minio.example.com:9000/data"),
        ({"endpoint": "http://minio.minio:9000", "addressing": "auto"}, "data", "http://minio.minio:9000/data"),
        ({"endpoint": "https://o.example.com", "addressing": "virtual"}, "data", "https://data.o.example.com"),
    ],
)
def test_a_bucket_is_asked_where_its_secret_says(access: dict[str, str], name: str, base: str) -> None:
    assert Bucket.of(name, S3Access(**access)).base == base


def test_keys_and_listings_are_encoded_once() -> None:
    bucket = Bucket("https://data.example.com", "r")
    assert bucket.object_url("a b/c+d%20é~.py") == "https://data.example.com/a%20b/c%2Bd%2520%C3%A9~.py"
    assert bucket.listing_url("a b/", "t+1/=") == (
        "https://data.example.com/?continuation-token=t%2B1%2F%3D&encoding-type=url&list-type=2&prefix=a%20b%2F"
    )


def test_a_signature_is_the_one_of_awss_own_example() -> None:
    url = "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J"
    signed = signature(url, EXAMPLE, "us-east-1", datetime(2013, 5, 24, tzinfo=UTC))
    wanted = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
    assert signed["Authorization"].endswith(f"SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature={wanted}")
    assert signed["X-Amz-Date"] == "20130524T000000Z"


def test_without_keys_nothing_is_signed() -> None:
    assert signature("https://b.example.com/x", S3Access(), "r", datetime(2026, 1, 1, tzinfo=UTC)) == {}


LISTING = b"""<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>data</Name><IsTruncated>%s</IsTruncated>
<EncodingType>%s</EncodingType>%s<Contents><Key>code/a+b%%2Bc.py</Key><Size>7</Size><ETag>"e"</ETag></Contents>
</ListBucketResult>"""


def test_listing_is_read_with_its_encoding_and_next_page() -> None:
    page = parse_page(LISTING % (b"true", b"url", b"<NextContinuationToken>t</NextContinuationToken>"))
    assert page == Page((StoredObject("code/a b+c.py", 7, '"e"'),), "t")
    (plain,) = parse_page(LISTING % (b"false", b"", b"")).objects
    assert plain.key == "code/a+b%2Bc.py"


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (b"", "does not list objects"),
        (b"<html>sign in</html>", "does not list objects"),
        (b"not xml", "does not list objects"),
        (b'<!DOCTYPE x [<!ENTITY a "aa">]><ListBucketResult/>', "does not list objects"),
        (LISTING % (b"true", b"url", b""), "breaks off"),
        ((LISTING % (b"false", b"url", b"")).replace(b">7<", b">-7<"), "with the size '-7'"),
    ],
)
def test_an_answer_that_is_no_listing_is_refused(document: bytes, says: str) -> None:
    with pytest.raises(Refused, match=says):
        parse_page(document)


def error(code: str, more: str = "") -> bytes:
    return f"<Error><Code>{code}</Code><Message>m</Message>{more}</Error>".encode()


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (404, error("NoSuchBucket"), "no such bucket.*AWS_ENDPOINT_URL"),
        (404, error("NoSuchKey"), "no such object"),
        (404, b"", "no such object"),
        (403, error("InvalidAccessKeyId"), "does not know the access key.*AWS_ACCESS_KEY_ID"),
        (403, error("SignatureDoesNotMatch"), "refused the signature"),
        (400, error("ExpiredToken"), "expired.*Renew"),
        (403, error("RequestTimeTooSkewed"), "clock"),
        (403, error("AccessDenied"), "s3:GetObject and s3:ListBucket"),
        (403, b"", "s3:ListBucket"),
        (301, error("PermanentRedirect"), "Set AWS_REGION in the Secret"),
        (400, error("AuthorizationHeaderMalformed", "<Region>eu-1</Region>"), "AWS_REGION to eu-1"),
        (400, error("AuthorizationHeaderMalformed", "<Region>e u'</Region>"), "Set AWS_REGION in"),
        (418, error("Teapot"), "answered 418 'Teapot'. Check volumes.workspace.url"),
    ],
)
def test_a_refusal_says_which_key_of_the_secret_to_correct(status: int, body: bytes, says: str) -> None:
    with pytest.raises(Refused, match=says):
        raise explain("s3://data/x", status, body)


def test_anybody_who_is_refused_is_told_to_bring_keys() -> None:
    with pytest.raises(Refused, match=r"Name a Secret with .*secretRef"):
        raise explain("s3://data/x", 403, error("AccessDenied"), signed=False)


# Servers that misbehave.


def _secret(server: "Server", directory: Path) -> Path:
    directory.mkdir()
    for key, value in (("AWS_ENDPOINT_URL", server.url), ("ca.crt", server.ca.read_text())):
        (directory / key).write_text(value)
    return directory


def _page(*objects: tuple[str, int]) -> bytes:
    items = "".join(
        f'<Contents><Key>{key}</Key><Size>{size}</Size><ETag>"e"</ETag></Contents>' for key, size in objects
    )
    return f"<ListBucketResult><IsTruncated>false</IsTruncated>{items}</ListBucketResult>".encode()


async def _bring(server: "Server", claim: Path, tmp_path: Path, url: str = "s3://data/code/") -> Marker:
    request = FetchRequest(source="s3", root=claim, url=url, secret=_secret(server, tmp_path / "secret"), timeout_s=30)
    return await fetch(request, environ={})


def _lists(server: "Server", *objects: tuple[str, int]) -> None:
    async def listing(request: web.Request) -> web.Response:
        return web.Response(body=_page(*objects))

    server.routes["/data/"] = listing


async def _content(request: web.Request) -> web.Response:
    assert request.headers["If-Match"] == '"e"'
    return web.Response(body=b"1234", headers={"ETag": '"e"'})


async def test_object_that_changed_since_its_listing_is_refused(server: "Server", claim: Path, tmp_path: Path) -> None:
    """Otherwise the workspace would be half old and half new."""

    async def changed(request: web.Request) -> web.Response:
        return web.Response(status=412)

    _lists(server, ("code/a.py", 4))
    server.routes["/data/code/a.py"] = changed
    with pytest.raises(Unreachable, match="was changed while it was fetched"):
        await _bring(server, claim, tmp_path)
    assert read_marker(claim) is None


async def test_an_object_of_another_size_than_listed_is_refused(server: "Server", claim: Path, tmp_path: Path) -> None:
    _lists(server, ("code/a.py", 5))
    server.routes["/data/code/a.py"] = _content
    with pytest.raises(Unreachable, match=r"'a\.py' was changed"):
        await _bring(server, claim, tmp_path)


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("code/../../etc/passwd", "unsafe name"),
        ("other/a.py", "is not below s3://data/code/"),
        ("code/.sync_success", "reserved"),
    ],
)
async def test_a_listing_cannot_lead_out_of_the_folder(
    server: "Server", claim: Path, tmp_path: Path, key: str, says: str
) -> None:
    _lists(server, (key, 4))
    with pytest.raises(Refused, match=says):
        await _bring(server, claim, tmp_path)


async def test_objects_are_fetched_several_at_once(server: "Server", claim: Path, tmp_path: Path) -> None:
    """As many as are allowed, and no more: the first ones are answered when all of them have been asked for."""
    at_once, most, all_there = 0, 0, asyncio.Event()

    async def content(request: web.Request) -> web.Response:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        if at_once == AT_ONCE:
            all_there.set()
        await all_there.wait()
        at_once -= 1
        return web.Response(body=request.path[-4:].encode())

    names = [f"{number:04}" for number in range(200)]
    _lists(server, *((f"code/d{name[:3]}/{name}", 4) for name in names))
    server.routes |= {f"/data/code/d{name[:3]}/{name}": content for name in names}
    marker = await _bring(server, claim, tmp_path)
    assert (marker.files, most) == (200, AT_ONCE)
    assert [(claim / f"d{name[:3]}/{name}").read_text() for name in names] == names


async def test_a_stalled_object_does_not_hold_up_the_others(server: "Server", claim: Path, tmp_path: Path) -> None:
    """The first one is answered last; what came meanwhile waits for it."""
    asked, others = list[str](), asyncio.Event()

    async def content(request: web.Request) -> web.Response:
        asked.append(request.path)
        if len(asked) == 40:
            others.set()
        if request.path.endswith("/00"):
            await others.wait()
        return web.Response(body=b"1234")

    names = [f"{number:02}" for number in range(40)]
    _lists(server, *((f"code/{name}", 4) for name in names))
    server.routes |= {f"/data/code/{name}": content for name in names}
    assert (await _bring(server, claim, tmp_path)).files == 40


async def test_the_first_error_ends_the_other_downloads(server: "Server", claim: Path, tmp_path: Path) -> None:
    """Though an earlier object never comes."""
    stalled, released = asyncio.Event(), asyncio.Event()

    async def stalls(request: web.Request) -> web.Response:
        stalled.set()
        await released.wait()
        return web.Response()

    async def refused(request: web.Request) -> web.Response:
        await stalled.wait()
        return web.Response(status=403, body=error("AccessDenied"))

    _lists(server, ("code/a.py", 4), ("code/b.py", 4), ("code/c.py", 4))
    server.routes |= {"/data/code/a.py": stalls, "/data/code/b.py": refused, "/data/code/c.py": _content}
    with pytest.raises(Refused, match=r"b\.py: the server refused access"):
        await _bring(server, claim, tmp_path)
    released.set()
    assert read_marker(claim) is None


async def test_markers_of_folders_are_directories(server: "Server", claim: Path, tmp_path: Path) -> None:
    _lists(server, ("code/", 0), ("code/empty/", 0), ("code/pkg/a.py", 4))
    server.routes["/data/code/pkg/a.py"] = _content
    marker = await _bring(server, claim, tmp_path)
    assert (marker.files, (claim / "empty").is_dir(), (claim / "pkg/a.py").read_text()) == (1, True, "1234")


async def test_broken_download_resumes_only_on_the_same_object(server: "Server", claim: Path, tmp_path: Path) -> None:
    data = gzip.compress(_tar({"a.py": b"x" * 300_000}), mtime=0) + b"\0" * 200_000
    conditions = []

    async def breaking(request: web.Request) -> web.StreamResponse:
        conditions.append(request.headers.get("If-Match"))
        start = int(request.headers.get("Range", "bytes=0-")[6:-1])
        head = {"ETag": '"v1"', "Content-Length": str(len(data) - start)}
        response = web.StreamResponse(status=206 if start else 200, headers=head)
        await response.prepare(request)
        await response.write(data[start : start + 120_000])
        if start + 120_000 < len(data):
            assert request.transport is not None
            request.transport.close()
        return response

    server.routes["/data/code.tgz"] = breaking
    marker = await _bring(server, claim, tmp_path, "s3://data/code.tgz")
    assert marker.files == 1
    assert conditions == [None, '"v1"']


async def test_a_redirect_is_never_followed(server: "Server", claim: Path, tmp_path: Path) -> None:
    async def moved(request: web.Request) -> web.Response:
        headers = {"Location": "https://elsewhere.example.com/", "x-amz-bucket-region": "eu-2"}
        return web.Response(status=307, headers=headers, body=error("PermanentRedirect"))

    server.routes["/data/"] = moved
    with pytest.raises(Refused, match=r"another region.*AWS_REGION to eu-2"):
        await _bring(server, claim, tmp_path)
    assert len(server.requests) == 1


async def test_server_without_tls_is_used_if_the_secret_says(claim: Path, tmp_path: Path) -> None:
    async def listing(request: web.Request) -> web.Response:
        return web.Response(body=_page(("code/a.py", 4)))

    app = web.Application()
    app.router.add_get("/data/", listing)
    app.router.add_get("/data/code/a.py", _content)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        secret = tmp_path / "secret"
        secret.mkdir()
        (secret / "AWS_ENDPOINT_URL").write_text(f"http://127.0.0.1:{runner.addresses[0][1]}")
        request = FetchRequest(source="s3", root=claim, url="s3://data/code/", secret=secret, timeout_s=30)
        assert (await fetch(request, environ={})).bytes == 4
    finally:
        await runner.cleanup()


# Tar archives.


def _tar(files: dict[str, bytes], kind: bytes = tarfile.REGTYPE) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as file:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.type, info.size, info.linkname = kind, len(data), "x"
            file.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def _unpack(tmp_path: Path, data: bytes, *, gzipped: bool, limits: Limits | None = None) -> Path:
    archive, target = tmp_path / "archive", tmp_path / "tree"
    archive.write_bytes(data)
    target.mkdir()
    for _ in unpack_tar(archive, target, limits or Limits(), gzipped=gzipped):
        pass
    return target


@pytest.mark.parametrize("gzipped", [False, True])
def test_a_tar_file_is_unpacked(tmp_path: Path, gzipped: bool) -> None:
    data = _tar({"./pkg/a.py": b"a" * 3_000_000, "b": b""})
    target = _unpack(tmp_path, gzip.compress(data) if gzipped else data, gzipped=gzipped)
    assert ((target / "pkg/a.py").stat().st_size, (target / "b").exists()) == (3_000_000, True)


@pytest.mark.parametrize(
    ("data", "gzipped", "says"),
    [
        (_tar({"a": b"x" * 5000})[:2000], False, "cut off"),
        (gzip.compress(_tar({"a": b"x" * 5000}), mtime=0)[:60], True, "cut off"),
        (b"", True, "cut off"),
        (_tar({"a": b""}), True, "not gzipped"),
        (b"PK" * 600, False, "not a tar archive"),
        (_tar({"../a": b""}), False, "unsafe name"),
        (_tar({"a": b""}, tarfile.CHRTYPE), False, "of a kind"),
        (_tar({"a": b""}, tarfile.LNKTYPE), False, "of a kind"),
    ],
)
def test_a_tar_file_that_is_damaged_or_hostile_is_refused(
    tmp_path: Path, data: bytes, gzipped: bool, says: str
) -> None:
    with pytest.raises(Refused, match=says):
        _unpack(tmp_path, data, gzipped=gzipped)


def test_a_bomb_stops_at_the_ratio(tmp_path: Path) -> None:
    data = gzip.compress(_tar({"zeros": bytes(20_000_000)}))
    with pytest.raises(Refused, match="more than 100 times its size"):
        _unpack(tmp_path, data, gzipped=True, limits=Limits(ratio_floor=1_000_000))


# The Secret.


def test_the_secrets_keys_are_those_of_awss_tools(tmp_path: Path) -> None:
    values = {
        "AWS_ACCESS_KEY_ID": "AK\n",
        "AWS_SECRET_ACCESS_KEY": "canary-key\n",
        "AWS_SESSION_TOKEN": "canary-token",
        "AWS_DEFAULT_REGION": "eu-1",
        "AWS_ENDPOINT_URL": "https://a",
        "AWS_ENDPOINT_URL_S3": "https://b",
        "AWS_S3_ADDRESSING_STYLE": "path",
    }
    for key, value in values.items():
        (tmp_path / key).write_text(value)
    secret = load_secret(tmp_path)
    assert secret.s3 == S3Access(
        access_key_id="AK",
        secret_access_key="canary-key",
        session_token="canary-token",
        region="eu-1",
        endpoint="https://b",
        addressing="path",
    )
    assert "canary" not in repr(secret)
    assert secret.redactor()("a canary-key and canary-token b") == "a *** and *** b"
