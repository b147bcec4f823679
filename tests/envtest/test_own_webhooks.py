"""Admission webhooks of our own against the real API server: typed handlers, denial, change, warning, rotation."""

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs
from waiting import until
from webhooks import MUTATING, VALIDATING, Rule, in_force, issue, registered

from torchctl.runtime.admission import Admission, Denied
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import Forbidden
from torchctl.runtime.controller import Controller
from torchctl.runtime.kinds import Kind, ObjectMeta
from torchctl.runtime.manager import Manager
from torchctl.runtime.reconcile import Request
from torchctl.runtime.settings import RuntimeSettings, ServerSettings, WebhookSettings
from torchctl.testing.certificates import Authority

RULE = Rule(group="", resource="configmaps", operations=("CREATE", "UPDATE", "DELETE"))


class ConfigMap(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, str] = {}


CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps", ConfigMap)


def config_map(namespace: str, name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data}


async def validate(asked: Admission[ConfigMap]) -> list[str]:
    now, before = asked.object, asked.old
    if now is not None and now.data.get("team") == "":
        raise Denied(f"data.team of {asked.name}: must not be empty")
    if asked.operation == "UPDATE" and now is not None and before is not None:
        return [f"team was {before.data.get('team')}"]
    return []


async def mutate(asked: Admission[ConfigMap]) -> dict[str, Any] | None:
    if asked.body is None or asked.object is None or "team" in asked.object.data:
        return None
    return {**asked.body, "data": {**asked.object.data, "team": "nobody", "added": "too"}}


async def nothing(request: Request) -> None:
    """Reconciles nothing."""


async def test_api_server_obeys_our_webhooks(admin: Client, namespace: str, tmp_path: Path) -> None:
    authority = Authority()
    issue(authority, tmp_path)
    settings = RuntimeSettings(
        namespace=namespace,
        server=ServerSettings(metrics_port=None, health_port=None),
        webhooks=WebhookSettings(host="127.0.0.1", port=0, cert_dir=str(tmp_path)),
    )
    manager, stop = Manager(admin, settings=settings), anyio.Event()
    manager.add(Controller("c", nothing).for_(CONFIG_MAP))
    manager.webhooks.validate("/validate", CONFIG_MAP, validate)
    manager.webhooks.mutate("/mutate", CONFIG_MAP, mutate)

    async def listens() -> bool:
        return manager.webhooks.port != 0

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(manager.run, stop)
        await until(listens)
        url = f"https://127.0.0.1:{manager.webhooks.port}"
        common: dict[str, Any] = {"authority": authority.certificate}
        async with (
            registered(admin, VALIDATING, namespace, RULE, "validate.own.test", url=f"{url}/validate", **common),
            registered(admin, MUTATING, namespace, RULE, "mutate.own.test", url=f"{url}/mutate", **common),
        ):
            await in_force(admin, CONFIG_MAP, config_map(namespace, "probe", team=""))

            async def mutated() -> bool:
                made = await admin.dry().create(CONFIG_MAP, config_map(namespace, "probe"))
                return made.data == {"team": "nobody", "added": "too"}

            await until(mutated)
            await admin.create(CONFIG_MAP, config_map(namespace, "a", team="red"))
            with capture_logs() as logs:
                patch = {"data": {"team": "blue"}}
                await admin.merge_patch(CONFIG_MAP, "a", patch, namespace=namespace)
            assert [line["warning"] for line in logs if "warning" in line] == ["team was red"]
            with pytest.raises(Forbidden, match=r"data\.team of a: must not be empty"):
                await admin.merge_patch(CONFIG_MAP, "a", {"data": {"team": ""}}, namespace=namespace)
            await admin.delete(CONFIG_MAP, "a", namespace=namespace)
        stop.set()
