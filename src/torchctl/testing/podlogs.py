"""Serves the logs and ports of pods as a kubelet does: the API server calls it for `kubectl logs` and its like."""

import ssl
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from torchctl.runtime.kinds import Key
from torchctl.testing.certificates import Authority
from torchctl.testing.logfiles import LogFiles
from torchctl.testing.podstreams import PodPorts

__all__ = ["serve_logs"]

HOST = "127.0.0.1"


@asynccontextmanager
async def serve_logs(
    log_of: Callable[[Key], str | None], ports: PodPorts | None = None, files: LogFiles | None = None
) -> AsyncGenerator[int]:
    """Serves logs and ports over HTTPS with a certificate that is not verified; yields the port.

    Args:
        log_of: Returns the log of a pod that has no file; None if there is no such pod.
        ports: The ports on which pods listen.
        files: The logs that are written while they are read.
    """

    async def answer(request: web.Request) -> web.StreamResponse:
        key = Key(request.match_info["namespace"], request.match_info["pod"])
        file = files.find(key) if files is not None else None
        if file is not None:
            return await file.answer(request)
        text = log_of(key)
        if text is None:
            raise web.HTTPNotFound(text="no such pod on this node")
        return web.Response(text=text)

    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", answer)
    app.router.add_route("*", "/portForward/{namespace}/{pod}", (ports or PodPorts()).serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, 0, ssl_context=_context()).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _context() -> ssl.SSLContext:
    pair = Authority("scripted-kubelet").server([HOST])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(pair.certificate + pair.key)
        file.flush()
        context.load_cert_chain(file.name)
    return context
