"""TLS with a certificate authority of our own, and its rotation while the program runs."""

import asyncio
import ssl
import weakref
from asyncio import sslproto
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.errors import Unavailable
from torchctl.runtime.client.requests import HttpRequest
from torchctl.runtime.client.sockets import TLS_BUFFER, bound_tls_buffers
from torchctl.runtime.client.tls import TlsContexts, TlsFiles
from torchctl.runtime.client.transport import AiohttpTransport
from torchctl.runtime.settings import ClientSettings
from torchctl.testing.certificates import Authority
from torchctl.testing.clock import ManualClock

GET = HttpRequest("GET", "/", "get")
WRITE = HttpRequest("POST", "/", "create", body=b"{}")


@asynccontextmanager
async def serving(
    directory: Path, authority: Authority, name: str = "127.0.0.1", *, port: int = 0, mutual: bool = False
) -> AsyncGenerator[int]:
    """An HTTPS server that says who its client is; yields its port."""
    pair = authority.server([name])
    (directory / "server.pem").write_bytes(pair.certificate + pair.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(directory / "server.pem")
    if mutual:
        context.load_verify_locations(cadata=authority.certificate.decode())
        context.verify_mode = ssl.CERT_REQUIRED

    async def handler(request: web.BaseRequest) -> web.Response:
        peer = request.transport.get_extra_info("peercert") if request.transport else None
        names = [value for entry in (peer or {}).get("subject", ()) for key, value in entry if key == "commonName"]
        response = web.Response(text=",".join(names))
        response.force_close()
        return response

    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def trusting(directory: Path, authority: Authority) -> TlsFiles:
    (directory / "ca.crt").write_bytes(authority.certificate)
    return TlsFiles(ca=str(directory / "ca.crt"))


async def test_a_server_of_the_right_authority_is_believed(tmp_path: Path) -> None:
    authority = Authority()
    async with serving(tmp_path, authority) as port:
        connection = Connection(f"https://127.0.0.1:{port}", trusting(tmp_path, authority))
        async with AiohttpTransport(connection) as transport:
            assert (await transport.send(GET)).status == 200


@pytest.mark.parametrize("bound", [True, False])
async def test_only_a_bound_process_reserves_two_records(tmp_path: Path, bound: bool) -> None:
    """The setting is the whole process's, so a client in somebody's program leaves it alone."""
    authority, ends = Authority(), weakref.WeakSet[sslproto.SSLProtocol]()
    reserved = 5 * TLS_BUFFER
    made = sslproto.SSLProtocol.__init__

    def noted(self: sslproto.SSLProtocol, *args: Any, **options: Any) -> None:
        ends.add(self)
        made(self, *args, **options)

    async with serving(tmp_path, authority) as port:
        connection = Connection(f"https://127.0.0.1:{port}", trusting(tmp_path, authority))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sslproto.SSLProtocol, "__init__", noted)
            patch.setattr(sslproto.SSLProtocol, "max_size", reserved)
            if bound:
                bound_tls_buffers()
            async with AiohttpTransport(connection) as transport:
                await transport.send(GET)
                # asyncio tells the size of its buffer in no public way, nor do its types name this one.
                assert [len(vars(end)["_ssl_buffer"]) for end in ends] == [TLS_BUFFER if bound else reserved] * 2


async def test_a_server_that_never_answers_the_handshake_is_given_up(tmp_path: Path) -> None:
    """Long before the request's own deadline: TLS counts as part of the connect."""
    accepted: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: accepted.append(writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connection = Connection(f"https://127.0.0.1:{port}", trusting(tmp_path, Authority()))
    async with AiohttpTransport(connection, settings=ClientSettings(connect_timeout_s=0.2)) as transport:
        with pytest.raises(Unavailable) as given_up:
            await transport.send(replace(WRITE, timeout_s=3600))
    assert accepted
    assert not given_up.value.outcome_unknown
    for writer in accepted:
        writer.close()
    server.close()


async def test_certificate_without_key_identifiers_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.13 refuses it by default. Many clusters have such certificates, and Go's clients take them."""
    make = ssl.create_default_context

    def strict(*args: Any, **options: Any) -> ssl.SSLContext:
        context = make(*args, **options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    authority = Authority(identified=False)
    monkeypatch.setattr(ssl, "create_default_context", strict)
    async with serving(tmp_path, authority) as port:
        connection = Connection(f"https://127.0.0.1:{port}", trusting(tmp_path, authority))
        async with AiohttpTransport(connection) as transport:
            assert (await transport.send(GET)).status == 200


async def test_another_authority_s_server_gets_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path, Authority()) as port:
        connection = Connection(f"https://127.0.0.1:{port}", trusting(tmp_path, Authority()))
        async with AiohttpTransport(connection) as transport:
            with pytest.raises(Unavailable, match="certificate") as raised:
                await transport.send(WRITE)
    assert not raised.value.outcome_unknown


async def test_certificate_of_another_name_needs_tls_server_name(tmp_path: Path) -> None:
    authority = Authority()
    files = trusting(tmp_path, authority)
    named = TlsFiles(ca=files.ca, server_name="api.internal")
    async with serving(tmp_path, authority, "api.internal") as port:
        async with AiohttpTransport(Connection(f"https://127.0.0.1:{port}", files)) as transport:
            with pytest.raises(Unavailable):
                await transport.send(GET)
        async with AiohttpTransport(Connection(f"https://127.0.0.1:{port}", named)) as transport:
            assert (await transport.send(GET)).status == 200


async def test_an_unverified_connection_takes_any_server(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, Authority()) as port,
        AiohttpTransport(Connection(f"https://127.0.0.1:{port}", TlsFiles(verify=False))) as transport,
    ):
        assert (await transport.send(GET)).status == 200


async def test_rotated_authority_is_found_after_one_failed_handshake(tmp_path: Path) -> None:
    """No restart, no wait for the next look at the files, and a write is sent exactly once."""
    old, new = Authority("old"), Authority("new")
    files = trusting(tmp_path, old)
    async with serving(tmp_path, old) as port:
        transport = await AiohttpTransport(Connection(f"https://127.0.0.1:{port}", files)).__aenter__()
        assert (await transport.send(GET)).status == 200
    try:
        async with serving(tmp_path, new, port=port):
            with pytest.raises(Unavailable, match="certificate"):
                await transport.send(WRITE)
            trusting(tmp_path, new)
            assert (await transport.send(WRITE)).status == 200
    finally:
        await transport.__aexit__(None, None, None)


async def test_rotated_client_certificate_is_used_after_the_next_check(tmp_path: Path) -> None:
    authority, clock = Authority(), ManualClock()
    ca = trusting(tmp_path, authority).ca
    certificate, key = tmp_path / "client.crt", tmp_path / "client.key"

    def issue(user: str) -> None:
        pair = authority.client(user)
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)

    issue("one")
    files = TlsFiles(ca=ca, certificate=str(certificate), key=str(key))
    async with (
        serving(tmp_path, authority, mutual=True) as port,
        AiohttpTransport(Connection(f"https://127.0.0.1:{port}", files), clock=clock) as transport,
    ):
        assert (await transport.send(GET)).body == b"one"
        issue("two")
        assert (await transport.send(GET)).body == b"one"
        clock.seconds += 10
        assert (await transport.send(GET)).body == b"two"


def test_unchanged_files_keep_the_context_and_changed_ones_replace_it(tmp_path: Path) -> None:
    clock, files = ManualClock(), trusting(tmp_path, Authority())
    contexts = TlsContexts(clock)
    first = contexts.current(files)
    clock.seconds += 100
    assert contexts.current(files) is first
    trusting(tmp_path, Authority())
    assert contexts.current(files) is first
    clock.seconds += 10
    assert contexts.current(files) is not first


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN CERTIFICATE-----\nhalf"])
def test_half_written_file_leaves_the_old_tls_context(tmp_path: Path, content: bytes | None) -> None:
    files, contexts = trusting(tmp_path, Authority()), TlsContexts(ManualClock())
    first = contexts.current(files)
    path = tmp_path / "ca.crt"
    path.unlink() if content is None else path.write_bytes(content)
    assert contexts.current(files, check=True) is first
    trusting(tmp_path, Authority())
    assert contexts.current(files, check=True) is not first


def test_at_the_start_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing"):
        TlsContexts(ManualClock()).current(TlsFiles(ca=str(tmp_path / "missing")))
