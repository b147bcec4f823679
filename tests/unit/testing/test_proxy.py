"""The fault proxy keeps no watch open for a client that is gone."""

import asyncio
import ssl

import aiohttp
from aiohttp import web

from torchctl.runtime.client.config import Connection
from torchctl.testing.proxy import FaultProxy


async def test_a_silent_watch_ends_with_its_client() -> None:
    left = asyncio.Event()

    async def watch(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"{}\n")
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        return response

    server = web.ServerRunner(web.Server(watch, handler_cancellation=True), shutdown_timeout=0.1)
    await server.setup()
    await web.TCPSite(server, "127.0.0.1", 0).start()
    try:
        async with FaultProxy(Connection(f"http://127.0.0.1:{server.addresses[0][1]}")) as proxy:
            trusted = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=proxy.ca))
            async with aiohttp.ClientSession(connector=trusted) as client:
                async with client.get(f"{proxy.host}/api/v1/pods?watch=true") as answer:
                    assert await answer.content.readline() == b"{}\n"
                await asyncio.wait_for(left.wait(), 30)
    finally:
        await server.cleanup()
