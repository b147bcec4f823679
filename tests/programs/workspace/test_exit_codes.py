"""The exit status of a failed fetch: 75 if the source may be there later, 1 if somebody has to change something."""

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from torchctl.workspace import gitcommand
from torchctl.workspace.errors import WorkspaceError
from torchctl.workspace.fetch import fetch
from torchctl.workspace.program import run
from torchctl.workspace.request import FetchRequest
from torchctl.workspace.urls import Redactor

if TYPE_CHECKING:
    from .conftest import Server

REFUSED, UNEXPLAINED, UNREACHABLE = 1, 70, 75
PATHS = {"git": "/code.git", "zip": "/code.zip", "s3": "/data/code.zip"}
ANSWERS = [
    *((status, REFUSED) for status in (400, 401, 403, 404, 410)),
    *((status, UNREACHABLE) for status in (429, 500, 502, 503, 504, 520)),
]


@pytest.fixture(autouse=True)
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked again within a fetch, which takes seconds."""
    monkeypatch.setattr("torchctl.workspace.download._TRIES", 1)
    monkeypatch.setattr("torchctl.workspace.git._TRIES", 1)


async def exit_code(source: str, base: str, claim: Path, tmp_path: Path, server: "Server", revision: str = "") -> int:
    """What a fetch from a server ends with; 0 if it does not fail."""
    url, secret = base + PATHS[source], tmp_path / "secret"
    secret.mkdir()
    (secret / "ca.crt").write_bytes(server.ca.read_bytes())
    if source == "s3":
        url = "s3://data/code.zip"
        (secret / "AWS_ENDPOINT_URL").write_text(base)
    request = FetchRequest(source=source, root=claim, url=url, secret=secret, revision=revision, timeout_s=30)
    try:
        await fetch(request, environ=server.environ)
    except WorkspaceError as error:
        return error.exit_code
    return 0


@pytest.mark.parametrize("source", PATHS)
@pytest.mark.parametrize(("status", "code"), ANSWERS)
async def test_http_status_decides_if_a_retry_can_help(
    server: "Server", claim: Path, tmp_path: Path, source: str, status: int, code: int
) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status)

    path = PATHS[source]
    server.routes[f"{path}/info/refs" if source == "git" else path] = answer
    assert await exit_code(source, server.url, claim, tmp_path, server) == code


@pytest.mark.parametrize("source", PATHS)
async def test_a_name_that_does_not_resolve_may_do_so_later(
    server: "Server", claim: Path, tmp_path: Path, source: str
) -> None:
    assert await exit_code(source, "https://nowhere.invalid", claim, tmp_path, server) == UNREACHABLE


@pytest.mark.parametrize("source", PATHS)
async def test_a_port_on_which_nobody_listens_may_be_open_later(
    server: "Server", claim: Path, tmp_path: Path, source: str
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        base = f"https://localhost:{free.getsockname()[1]}"
        assert await exit_code(source, base, claim, tmp_path, server) == UNREACHABLE


@pytest.mark.parametrize("source", PATHS)
async def test_a_server_that_hangs_up_may_answer_later(
    server: "Server", claim: Path, tmp_path: Path, source: str
) -> None:
    async def hang_up(request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    path = PATHS[source]
    server.routes[f"{path}/info/refs" if source == "git" else path] = hang_up
    assert await exit_code(source, server.url, claim, tmp_path, server) == UNREACHABLE


@pytest.mark.parametrize("source", ["zip", "s3"])
async def test_content_with_another_digest_is_refused(
    server: "Server", claim: Path, tmp_path: Path, source: str
) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=b"PK")

    server.routes[PATHS[source]] = answer
    assert await exit_code(source, server.url, claim, tmp_path, server, revision="sha256:" + "0" * 64) == REFUSED


@pytest.mark.parametrize(
    ("said", "code"),
    [
        # As git, curl (with OpenSSL or GnuTLS) and ssh word it.
        ("fatal: unable to access 'U': Could not resolve host: h (Domain name not found)", UNREACHABLE),
        ("fatal: unable to access 'U': Failed to connect to h port 443 after 1 ms: Couldn't connect", UNREACHABLE),
        ("fatal: unable to access 'U': Empty reply from server", UNREACHABLE),
        ("fatal: unable to access 'U': OpenSSL SSL_connect: SSL_ERROR_SYSCALL in connection to h:443", UNREACHABLE),
        ("fatal: unable to access 'U': OpenSSL SSL_read: Connection reset by peer, errno 104", UNREACHABLE),
        ("fatal: unable to access 'U': OpenSSL SSL_read: error:0A000126:SSL routines::unexpected eof", UNREACHABLE),
        ("fatal: unable to access 'U': gnutls_handshake() failed: The TLS connection was non-properly", UNREACHABLE),
        ("fatal: unable to access 'U': GnuTLS recv error (-110): The TLS connection was non-properly", UNREACHABLE),
        ("fatal: unable to access 'U': Received HTTP code 503 from proxy after CONNECT", UNREACHABLE),
        ("fatal: unable to access 'U': CONNECT tunnel failed, response 502", UNREACHABLE),
        ("fatal: unable to access 'U': The requested URL returned error: 429", UNREACHABLE),
        ("error: RPC failed; curl 92 HTTP/2 stream 5 was not closed cleanly: CANCEL (err 8)", UNREACHABLE),
        ("fetch-pack: unexpected disconnect while reading sideband packet\nfatal: early EOF", UNREACHABLE),
        ("ssh: connect to host h port 22: No route to host\nfatal: Could not read from remote", UNREACHABLE),
        ("ssh: connect to host h port 22: Network is unreachable", UNREACHABLE),
        ("ssh: Could not resolve hostname h: Name or service not known", UNREACHABLE),
        ("kex_exchange_identification: Connection closed by remote host", UNREACHABLE),
        ("fatal: unable to access 'U': SSL certificate problem: self-signed certificate", REFUSED),
        ("fatal: unable to access 'U': server certificate verification failed. CAfile: none", REFUSED),
        ("fatal: Authentication failed for 'U'", REFUSED),
        ("fatal: write error: No space left on device", REFUSED),
        ("remote: Repository not found.\nfatal: repository 'U' not found", REFUSED),
        ("git@h: Permission denied (publickey).\nfatal: Could not read from remote repository.", REFUSED),
        ("FATAL: R any team/code me DENIED by fallthru\nfatal: The remote end hung up unexpectedly", UNEXPLAINED),
        ("fatal: unable to access 'U': CONNECT tunnel failed, response 407", UNEXPLAINED),
        ("fatal: something that no version has said so far", UNEXPLAINED),
    ],
)
def test_what_git_says_is_known_or_left_unexplained(said: str, code: int) -> None:
    url = "https://h/team/code.git"
    assert gitcommand.explain(said.replace("U", url), url, url).exit_code == code


def test_a_fault_of_our_own_program_is_no_refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "termination-log"
    log.touch()

    async def broken() -> None:
        raise KeyError("size")

    assert run("fetch", broken, termination_log=log, redact=Redactor(["size"])) == UNEXPLAINED
    assert log.read_text().startswith("fetch: KeyError")
    assert "Traceback" in capsys.readouterr().err
