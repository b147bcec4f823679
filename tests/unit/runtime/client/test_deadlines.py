"""Which deadline each request has, and what the settings of deadlines refuse."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from shelves import Silence

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.exchange import Gate, HttpResponse, LineStream
from torchctl.runtime.client.requests import HttpRequest
from torchctl.runtime.kinds import LEASE
from torchctl.runtime.settings import ClientSettings, ElectionSettings, RuntimeSettings

SETTINGS = ClientSettings(read_timeout_s=1.0, list_timeout_s=2.0, write_timeout_s=3.0)
BODY = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a", "namespace": "ns"}}


class Noting:
    """A transport that notes deadlines."""

    def __init__(self) -> None:
        self.deadlines: list[float] = []

    async def send(self, request: HttpRequest, gate: Gate | None = None) -> HttpResponse:
        self.deadlines.append(request.timeout_s)
        return HttpResponse(200, {}, b'{"metadata": {"name": "a"}, "items": []}')

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[LineStream]:
        self.deadlines.append(request.timeout_s)
        yield Silence()


async def watch(client: Client) -> None:
    async with client.watch(LEASE):
        pass


REQUESTS: dict[str, tuple[float, Callable[[Client], Awaitable[Any]]]] = {
    "get": (1.0, lambda client: client.get(LEASE, "a", "ns")),
    "list": (2.0, lambda client: client.list(LEASE)),
    "list_page": (2.0, lambda client: client.list_page(LEASE)),
    "watch": (2.0, watch),
    "log": (2.0, lambda client: client.pod_log("a", "ns")),
    "create": (3.0, lambda client: client.create(LEASE, BODY)),
    "apply": (3.0, lambda client: client.apply(LEASE, BODY)),
    "merge_patch": (3.0, lambda client: client.merge_patch(LEASE, "a", {}, namespace="ns")),
    "replace": (3.0, lambda client: client.replace(LEASE, BODY)),
    "delete": (3.0, lambda client: client.delete(LEASE, "a", namespace="ns")),
}


@pytest.mark.parametrize("verb", REQUESTS)
async def test_each_request_has_the_deadline_of_its_kind(verb: str) -> None:
    transport = Noting()
    expected, send = REQUESTS[verb]
    for client in (Client(transport, settings=SETTINGS), Client(transport, settings=SETTINGS).unfenced()):
        await send(client)
    assert transport.deadlines == [expected, expected]


def test_write_outlasts_the_api_servers_own_limit() -> None:
    """kube-apiserver gives a request up after 60 s; its answer says more than a deadline of ours."""
    assert ClientSettings().write_timeout_s > 60


def test_two_slow_writes_fit_into_a_reconcile() -> None:
    settings = RuntimeSettings()
    assert 2 * settings.client.write_timeout_s < settings.reconcile_timeout_s


def test_requests_for_the_lease_stay_within_the_renew_deadline() -> None:
    assert 2 * ElectionSettings().request_timeout_s <= ElectionSettings().renew_deadline_s


@pytest.mark.parametrize("name", ["read_timeout_s", "list_timeout_s", "write_timeout_s", "connect_timeout_s"])
def test_deadline_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        replace(ClientSettings(), **{name: 0.0})  # type: ignore[arg-type]  # only names of deadlines


def test_reconcile_without_time_for_a_write_is_refused() -> None:
    with pytest.raises(ValueError, match="reconcile_timeout_s must exceed"):
        RuntimeSettings(reconcile_timeout_s=60.0)
