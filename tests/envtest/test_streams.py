"""Streams of pods through a real API server: the rights that they ask for, refusals, cuts on the node's side."""

import json
from io import BytesIO

import aiohttp
import pytest
from aiohttp import web

from torchctl.client.portforward import forward_port
from torchctl.runtime.client.client import Client, connect
from torchctl.runtime.client.errors import Forbidden, NotFound, Unavailable
from torchctl.runtime.client.portforward import connect_port
from torchctl.runtime.kinds import Key
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubelet import ScriptedKubelet

PORT = 8081


async def length(request: web.Request) -> web.Response:
    return web.Response(text=str(len(await request.read())))


@pytest.fixture
async def pod(control_plane: ControlPlane, kubelet: ScriptedKubelet, namespace: str) -> Key:
    """A pod on a node."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "listens", "namespace": namespace},
        "spec": {"containers": [{"name": "trainer", "image": "train:1"}]},
    }
    await control_plane.kubectl("create", "--filename=-", input=json.dumps(body))
    options = ("--for=jsonpath={.spec.nodeName}", "--timeout=30s", f"--namespace={namespace}")
    await control_plane.kubectl("wait", "pod/listens", *options)
    return Key(namespace, "listens")


@pytest.mark.parametrize("size", [2**22, 2**20], ids=["while-sending", "when-all-is-sent"])
async def test_an_upload_through_the_api_server_survives_a_cut(
    admin: Client, kubelet: ScriptedKubelet, pod: Key, size: int
) -> None:
    """Also of an upload that only waits for its answer: an API server tells a silent client of no cut."""
    app = web.Application(client_max_size=2**26)
    app.router.add_patch("/", length)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    kubelet.ports.open[pod, PORT] = runner.addresses[0][1]
    kubelet.ports.cut_after.append(2**20)
    async with (
        forward_port(admin, pod.name, pod.namespace, PORT) as forward,
        aiohttp.ClientSession(forward.url, timeout=aiohttp.ClientTimeout(total=60)) as session,
    ):
        with pytest.raises(aiohttp.ClientConnectionError) as found:
            await session.patch("/", data=BytesIO(bytes(size)))
        assert not isinstance(found.value, TimeoutError)
        assert isinstance(forward.failure, Unavailable)
        async with session.patch("/", data=BytesIO(bytes(size))) as answer:
            assert await answer.text() == str(size)
    await runner.cleanup()


async def test_documented_verbs_suffice_to_forward_a_port(
    control_plane: ControlPlane, kubelet: ScriptedKubelet, pod: Key
) -> None:
    for user, verbs in (("nobody", ""), ("submitter", "get,create")):
        if verbs:
            await grant(control_plane, pod.namespace, user, verbs)
        async with connect(control_plane.connection(user)) as client:
            if not verbs:
                with pytest.raises(Forbidden, match="pods/portforward"):
                    await reach(client, pod)
            else:
                await reach(client, pod)


async def test_a_pod_that_does_not_exist_is_not_found(admin: Client, namespace: str) -> None:
    with pytest.raises(NotFound, match="no-such-pod"):
        await reach(admin, Key(namespace, "no-such-pod"))


async def reach(client: Client, pod: Key) -> None:
    async with connect_port(client, pod.name, pod.namespace, PORT):
        pass


async def grant(control_plane: ControlPlane, namespace: str, user: str, verbs: str) -> None:
    where = f"--namespace={namespace}"
    await control_plane.kubectl(
        "create", "role", user, f"--verb={verbs}", "--resource=pods/portforward,pods/exec", where
    )
    await control_plane.kubectl("create", "rolebinding", user, f"--role={user}", f"--user={user}", where)
