"""Serves what an API server once said of its pods: `python -m bench.replay DIRECTORY PORT`.

What a sync costs its client is then measured without what it costs the server, whose share is the same for all.
"""

import sys
from pathlib import Path

from aiohttp import web

from torchctl.api.kube import POD
from torchctl.runtime.client import requests
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.config import Connection
from torchctl.runtime.client.transport import AiohttpTransport

__all__ = ["record"]

PODS = "/api/v1/pods"
CHUNK = 1 << 18
EMPTY = b'{"kind":"LeaseList","apiVersion":"coordination.k8s.io/v1","metadata":{"resourceVersion":"1"},"items":[]}'


async def record(connection: Connection, directory: Path) -> None:
    """Writes `list.json`, the answer to one list of all pods, and `watch.jsonl`, a streaming list of them."""
    async with AiohttpTransport(connection) as transport:
        whole = await transport.send(requests.list_page(POD, limit=0))
        (directory / "list.json").write_bytes(whole.body)
        client = Client(transport)
        async with client.watch(POD, send_initial_events=True) as stream:
            with (directory / "watch.jsonl").open("wb") as log:
                while line := await stream.readline(60.0):
                    log.write(line)
                    if b"initial-events-end" in line:
                        return


def application(directory: Path) -> web.Application:
    listed = (directory / "list.json").read_bytes()
    watched = (directory / "watch.jsonl").read_bytes()

    async def pods(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.Response(body=listed, content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for start in range(0, len(watched), CHUNK):
            await response.write(watched[start : start + CHUNK])
        await request.content.read()
        return response

    async def nothing(request: web.Request) -> web.Response:
        return web.Response(body=EMPTY, content_type="application/json")

    app = web.Application()
    app.router.add_get(PODS, pods)
    app.router.add_get("/{rest:.*}", nothing)
    return app


if __name__ == "__main__":
    web.run_app(
        application(Path(sys.argv[1])),
        host="127.0.0.1",
        port=int(sys.argv[2]),
        print=None,
    )
