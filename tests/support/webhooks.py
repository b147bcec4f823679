"""Admission webhooks on the loopback interface: one that answers when the test says so, and one that is down."""

import asyncio
import base64
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
from aiohttp import web
from waiting import until

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import ApiError, NotFound
from torchctl.runtime.kinds import Kind, ObjectMeta
from torchctl.testing.certificates import Authority
from torchctl.testing.namespaces import fresh_name

__all__ = ["Webhook", "closed_port", "registered", "removed", "serving_webhook"]

Rule = tuple[str, str, Sequence[str]]
"""API group, resource and operations."""


class Registration(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


MUTATING = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    Registration,
    namespaced=False,
)
"""Mutating ones are asked one after the other, so that their delays add up; validating ones all at once."""


@dataclass
class Webhook:
    """A webhook that lets everything pass, once it is `open`."""

    url: str = ""
    authority: bytes = b""
    asked: list[str] = field(default_factory=list)
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.Response:
        review = (await request.json())["request"]
        self.asked.append(f"{review['operation']} {review['kind']['kind']} {review['name']}")
        await self.open.wait()
        response = {"uid": review["uid"], "allowed": True}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})


@asynccontextmanager
async def serving_webhook() -> AsyncIterator[Webhook]:
    """A webhook server over TLS, as the API server demands it."""
    authority = Authority()
    webhook = Webhook(authority=authority.certificate)
    runner = web.ServerRunner(web.Server(webhook.answer, handler_cancellation=True), shutdown_timeout=0)  # type: ignore[arg-type]  # it only ever sees web.Request here
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=_context(authority))
    await site.start()
    webhook.url = f"https://127.0.0.1:{runner.addresses[0][1]}/"
    try:
        yield webhook
    finally:
        webhook.open.set()
        await runner.cleanup()


def closed_port() -> str:
    """The URL of a webhook that is down."""
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return f"https://127.0.0.1:{opened.getsockname()[1]}/"


@asynccontextmanager
async def registered(
    admin: Client,
    namespace: str,
    rule: Rule,
    *names: str,
    url: str,
    authority: bytes = b"",
    failure_policy: Literal["Fail", "Ignore"] = "Fail",
    timeout_s: int = 10,
) -> AsyncIterator[str]:
    """Webhooks of these names at one URL, for one namespace; yields the name of their configuration."""
    group, resource, operations = rule
    client_config: dict[str, Any] = {"url": url}
    if authority:
        client_config["caBundle"] = base64.b64encode(authority).decode()
    common = {
        "clientConfig": client_config,
        "rules": [
            {"apiGroups": [group], "apiVersions": ["*"], "resources": [resource], "operations": list(operations)}
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "failurePolicy": failure_policy,
        "timeoutSeconds": timeout_s,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    configuration = fresh_name("webhook")
    body = {
        "apiVersion": MUTATING.api_version,
        "kind": MUTATING.kind,
        "metadata": {"name": configuration},
        "webhooks": [{"name": name, **common} for name in names],
    }
    await admin.create(MUTATING, body)
    try:
        yield configuration
    finally:
        await removed(admin, configuration)


async def removed(admin: Client, configuration: str) -> None:
    with suppress(NotFound):
        await admin.delete(MUTATING, configuration)


async def in_force(admin: Client, kind: Kind[Any], body: dict[str, Any]) -> None:
    """Returns once a dry run of this apply is refused: kube-apiserver hears of a new configuration a moment later."""

    async def refused() -> bool:
        try:
            await admin.apply(kind, body, dry_run=True)
        except ApiError:
            return True
        return False

    await until(refused)


def _context(authority: Authority) -> ssl.SSLContext:
    pair = authority.server(["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as directory:
        certificate, key = Path(directory, "tls.crt"), Path(directory, "tls.key")
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)
        context.load_cert_chain(certificate, key)
    return context
