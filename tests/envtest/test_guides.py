"""The code in docs/reconcilers.md, run by the code in docs/testing.md, on the real control plane."""

import re
import textwrap
from pathlib import Path
from typing import Any

import anyio

from torchctl.runtime.manager import Manager
from torchctl.runtime.settings import RuntimeSettings, ServerSettings
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
          properties: {spec: {type: object, additionalProperties: {type: string}}}
"""
GREETING = """
apiVersion: example.org/v1
kind: Greeting
metadata: {name: hello, namespace: default}
spec: {text: hello}
"""


def code(page: str, after: str) -> str:
    """The first block of Python code below that heading."""
    text = (DOCS / page).read_text()
    found = re.search(r"```python\n(.*?)```", text[text.index(after) :], re.DOTALL)
    assert found is not None
    return found.group(1)


async def test_the_reconciler_of_the_guide_works(control_plane: ControlPlane) -> None:
    written: dict[str, Any] = {"__name__": "greetings"}
    exec(code("reconcilers.md", "# Write a reconciler"), written)
    await control_plane.kubectl("apply", "-f-", input=CRD)
    await control_plane.kubectl("wait", "--for=condition=Established", "crd/greetings.example.org")
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
    await control_plane.kubectl("delete", "-f-", input=CRD)
