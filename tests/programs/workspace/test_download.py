"""Zip workspaces from a real web server."""

import hashlib
import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.lowlevel
import pytest
from aiohttp import ClientResponse, web

from torchctl.workspace.core import Limits
from torchctl.workspace.download import WebServer, download, session, tls
from torchctl.workspace.errors import Refused, Unreachable, WorkspaceError
from torchctl.workspace.fetch import fetch
from torchctl.workspace.marker import Marker, read_marker
from torchctl.workspace.request import FetchRequest
from torchctl.workspace.secret import Secret

if TYPE_CHECKING:
    from .conftest import Server


def _zip(size: int = 300_000) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("train.py", "print('hello')\n")
        file.writestr("data.bin", hashlib.shake_256(b"seed").digest(size))
    return buffer.getvalue()


DATA = _zip()


async def _plain(request: web.Request) -> web.Response:
    return web.Response(body=DATA)


async def _fetch(server: "Server", claim: Path, path: str = "/code.zip", **more: object) -> Marker:
    options: dict[str, object] = {"url": server.url + path, "timeout_s": 30, **more}
    return await fetch(
        FetchRequest(source="zip", root=claim, **options),  # type: ignore[arg-type]  # of a test's choice
        environ={},
    )


async def test_a_zip_arrives_with_its_checksum_as_revision(server: "Server", claim: Path) -> None:
    server.routes["/code.zip"] = _plain
    marker = await _fetch(server, claim)
    assert marker.revision == f"sha256:{hashlib.sha256(DATA).hexdigest()}"
    assert (claim / "train.py").read_text() == "print('hello')\n"
    assert read_marker(claim) == marker
    assert not (claim / ".torchctl-staging").exists()


async def test_a_wrong_checksum_is_refused(server: "Server", claim: Path) -> None:
    server.routes["/code.zip"] = _plain
    with pytest.raises(Refused, match="has the SHA-256"):
        await _fetch(server, claim, revision="0" * 64)
    assert read_marker(claim) is None
    good = await _fetch(server, claim, revision=hashlib.sha256(DATA).hexdigest().upper())
    assert good.files == 2
    assert (await _fetch(server, claim, revision=good.revision)) == good


async def test_a_connection_that_breaks_is_resumed_where_it_broke(server: "Server", claim: Path) -> None:
    async def breaking(request: web.Request) -> web.StreamResponse:
        start = int(request.headers.get("Range", "bytes=0-")[6:-1])
        assert request.headers.get("If-Range", '"v1"') == '"v1"'
        head = {"ETag": '"v1"', "Content-Length": str(len(DATA) - start)}
        response = web.StreamResponse(status=206 if start else 200, headers=head)
        await response.prepare(request)
        await response.write(DATA[start : start + 120_000])
        if start + 120_000 < len(DATA):
            assert request.transport is not None
            request.transport.close()
        return response

    server.routes["/code.zip"] = breaking
    marker = await _fetch(server, claim)
    assert marker.files == 2
    assert len(server.requests) == 3
    assert sum("Range" in request.headers for request in server.requests) == 2


async def test_answer_that_lost_its_end_is_requested_again(server: "Server", claim: Path) -> None:
    """All bytes came, but not the last chunk; a range from there is answered 416."""

    async def unended(request: web.Request) -> web.StreamResponse:
        if "Range" in request.headers:
            return web.Response(status=416)
        response = web.StreamResponse(headers={"ETag": '"v1"'})
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(DATA)
        if len(server.requests) == 1:
            assert request.transport is not None
            request.transport.close()
        return response

    server.routes["/code.zip"] = unended
    assert (await _fetch(server, claim)).files == 2
    assert len(server.requests) == 3


async def test_a_redirect_to_what_is_no_url_is_refused(server: "Server", claim: Path) -> None:
    async def moved(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "https://[nowhere/"})

    server.routes["/code.zip"] = moved
    with pytest.raises(Refused, match="redirects to what is no URL"):
        await _fetch(server, claim)


async def test_the_reason_of_a_refusal_is_read_to_its_end(server: "Server", claim: Path) -> None:
    told = []

    class Store(WebServer):
        def refusal(self, shown: str, response: ClientResponse, body: bytes) -> WorkspaceError:
            told.append(body)
            return super().refusal(shown, response, body)

    async def refusing(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=403)
        await response.prepare(request)
        for piece in (b"<Error><Code>Signature", b"DoesNotMatch</Code></Error>"):
            await response.write(piece)
            for _ in range(50):  # the client, who lives in the same loop, takes each of them by itself
                await anyio.lowlevel.checkpoint()
        return response

    server.routes["/code.zip"] = refusing
    async with session(tls(None)) as http:
        with pytest.raises(Refused):
            await download(http, Store(Secret()), server.url + "/code.zip", claim / "code.zip", max_bytes=2**20)
    assert told == [b"<Error><Code>SignatureDoesNotMatch</Code></Error>"]


async def test_a_busy_server_is_asked_again(server: "Server", claim: Path) -> None:
    async def busy(request: web.Request) -> web.Response:
        server.routes["/code.zip"] = _plain
        return web.Response(status=503)

    server.routes["/code.zip"] = busy
    assert (await _fetch(server, claim)).files == 2


@pytest.mark.parametrize("announced", [True, False])
async def test_a_file_that_is_too_large_is_refused(server: "Server", claim: Path, announced: bool) -> None:
    async def large(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100000000"} if announced else {})
        await response.prepare(request)
        for _ in range(32):  # of which the client, who lives in the same loop, takes half
            await response.write(bytes(65536))
            await anyio.lowlevel.checkpoint()
        return response

    server.routes["/code.zip"] = large
    with pytest.raises(Refused, match="more than 1000000 bytes"):
        await _fetch(server, claim, limits=Limits(max_bytes=1_000_000))


async def test_redirects_go_to_https_only_and_take_no_credentials_along(
    server: "Server", claim: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "password").write_text("token")
    port = server.url.rpartition(":")[2]

    async def moved(request: web.Request) -> web.Response:
        raise web.HTTPFound(f"https://127.0.0.1:{port}/other.zip")

    async def down(request: web.Request) -> web.Response:
        raise web.HTTPFound("http://localhost/code.zip")

    async def within(request: web.Request) -> web.Response:
        raise web.HTTPFound("/code.zip")

    server.routes |= {"/moved": moved, "/down": down, "/within": within, "/code.zip": _plain}
    with pytest.raises(Refused, match="scheme 'http' is not allowed"):
        await _fetch(server, claim, "/down", secret=secret)
    with pytest.raises(Refused, match="certificate"):  # it was followed: the certificate is not for that name
        await _fetch(server, claim, "/moved", secret=secret)
    await _fetch(server, claim, "/within", secret=secret)
    assert all("Authorization" in request.headers for request in server.requests)


@pytest.mark.parametrize(("status", "words"), [(404, "volumes.workspace.url"), (401, "secretRef"), (403, "rights")])
async def test_a_refusal_says_what_to_check(server: "Server", claim: Path, status: int, words: str) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=status)

    server.routes["/code.zip"] = refuse
    with pytest.raises(Refused, match=f"answered {status}.*{words}"):
        await _fetch(server, claim, "/code.zip?X-Signature=canary")


async def test_a_query_is_never_shown(server: "Server", claim: Path) -> None:
    with pytest.raises(Refused) as raised:
        await _fetch(server, claim, "/none.zip?X-Signature=canary")
    assert "canary" not in str(raised.value)


async def test_a_login_page_instead_of_a_zip_is_refused(server: "Server", claim: Path) -> None:
    async def login(request: web.Request) -> web.Response:
        return web.Response(text="<html>sign in</html>", content_type="text/html")

    server.routes["/code.zip"] = login
    with pytest.raises(Refused, match="not a zip file"):
        await _fetch(server, claim)


async def test_a_server_that_is_silent_meets_the_deadline(server: "Server", claim: Path) -> None:
    async def silent(request: web.Request) -> web.Response:
        await request.loop.create_future()
        raise AssertionError

    server.routes["/code.zip"] = silent
    with pytest.raises(Unreachable, match=r"more than 0\.5 s"):
        await _fetch(server, claim, timeout_s=0.5)


async def test_a_name_that_leads_to_a_metadata_service_is_refused(
    server: "Server", claim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.169.254", 443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(Refused, match=r"169\.254\.169\.254 is not allowed"):
        await _fetch(server, claim, url="https://innocent.example.com/code.zip")
