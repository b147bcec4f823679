"""Admission webhooks on the loopback interface: one that answers when the test says so, and one that is down."""

import asyncio
import base64
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
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
from torchctl.testing.ports import reserve

__all__ = [
    "MUTATING",
    "VALIDATING",
    "Rule",
    "Webhook",
    "closed_port",
    "in_force",
    "issue",
    "registered",
    "serving_webhook",
]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """About what the webhook is asked, within the namespace of the test.

    Attributes:
        starting: Only names that begin so; of cluster-scoped objects it is the only limit.
    """

    group: str
    resource: str
    operations: Sequence[str] = ("CREATE",)
    starting: str = ""


class Registration(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


def _configuration(kind: str) -> Kind[Registration]:
    plural = f"{kind.lower()}s"
    return Kind("admissionregistration.k8s.io", "v1", kind, plural, Registration, namespaced=False)


MUTATING = _configuration("MutatingWebhookConfiguration")
"""They are asked one after the other, so that their delays add up."""
VALIDATING = _configuration("ValidatingWebhookConfiguration")
"""They are asked all at once."""


@dataclass
class Webhook:
    """A webhook that answers once it is `open`: it lets everything pass, or has a `denial`."""

    url: str = ""
    authority: bytes = b""
    denial: str = ""
    asked: list[str] = field(default_factory=list)
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.Response:
        review = (await request.json())["request"]
        self.asked.append(f"{review['operation']} {review['kind']['kind']} {review['name']}")
        await self.open.wait()
        response = {"uid": review["uid"], "allowed": not self.denial, "status": {"message": self.denial}}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})


@asynccontextmanager
async def serving_webhook() -> AsyncIterator[Webhook]:
    """A webhook server over TLS, as the API server demands it."""
    authority = Authority()
    webhook = Webhook(authority=authority.certificate)
    app = web.Application()
    app.router.add_post("/", webhook.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=_context(authority))
    await site.start()
    webhook.url = f"https://127.0.0.1:{runner.addresses[0][1]}/"
    try:
        yield webhook
    finally:
        webhook.open.set()
        await runner.cleanup()


def issue(authority: Authority, directory: Path) -> None:
    """Writes a new certificate, as a mounted Secret changes."""
    pair = authority.server(["127.0.0.1"])
    (directory / "tls.key").write_bytes(pair.key)
    (directory / "tls.crt").write_bytes(pair.certificate)


def closed_port() -> str:
    """The URL of a webhook that is down."""
    with reserve(1) as (port,):
        return f"https://127.0.0.1:{port}/"


@asynccontextmanager
async def registered(
    admin: Client,
    kind: Kind[Registration],
    namespace: str,
    rule: Rule,
    *names: str,
    url: str,
    authority: bytes = b"",
    failure_policy: Literal["Fail", "Ignore"] = "Fail",
    timeout_s: int = 10,
) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Webhooks of these names at one URL; yields what removes them."""
    configuration = fresh_name("webhook")

    async def remove() -> None:
        with suppress(NotFound):
            await admin.delete(kind, configuration)

    client_config = {"url": url} | ({"caBundle": base64.b64encode(authority).decode()} if authority else {})
    scope = {
        "apiGroups": [rule.group],
        "apiVersions": ["*"],
        "resources": [rule.resource],
        "operations": [*rule.operations],
    }
    common = {
        "clientConfig": client_config,
        "rules": [scope],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "matchConditions": [{"name": "mine", "expression": f"request.name.startsWith('{rule.starting}')"}],
        "failurePolicy": failure_policy,
        "timeoutSeconds": timeout_s,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    body = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": configuration},
        "webhooks": [{"name": name, **common} for name in names],
    }
    await admin.create(kind, body)
    try:
        yield remove
    finally:
        await remove()


async def in_force(
    admin: Client, kind: Kind[Any], body: dict[str, Any], *, asked: Callable[[], bool] = lambda: False
) -> None:
    """Returns once a dry run of this apply is refused, or is `asked` about: the API server hears of webhooks late."""

    async def look() -> bool:
        try:
            await admin.apply(kind, body, dry_run=True)
        except ApiError:
            return True
        return asked()

    await until(look)


def _context(authority: Authority) -> ssl.SSLContext:
    pair = authority.server(["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as directory:
        certificate, key = Path(directory, "tls.crt"), Path(directory, "tls.key")
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)
        context.load_cert_chain(certificate, key)
    return context
