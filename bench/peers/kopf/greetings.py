"""The peer in kopf: for each Greeting one ConfigMap and one status, both by server-side apply.

kopf has no server-side apply, so requests are sent by aiohttp itself. Its cheapest handler is taken, `on.event`: unlike
`on.create` it neither writes an annotation nor retries. A semaphore bounds the reconciles at once, because a worker of
kopf's own `worker_limit` holds its place for seconds after its work. As the other peers do, it watches its ConfigMaps
and puts back what is not as it was applied: an index knows what that is.
"""

# mypy: disable-error-code="untyped-decorator"
# (kopf is not installed where types are checked)

import asyncio
import json
import os
import ssl
from typing import Any

import aiohttp
import kopf
import yaml

WORKERS = int(os.environ["PEER_WORKERS"])
APPLY = {"Content-Type": "application/apply-patch+yaml"}
QUERY = "fieldManager=peer&force=true"


@kopf.on.startup()
async def start(settings: kopf.OperatorSettings, memo: kopf.Memo, **_: Any) -> None:
    settings.posting.enabled = False
    settings.scanning.disabled = True
    memo.http = connected(os.environ["KUBECONFIG"])
    memo.slots = asyncio.Semaphore(WORKERS)


@kopf.on.cleanup()
async def stop(memo: kopf.Memo, **_: Any) -> None:
    await memo.http.close()


@kopf.on.event("example.org", "v1", "greetings")
async def reconcile(event: kopf.RawEvent, body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:
    if event["type"] == "DELETED" or body.status.get("observedGeneration") == body.metadata["generation"]:
        return
    meta = body.metadata
    config_map = f"/api/v1/namespaces/{meta.namespace}/configmaps/{meta.name}"
    status = f"/apis/example.org/v1/namespaces/{meta.namespace}/greetings/{meta.name}/status"
    async with memo.slots:
        await apply(memo.http, config_map, config_map_for(body))
        await apply(memo.http, status, status_of(body))


@kopf.index("example.org", "v1", "greetings")
async def wanted(body: kopf.Body, **_: Any) -> dict[str, dict[str, Any]]:
    return {body.metadata.name: config_map_for(body)}


@kopf.on.event("", "v1", "configmaps")
async def restore(event: kopf.RawEvent, body: kopf.Body, memo: kopf.Memo, wanted: Any, **_: Any) -> None:
    meta = body.metadata
    for config_map in wanted.get(meta.name, ()):
        if event["type"] == "DELETED" or body.get("data") != config_map["data"]:
            async with memo.slots:
                await apply(memo.http, f"/api/v1/namespaces/{meta.namespace}/configmaps/{meta.name}", config_map)


def config_map_for(body: kopf.Body) -> dict[str, Any]:
    meta = body.metadata
    owner = {"apiVersion": "example.org/v1", "kind": "Greeting", "name": meta.name, "uid": meta.uid, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": meta.name, "namespace": meta.namespace, "ownerReferences": [owner]},
        "data": dict(body.spec),
    }


def status_of(body: kopf.Body) -> dict[str, Any]:
    meta = body.metadata
    return {
        "apiVersion": "example.org/v1",
        "kind": "Greeting",
        "metadata": {"name": meta.name, "namespace": meta.namespace},
        "status": {"observedGeneration": meta["generation"]},
    }


def connected(kubeconfig: str) -> aiohttp.ClientSession:
    """Returns a session with the cluster's address and the client certificate of a kubeconfig."""
    with open(kubeconfig, encoding="utf-8") as file:
        document = yaml.safe_load(file)
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    context = ssl.create_default_context(cafile=cluster["certificate-authority"])
    context.load_cert_chain(user["client-certificate"], user["client-key"])
    return aiohttp.ClientSession(cluster["server"], connector=aiohttp.TCPConnector(ssl=context))


async def apply(http: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> None:
    async with http.patch(f"{path}?{QUERY}", data=json.dumps(body), headers=APPLY) as response:
        await response.read()
        response.raise_for_status()
