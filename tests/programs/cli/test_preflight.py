"""`torchctl preflight etcd` as a process, against servers on loopback: exit status and termination message."""

import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import anyio
import pytest
import pytest_asyncio
from aiohttp import web

from torchctl.testing.certificates import Authority, Pair
from torchctl.testing.ports import reserve

V34 = '{"etcdserver":"3.4.23","etcdcluster":"3.4.0"}'
NO_KEY = '{"errorCode":100,"message":"Key not found","cause":"/torch","index":3}'


class Etcd:
    """A server that answers as etcd does, at first with other answers. `asked` are the paths that it was asked for."""

    def __init__(self) -> None:
        self.first: list[int] = []
        self.v2 = True
        self.asked: list[str] = []
        self.was_asked = anyio.Event()
        self.endpoint = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path_qs)
        self.was_asked.set()
        if self.first:
            return web.Response(status=self.first.pop(0))
        if request.path == "/version":
            return web.Response(text=V34)
        return web.Response(status=404, text=NO_KEY if self.v2 else "404 page not found\n")


Serve = Callable[..., Awaitable[Etcd]]


@pytest_asyncio.fixture(loop_scope="session")
async def serve() -> AsyncGenerator[Serve]:
    runners: list[web.AppRunner] = []

    async def start(context: ssl.SSLContext | None = None) -> Etcd:
        etcd, app = Etcd(), web.Application()
        app.router.add_route("*", "/{path:.*}", etcd.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        runners.append(runner)
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        etcd.endpoint = f"127.0.0.1:{runner.addresses[0][1]}"
        return etcd

    yield start
    for runner in runners:
        await runner.cleanup()


def command(log: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "torchctl", "preflight", "etcd", *arguments, f"--termination-log={log}"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "termination-log"
    path.touch()
    return path


async def ask(log: Path, endpoint: str, *arguments: str, timeout_s: float = 20) -> tuple[int, str]:
    """Exit status and termination message."""
    words = command(log, f"--endpoint={endpoint}", f"--timeout={timeout_s}", *arguments)
    done = await anyio.run_process(words, check=False)
    said = await anyio.Path(log).read_text()
    assert (done.stdout.decode(), done.stderr.decode().strip()) == ("", said)
    return done.returncode, said


async def test_a_server_with_the_v2_api_lets_the_worker_start(serve: Serve, log: Path) -> None:
    etcd = await serve()
    assert await ask(log, etcd.endpoint) == (0, "")
    assert etcd.asked == ["/version", "/v2/keys/torch/elastic?quorum=true"]


async def test_server_without_the_v2_api_is_exit_status_69(serve: Serve, log: Path) -> None:
    """The message names the server, the flag that is missing and the alternative."""
    etcd = await serve()
    etcd.v2 = False
    status, said = await ask(log, etcd.endpoint)
    assert status == 69
    assert said == (
        f"preflight: etcd 3.4.23 at {etcd.endpoint} answers, but its v2 API is off. "
        "Start it with --enable-v2 (etcd 3.4 or 3.5), or use rdzvBackend c10d"
    )


async def test_a_server_that_is_not_ready_yet_is_asked_again(serve: Serve, log: Path) -> None:
    etcd = await serve()
    etcd.first = [503, 503, 200, 500]
    assert await ask(log, etcd.endpoint) == (0, "")
    assert len(etcd.asked) == 6


@pytest.mark.parametrize("trouble", ["", "--protocol=https"])
async def test_nobody_within_the_time_is_status_75(trouble: str, log: Path) -> None:
    with reserve(1) as (port,):
        status, said = await ask(log, f"127.0.0.1:{port}", *filter(None, [trouble]), timeout_s=0.3)
    assert status == 75
    assert said.startswith(f"preflight: etcd at 127.0.0.1:{port} cannot be used after 0.3 s: ")
    assert "Connect call failed" in said
    assert "network policies" in said


async def test_another_server_is_status_76(serve: Serve, log: Path) -> None:
    etcd = await serve()
    etcd.first = [404, 404]
    status, said = await ask(log, etcd.endpoint)
    assert (status, said.split(". ")[0]) == (76, f"preflight: what answers at {etcd.endpoint} is not etcd")


def written(directory: Path, name: str, pair: Pair) -> tuple[Path, Path]:
    certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    return certificate, key


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def context(tmp_path: Path, authority: Authority) -> ssl.SSLContext:
    """Of a server that wants a client's certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.certificate.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(*written(tmp_path, "server", authority.server(["127.0.0.1"])))
    return context


async def test_tls_with_certificates_as_torchrun_has_them(
    serve: Serve, context: ssl.SSLContext, authority: Authority, tmp_path: Path, log: Path
) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_bytes(authority.certificate)
    certificate, key = written(tmp_path, "client", authority.client("trainer"))
    etcd = await serve(context)
    mutual = (f"--certificate={certificate}", f"--key={key}")
    assert await ask(log, etcd.endpoint, "--protocol=https", f"--ca={ca}", *mutual) == (0, "")
    assert await ask(log, etcd.endpoint, "--protocol=https", *mutual) == (0, ""), "not verified without an authority"


async def test_a_certificate_of_another_authority_is_told(
    serve: Serve, context: ssl.SSLContext, tmp_path: Path, log: Path
) -> None:
    other = tmp_path / "other.crt"
    other.write_bytes(Authority().certificate)
    etcd = await serve(context)
    status, said = await ask(log, etcd.endpoint, "--protocol=https", f"--ca={other}")
    assert status == 76
    assert "certificate verify failed" in said
    assert etcd.asked == []


async def test_a_file_that_is_not_there_is_named(serve: Serve, log: Path) -> None:
    status, said = await ask(log, "127.0.0.1:1", "--protocol=https", "--ca=/etcd/none.crt")
    assert status == 76
    assert "one of /etcd/none.crt" in said


@pytest.mark.parametrize("endpoint", ["etcd", "http://etcd:2379", "-x:1", "a b:1", "etcd:2379/v2"])
def test_an_endpoint_that_is_none_is_refused(endpoint: str, log: Path) -> None:
    done = subprocess.run(command(log, f"--endpoint={endpoint}"), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "host:port" in done.stderr


async def test_sigterm_ends_it_with_a_word(serve: Serve, log: Path) -> None:
    etcd = await serve()
    etcd.first = [503] * 1000
    async with await anyio.open_process(command(log, f"--endpoint={etcd.endpoint}")) as process:
        await etcd.was_asked.wait()
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 143
    assert await anyio.Path(log).read_text() == "preflight: stopped by SIGTERM"
