"""Real servers for the sources: a web server with TLS that serves files and, through git http-backend, repositories."""

import asyncio
import datetime
import os
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Server:
    """What a test sees of the server: its URL, its authority, what was asked of it, and what it answers."""

    url: str
    ca: Path
    repositories: Path
    routes: dict[str, Handler] = field(default_factory=dict)
    requests: list[web.BaseRequest] = field(default_factory=list)
    basic: str = ""

    @property
    def environ(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "GIT_SSL_CAINFO": str(self.ca)}


def _authority(directory: Path) -> tuple[Path, Path]:
    """A self-signed certificate of localhost that is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    ca, private = directory / "ca.crt", directory / "key.pem"
    ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return ca, private


async def _git_backend(request: web.Request, repositories: Path) -> web.Response:
    """One request to `git http-backend` by CGI, as a web server does it."""
    env = {
        "PATH": os.environ["PATH"],
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
        "GIT_PROJECT_ROOT": str(repositories),
        "GIT_HTTP_EXPORT_ALL": "1",
        "REQUEST_METHOD": request.method,
        "PATH_INFO": request.path.removeprefix("/git"),
        "QUERY_STRING": request.query_string,
        "CONTENT_TYPE": request.headers.get("Content-Type", ""),
        "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
        "REMOTE_ADDR": "127.0.0.1",
    }
    body = await request.read()  # aiohttp has undone Content-Encoding: gzip
    process = await asyncio.create_subprocess_exec(
        "git", "http-backend", stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    )
    output, _ = await process.communicate(body)
    head, _, content = output.partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
    return web.Response(status=int(headers.pop("Status", "200").split()[0]), headers=headers, body=content)


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    """A web server on https://localhost: `routes` by path, repositories below /git/."""
    place = tmp_path / "server"
    (place / "repositories").mkdir(parents=True)
    ca, key = _authority(place)
    served = Server("", ca, place / "repositories")
    monkeypatch.setenv("SSL_CERT_FILE", str(ca))

    async def handle(request: web.Request) -> web.StreamResponse:
        served.requests.append(request)
        if served.basic and request.headers.get("Authorization") != served.basic:
            return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="test"'})
        if request.path.startswith("/git/"):
            return await _git_backend(request, served.repositories)
        handler = served.routes.get(request.path)
        return await handler(request) if handler else web.Response(status=404)

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(ca, key)
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    served.url = f"https://localhost:{runner.addresses[0][1]}"
    yield served
    await runner.cleanup()


@dataclass
class Repository:
    """A bare repository that is served, and the work tree that is pushed to it."""

    bare: Path
    work: Path

    def git(self, *arguments: str) -> str:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.work),
            "GIT_CONFIG_NOSYSTEM": "1",
            **{
                f"GIT_{who}_{what}": "tester@example.com"
                for who in ("AUTHOR", "COMMITTER")
                for what in ("NAME", "EMAIL")
            },
        }
        done = subprocess.run(["git", *arguments], cwd=self.work, env=env, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self, files: dict[str, str]) -> str:
        for name, text in files.items():
            path = self.work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=change")
        self.git("push", "--quiet", "origin", "HEAD:refs/heads/main")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(server: Server, tmp_path: Path) -> Repository:
    """`<server>/git/team/code.git`, with one commit on main."""
    bare, work = server.repositories / "team" / "code.git", tmp_path / "work"
    work.mkdir()
    made = Repository(bare, work)
    made.git("init", "--quiet", "--bare", "--initial-branch=main", str(bare))
    made.git("init", "--quiet", "--initial-branch=main", ".")
    made.git("remote", "add", "origin", str(bare))
    made.commit({"train.py": "print('hello')\n", ".hidden/settings": "x=1\n"})
    return made


@pytest.fixture
def claim(tmp_path: Path) -> Path:
    """A mounted claim, with the directory that mkfs.ext4 leaves in it."""
    root = tmp_path / "claim"
    (root / "lost+found").mkdir(parents=True)
    return root
