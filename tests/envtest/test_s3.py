"""Workspaces from a real S3 server that checks signatures: folders, archives, credentials, regions, revisions."""

import gzip
import hashlib
import io
import json
import socket
import sys
import tarfile
import zipfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio

from torchctl.testing.objectstore import DOMAIN, ObjectStore, object_store
from torchctl.workspace.core import Limits
from torchctl.workspace.errors import Refused
from torchctl.workspace.fetch import fetch
from torchctl.workspace.marker import Marker, read_marker
from torchctl.workspace.request import FetchRequest

FILES = {"train.py": b"print('hello')\n", "pkg/model.py": b"M = 1\n", "pkg/empty.txt": b"", "a b+c%20d.txt": b"odd\n"}


def zipped(files: dict[str, bytes] = FILES) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, data in files.items():
            file.writestr(name, data)
    return buffer.getvalue()


def tarred(files: dict[str, bytes] = FILES) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as file:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def store() -> AsyncGenerator[ObjectStore]:
    async with object_store(region="eu-test-1") as running:
        running.bucket("code")
        for name, data in FILES.items():
            running.put("code", f"team/run/{name}", data)
            running.put("code", f"team/running/{name}", b"another folder\n")
        yield running


@pytest.fixture
def claim(tmp_path: Path) -> Path:
    root = tmp_path / "claim"
    (root / "lost+found").mkdir(parents=True)
    return root


@pytest.fixture
def secret(store: ObjectStore, tmp_path: Path) -> Path:
    return store.secret(tmp_path / "secret", AWS_REGION="eu-test-1")


async def bring(claim: Path, url: str, secret: Path | None, **more: object) -> Marker:
    options: dict[str, object] = {"url": url, "secret": secret, "timeout_s": 60, **more}
    return await fetch(
        FetchRequest(source="s3", root=claim, **options),  # type: ignore[arg-type]  # of a test's choice
        environ={},
    )


def there(claim: Path) -> dict[str, bytes]:
    """The files of a claim, without the marker."""
    found = {str(path.relative_to(claim)): path.read_bytes() for path in claim.rglob("*") if path.is_file()}
    del found[".sync_success"]
    return found


async def test_a_folder_arrives_whole_and_nothing_of_its_neighbour(claim: Path, secret: Path) -> None:
    marker = await bring(claim, "s3://code/team/run/", secret)
    assert there(claim) == FILES
    assert (marker.source, marker.files) == ("s3", len(FILES))
    assert marker.revision == marker.digest
    assert read_marker(claim) == marker


async def test_a_folder_of_more_than_a_page_arrives_whole(store: ObjectStore, claim: Path, secret: Path) -> None:
    for number in range(1005):
        store.put("code", f"many/{number:04}.txt", b"x")
    marker = await bring(claim, "s3://code/many/", secret, timeout_s=240)  # a thousand requests, on a busy machine
    assert (marker.files, marker.bytes) == (1005, 1005)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("code.zip", zipped()),
        ("code.tar", tarred()),
        ("code.tar.gz", gzip.compress(tarred())),
        ("c.TGZ", gzip.compress(tarred())),
    ],
)
async def test_an_archive_is_unpacked_by_its_ending(
    store: ObjectStore, claim: Path, secret: Path, name: str, data: bytes
) -> None:
    checksum = store.put("code", f"archives/{name}", data)
    marker = await bring(claim, f"s3://code/archives/{name}", secret)
    assert there(claim) == FILES
    assert marker.revision == f"sha256:{checksum}"


async def test_all_forms_of_one_tree_have_one_digest(store: ObjectStore, claim: Path, secret: Path) -> None:
    store.put("code", "forms/code.zip", zipped())
    folder = await bring(claim, "s3://code/team/run/", secret)
    archive = await bring(claim, "s3://code/forms/code.zip", secret)
    assert folder.digest == archive.digest


async def test_a_revision_is_the_digest_that_the_content_must_have(
    store: ObjectStore, claim: Path, secret: Path
) -> None:
    checksum = store.put("code", "pinned/code.zip", zipped())
    with pytest.raises(Refused, match=r"has the SHA-256 \w+, not 0000.*volumes\.workspace\.revision"):
        await bring(claim, "s3://code/pinned/code.zip", secret, revision="sha256:" + "0" * 64)
    assert read_marker(claim) is None
    marker = await bring(claim, "s3://code/pinned/code.zip", secret, revision=f"sha256:{checksum}")
    with pytest.raises(Refused, match="the workspace has the digest"):
        await bring(claim, "s3://code/team/run/", secret, revision="0" * 64)
    assert (await bring(claim, "s3://code/team/run/", secret, revision=marker.digest)).digest == marker.digest


async def test_a_bucket_can_have_its_own_host_name(
    store: ObjectStore, claim: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = socket.getaddrinfo

    def resolved(host: str, *arguments: Any, **options: Any) -> Any:
        return resolve("localhost" if host.endswith(".localhost") else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    endpoint = store.endpoint.replace("localhost", DOMAIN)
    keys = {"AWS_REGION": "eu-test-1", "AWS_S3_ADDRESSING_STYLE": "virtual", "AWS_ENDPOINT_URL": endpoint}
    secret = store.secret(tmp_path / "virtual", **keys)
    assert (await bring(claim, "s3://code/team/run/", secret)).files == len(FILES)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "canary-wrong"}, "refused the signature.*AWS_SECRET_ACCESS_KEY"),
        ({"AWS_ACCESS_KEY_ID": "AKNOBODY"}, "answered 404 'XAdminUserNotFound'.*keys in the Secret"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "refused access.*Name a Secret"),
        ({"AWS_SECRET_ACCESS_KEY": ""}, "only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        ({"AWS_REGION": "us-east-1"}, "another region.*AWS_REGION to eu-test-1"),
        ({"ca.crt": ""}, r"certificate.*ca\.crt"),
        ({"AWS_REGION": "../x"}, "which is no region"),
        ({"AWS_S3_ADDRESSING_STYLE": "paths"}, "AWS_S3_ADDRESSING_STYLE is 'paths'"),
        ({"AWS_ENDPOINT_URL": "http://169.254.169.254"}, "not allowed as a source"),
        ({"AWS_ENDPOINT_URL": "file:///etc"}, "scheme 'file' is not allowed"),
    ],
)
async def test_wrong_secret_is_refused_with_the_key_to_correct(
    store: ObjectStore, claim: Path, tmp_path: Path, keys: dict[str, str], says: str
) -> None:
    secret = store.secret(tmp_path / "wrong", **{"AWS_REGION": "eu-test-1", **keys})
    with pytest.raises(Refused, match=says) as raised:
        await bring(claim, "s3://code/team/run/", secret)
    shown = str(raised.value)
    assert "canary" not in shown
    assert store.secret_access_key not in shown
    assert read_marker(claim) is None


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://nobucket/x/", "no such bucket"),
        ("s3://code/none.zip", "no such object"),
        ("s3://code/none/", "no objects below s3://code/none/"),
        ("s3://code/team/run", "neither a folder nor an archive.*End it with '/'"),
    ],
)
async def test_what_is_not_there_is_named(claim: Path, secret: Path, url: str, says: str) -> None:
    with pytest.raises(Refused, match=says):
        await bring(claim, url, secret)


async def test_limits_hold_for_folders_too(claim: Path, secret: Path) -> None:
    with pytest.raises(Refused, match="more than 3 entries"):
        await bring(claim, "s3://code/team/run/", secret, limits=Limits(max_entries=3))
    with pytest.raises(Refused, match="more than 10 bytes"):
        await bring(claim, "s3://code/team/run/", secret, limits=Limits(max_bytes=10))


async def test_unknown_session_token_is_signed_and_refused(store: ObjectStore, claim: Path, tmp_path: Path) -> None:
    secret = store.secret(tmp_path / "token", AWS_REGION="eu-test-1", AWS_SESSION_TOKEN="canary-token")
    with pytest.raises(Refused) as raised:
        await bring(claim, "s3://code/team/run/", secret)
    assert "canary" not in str(raised.value)


async def test_fetch_reports_the_workspace_and_no_credentials(
    store: ObjectStore, claim: Path, secret: Path, tmp_path: Path
) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    options = {
        "source": "s3",
        "url": "s3://code/team/run/",
        "root": claim,
        "secret-dir": secret,
        "termination-log": log,
    }
    command = [sys.executable, "-m", "torchctl", "workspace", "fetch", *(f"--{k}={v}" for k, v in options.items())]
    done = await anyio.run_process(command, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(log.read_text())
    assert (told["source"], told["files"], told["revision"]) == ("s3", len(FILES), told["digest"])
    assert store.secret_access_key.encode() not in done.stdout + done.stderr + log.read_bytes()


async def test_a_large_archive_arrives_unchanged(store: ObjectStore, claim: Path, secret: Path) -> None:
    data = hashlib.shake_256(b"seed").digest(8 * 2**20)
    store.put("code", "large/data.zip", zipped({"data.bin": data}))
    await bring(claim, "s3://code/large/data.zip", secret)
    assert there(claim) == {"data.bin": data}
