"""Ports and commands of a real pod: the kubelet's and containerd's side of the websockets."""

import hashlib
import json
from io import BytesIO
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from waiting import until

from torchctl.client.portforward import forward_port
from torchctl.runtime.client.channels import Channel, Ended, Output
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import BadRequest, NotFound, StreamFailed
from torchctl.runtime.client.execstream import Command, run_command
from torchctl.testing.node import LocalNode
from torchctl.testing.node.training import IMAGE

POD, NAMESPACE, PORT = "streams", "default", 8081
SIZE = 32 * 2**20

SERVER = f"""
import hashlib, http.server

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_PATCH(self):
        left, digest = int(self.headers["Content-Length"]), hashlib.sha256()
        while left:
            block = self.rfile.read(min(left, 65536))
            digest.update(block)
            left -= len(block)
        self.answer(digest.hexdigest().encode())
    def do_GET(self):
        self.answer(bytes({SIZE}))
    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

http.server.ThreadingHTTPServer(("127.0.0.1", {PORT}), Handler).serve_forever()
"""


PROBE = f"import socket; socket.create_connection(('127.0.0.1', {PORT})).close()"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def pod(node: LocalNode, admin: Client) -> str:
    """A pod with an HTTP server on its loopback interface."""
    container = {"name": "server", "image": IMAGE.name, "command": ["python3", "-c", SERVER]}
    body: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": POD},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }
    await node.control_plane.kubectl("apply", "--filename=-", input=json.dumps(body))
    await node.control_plane.kubectl("wait", f"pod/{POD}", "--for=condition=Ready", "--timeout=60s", timeout_s=70)

    async def listens() -> bool:
        async with run_command(admin, POD, NAMESPACE, ["python3", "-c", PROBE]) as command:
            return (await read(command))[2] == 0

    await until(listens)
    return POD


async def test_an_http_client_reaches_the_pod_s_loopback(pod: str, admin: Client) -> None:
    data = bytes(range(256)) * (SIZE // 256)
    async with forward_port(admin, pod, NAMESPACE, PORT) as forward, aiohttp.ClientSession(forward.url) as session:
        async with session.patch("/", data=BytesIO(data)) as answer:
            assert await answer.text() == hashlib.sha256(data).hexdigest()
        async with session.get("/") as answer:
            assert len(await answer.read()) == SIZE
        assert forward.failure is None


async def test_a_port_on_which_nothing_listens_is_refused(pod: str, admin: Client) -> None:
    async with forward_port(admin, pod, NAMESPACE, 9) as forward, aiohttp.ClientSession(forward.url) as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get("/")
    assert isinstance(forward.failure, StreamFailed)
    assert "refused" in str(forward.failure)


async def test_a_command_reads_its_input_to_the_end(pod: str, admin: Client) -> None:
    script = "read line; cat | wc --bytes; echo $line >&2; exit 42"
    async with run_command(admin, pod, NAMESPACE, ["sh", "-c", script], stdin=True) as command:
        await command.write(b"first\n" + bytes(2**20), 10.0)
        await command.end_input(10.0)
        assert await read(command) == (b"1048576\n", b"first\n", 42)


async def test_a_terminal_has_a_size(pod: str, admin: Client) -> None:
    """The runtime sets the size once the program runs, as a signal tells it: it may have started with none."""
    async with run_command(admin, pod, NAMESPACE, ["sh"], stdin=True, tty=True) as command:
        await command.resize(97, 31, 10.0)
        await command.write(b"until stty size | grep --invert-match '^0 0'; do :; done; exit 3\n", 10.0)
        output, _, code = await read(command)
    assert b"31 97" in output
    assert code == 3


async def test_a_program_that_is_missing_is_named(pod: str, admin: Client) -> None:
    async with run_command(admin, pod, NAMESPACE, ["no-such-program"]) as command:
        with pytest.raises(StreamFailed, match="no-such-program"):
            await read(command)


async def test_pods_and_containers_that_are_missing_are_refused(pod: str, admin: Client) -> None:
    with pytest.raises(NotFound):
        async with run_command(admin, "no-such-pod", NAMESPACE, ["true"]):
            pass
    with pytest.raises(BadRequest, match="no-such-container"):
        async with run_command(admin, pod, NAMESPACE, ["true"], container="no-such-container"):
            pass


async def read(command: Command) -> tuple[bytes, bytes, int]:
    """Returns a command's output, its errors and its exit code."""
    said: dict[Channel, list[bytes]] = {Channel.STDOUT: [], Channel.STDERR: []}
    while isinstance(part := await command.read(30.0), Output):
        said[part.channel].append(part.data)
    assert isinstance(part, Ended)
    return b"".join(said[Channel.STDOUT]), b"".join(said[Channel.STDERR]), part.exit_code
