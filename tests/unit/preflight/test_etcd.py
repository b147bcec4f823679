"""How etcd is asked, against a server on loopback."""

from aiohttp import web
from anyio.lowlevel import checkpoint

from torchctl.preflight.etcd import Server, check

PIECES = (b'{"action":"get","node":{"key":"/torch/elastic",', b'"dir":true,"modifiedIndex":4,"createdIndex":4}}\n')


async def test_answer_in_pieces_is_read_to_its_end() -> None:
    """Half of a key is no JSON, and would be taken for a server without the v2 API: the end of the job."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/version":
            return web.Response(text='{"etcdserver":"3.4.23","etcdcluster":"3.4.0"}')
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in PIECES:
            await response.write(piece)
            for _ in range(50):  # the client, who lives in the same loop, takes each of them by itself
                await checkpoint()
        return response

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        await check(Server(endpoint=f"127.0.0.1:{runner.addresses[0][1]}"), timeout_s=20)
    finally:
        await runner.cleanup()
