"""The code in docs/reconcilers.md, run by the code in docs/testing.md, on the real control plane."""

import re
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import pytest_asyncio
import yaml
from waiting import until
from webhooks import MUTATING, VALIDATING, Rule, in_force, issue, registered

from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import Forbidden
from torchctl.runtime.kinds import EVENT
from torchctl.runtime.manager import Manager
from torchctl.runtime.reconcile import Request
from torchctl.runtime.settings import RuntimeSettings, ServerSettings, WebhookSettings
from torchctl.testing.certificates import Authority
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.waiting import wait_for

DOCS = Path(__file__).resolve().parents[2] / "docs"

CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: greetings.example.org}
spec:
  group: example.org
  names: {kind: Greeting, plural: greetings, singular: greeting}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {type: object, additionalProperties: {type: string}}
            status: {type: object, additionalProperties: {type: string}}
      subresources: {status: {}}
"""
GREETING = """
apiVersion: example.org/v1
kind: Greeting
metadata: {name: hello, namespace: default}
spec: {text: hello}
"""


QUIET = ServerSettings(metrics_port=None, health_port=None)


@pytest_asyncio.fixture(loop_scope="session")
async def written(control_plane: ControlPlane) -> AsyncIterator[dict[str, Any]]:
    """The names of the guide's first block, while its kind is served."""
    names: dict[str, Any] = {"__name__": "greetings"}
    exec(code("reconcilers.md", "# Write a reconciler"), names)
    await control_plane.kubectl("apply", "-f-", input=CRD)
    await control_plane.kubectl("wait", "--for=condition=Established", "crd/greetings.example.org")
    yield names
    await control_plane.kubectl("delete", "-f-", input=CRD)


def code(page: str, after: str) -> str:
    """The first block of Python code below that heading."""
    text = (DOCS / page).read_text()
    found = re.search(r"```python\n(.*?)```", text[text.index(after) :], re.DOTALL)
    assert found is not None
    return found.group(1)


async def test_the_reconciler_of_the_guide_works(control_plane: ControlPlane, written: dict[str, Any]) -> None:
    known: dict[str, Any] = {
        "Manager": Manager,
        "RuntimeSettings": RuntimeSettings,
        "ServerSettings": ServerSettings,
        "anyio": anyio,
    }
    scope = {**known, "wait_for": wait_for, "cluster": control_plane, "GREETING": GREETING}
    scope |= {name: written[name] for name in ("setup", "CONFIG_MAP")}
    body = textwrap.indent(code("testing.md", "## A controller on it"), "    ")
    exec(f"async def run():\n{body}\n    return found", scope)
    found = await scope["run"]()
    assert found.data == {"text": "hello"}


def test_the_reconciler_of_the_guide_works_without_a_server() -> None:
    scope: dict[str, Any] = {"__name__": "greetings"}
    exec(code("reconcilers.md", "# Write a reconciler"), scope)
    scope |= {"CRD": yaml.safe_load(CRD), "HELLO": yaml.safe_load(GREETING)}
    exec(code("testing.md", "## A controller without a server"), scope)
    scope["test_greeting_has_its_config_map"]()


async def test_the_other_writes_of_the_guide(admin: Client, namespace: str, written: dict[str, Any]) -> None:
    manager, stop = Manager(admin, settings=RuntimeSettings(namespace=namespace, server=QUIET)), anyio.Event()
    written["setup"](manager)
    kind = written["GREETING"]
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "hello"}, "spec": {"text": "hello"}}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(manager.run, stop)
        greeting = await admin.create(kind, body, namespace)
        await wait_for(admin, written["CONFIG_MAP"], "hello", namespace, until=lambda found: found is not None)
        exec(code("reconcilers.md", "Other writes, and an Event"), written)
        await written["by_hand"](manager, greeting)

        async def is_told() -> bool:
            return any(event.reason == "Sent" for event in await admin.list(EVENT, namespace=namespace))

        await until(is_told)
        stop.set()
    raw = await admin.get_raw(kind, "hello", namespace)
    assert raw["status"] == {"card": "hello"}
    assert "finalizers" not in raw["metadata"]


async def test_what_the_guide_runs_beside_the_watches(admin: Client, written: dict[str, Any]) -> None:
    manager, stop = Manager(admin, settings=RuntimeSettings(namespace="default", server=QUIET)), anyio.Event()
    called, proxied = anyio.Event(), anyio.Event()

    async def calls() -> AsyncIterator[str]:
        yield "caller"

    async def proxy() -> None:
        proxied.set()

    async def reconcile(request: Request) -> None:
        if request.name == "caller":
            called.set()

    scope: dict[str, Any] = {"GREETING": written["GREETING"], "manager": manager}
    scope |= {"calls": calls, "proxy": proxy, "reconcile": reconcile}
    exec(code("reconcilers.md", "## Beside the watches"), scope)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.run, stop)
            await called.wait()
            await proxied.wait()
            stop.set()


async def test_the_webhooks_of_the_guide_judge_and_change(
    admin: Client, namespace: str, written: dict[str, Any], tmp_path: Path
) -> None:
    authority = Authority()
    issue(authority, tmp_path)
    webhooks = WebhookSettings(host="127.0.0.1", port=0, cert_dir=str(tmp_path))
    settings = RuntimeSettings(namespace=namespace, server=QUIET, webhooks=webhooks)
    manager, stop = Manager(admin, settings=settings), anyio.Event()
    written["setup"](manager)
    kind = written["GREETING"]
    exec(code("reconcilers.md", "## Admission webhooks"), written | {"manager": manager})
    rule = Rule(group="example.org", resource="greetings", operations=("CREATE",))

    def greeting(name: str, **spec: str) -> dict[str, Any]:
        meta = {"name": name, "namespace": namespace}
        return {"apiVersion": "example.org/v1", "kind": "Greeting", "metadata": meta, "spec": spec}

    async def listens() -> bool:
        return manager.webhooks.port != 0

    async def changes() -> bool:
        made: Any = await admin.dry().create(kind, greeting("empty"))
        return bool(made.spec == {"hello": "world"})

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(manager.run, stop)
        await until(listens)
        url = f"https://127.0.0.1:{manager.webhooks.port}"
        trusted: dict[str, Any] = {"authority": authority.certificate}
        judges, changing = f"{url}/validate-greeting", f"{url}/mutate-greeting"
        async with (
            registered(admin, VALIDATING, namespace, rule, "small.guide.test", url=judges, **trusted),
            registered(admin, MUTATING, namespace, rule, "polite.guide.test", url=changing, **trusted),
        ):
            long = greeting("long", **{f"line-{number}": "x" for number in range(11)})
            await in_force(admin, kind, long)
            with pytest.raises(Forbidden, match="spec: at most 10 entries"):
                await admin.create(kind, long)
            await until(changes)
        stop.set()
