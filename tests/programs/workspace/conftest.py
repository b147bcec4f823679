"""Real servers for the sources: a web server with TLS that serves files and, through git http-backend, repositories."""

import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from gitserver import git_backend, serving

from torchctl.testing.certificates import Authority

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


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    """A web server on https://localhost: `routes` by path, repositories below /git/."""
    place = tmp_path / "server"
    (place / "repositories").mkdir(parents=True)
    authority = Authority("localhost")
    served = Server("", place / "ca.crt", place / "repositories")
    served.ca.write_bytes(authority.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(served.ca))

    async def handle(request: web.Request) -> web.StreamResponse:
        served.requests.append(request)
        if served.basic and request.headers.get("Authorization") != served.basic:
            return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="test"'})
        if request.path.startswith("/git/"):
            return await git_backend(request, served.repositories, below="/git")
        handler = served.routes.get(request.path)
        return await handler(request) if handler else web.Response(status=404)

    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=serving(place, "localhost", authority))
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
