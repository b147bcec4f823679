"""Git repositories over https, served by git's own http-backend."""

import os
import ssl
import subprocess
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from aiohttp import web

from torchctl.testing.certificates import Authority

__all__ = ["commit", "git_backend", "serve", "serving"]


@asynccontextmanager
async def serve(repositories: Path, host: str, authority: Authority) -> AsyncGenerator[str]:
    """Serves the bare repositories of a directory at the URL that it gives, with a certificate of `authority`."""

    async def answer(request: web.Request) -> web.Response:
        return await git_backend(request, repositories)

    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, 0, ssl_context=serving(repositories, host, authority))
        await site.start()
        yield f"https://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def commit(bare: Path, files: Mapping[str, str]) -> str:
    """Makes a bare repository whose branch main has these files; returns the commit's id."""
    work = bare.with_suffix(".work")
    work.mkdir(parents=True)
    for name, text in files.items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    _git(work, "init", "--quiet", "--initial-branch=main")
    _git(work, "add", "--all")
    _git(work, "commit", "--quiet", "--message=Train")
    _git(work, "clone", "--quiet", "--bare", ".", str(bare))
    return _git(work, "rev-parse", "HEAD")


def _git(directory: Path, *arguments: str) -> str:
    identity = {
        f"GIT_{who}_{what}": "tester@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    env = {"PATH": os.environ["PATH"], "HOME": str(directory), "GIT_CONFIG_NOSYSTEM": "1", **identity}
    done = subprocess.run(["git", *arguments], cwd=directory, env=env, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def serving(directory: Path, host: str, authority: Authority) -> ssl.SSLContext:
    """TLS for a server of that name; its certificate and key are written to the directory."""
    pair = authority.server([host])
    certificate, key = directory / "server.crt", directory / "server.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context


async def git_backend(request: web.Request, repositories: Path, below: str = "") -> web.Response:
    """One request to `git http-backend` by CGI, as a web server does it that has the repositories below that path."""
    env = {
        "PATH": os.environ["PATH"],
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
        "GIT_PROJECT_ROOT": str(repositories),
        "GIT_HTTP_EXPORT_ALL": "1",
        "REQUEST_METHOD": request.method,
        "PATH_INFO": request.path.removeprefix(below),
        "QUERY_STRING": request.query_string,
        "CONTENT_TYPE": request.headers.get("Content-Type", ""),
        "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
        "REMOTE_ADDR": request.remote or "",
    }
    # aiohttp has undone Content-Encoding: gzip. What the backend cannot do, it says in its answer.
    done = await anyio.run_process(["git", "http-backend"], input=await request.read(), env=env, check=False)
    head, _, content = done.stdout.partition(b"\r\n\r\n")
    headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
    return web.Response(status=int(headers.pop("Status", "200").split()[0]), headers=headers, body=content)
