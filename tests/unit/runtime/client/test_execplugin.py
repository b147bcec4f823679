"""A kubeconfig's credential plugin, run as kubectl runs it."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from torchctl.runtime.client import execplugin
from torchctl.runtime.client.credentials import CredentialsError, Issued
from torchctl.runtime.client.execplugin import ExecPlugin

API_VERSION = "client.authentication.k8s.io/v1"
CLUSTER = {"server": "https://api:6443", "extensions": [{"name": "x"}]}


def plugin(script: str, **fields: Any) -> ExecPlugin:
    spec = {"apiVersion": API_VERSION, "command": sys.executable, "args": ["-S", "-c", script], **fields}
    return ExecPlugin(spec, "/nowhere", CLUSTER)


def answering(status: dict[str, str], **fields: Any) -> ExecPlugin:
    answer = json.dumps({"apiVersion": API_VERSION, "kind": "ExecCredential", "status": status})
    return plugin(f"print({answer!r})", **fields)


def contents(path: str) -> tuple[str, int]:
    """What a file holds, and who may read it."""
    return Path(path).read_text(), os.stat(path).st_mode & 0o777


async def test_a_token_becomes_the_header_for_its_life() -> None:
    issued = await answering({"token": "secret", "expirationTimestamp": "2999-01-01T00:00:00Z"}).issue()
    assert issued.authorization == "Bearer secret"
    assert issued.remaining_s is not None
    assert issued.remaining_s > 1e9
    assert await answering({"token": "secret"}).issue() == Issued("Bearer secret")


async def test_a_certificate_becomes_two_files_of_the_owner_alone() -> None:
    issued = await answering({"clientCertificateData": "PEM", "clientKeyData": "KEY"}).issue()
    assert issued.authorization is None
    assert issued.certificate is not None
    assert [contents(path) for path in issued.certificate] == [("PEM", 0o600), ("KEY", 0o600)]


@pytest.mark.parametrize(("wanted", "cluster"), [(False, None), (True, {"server": "https://api:6443"})])
async def test_a_plugin_learns_what_it_asks_for(wanted: bool, cluster: dict[str, str] | None) -> None:
    told = (
        "import json, os\n"
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "token = json.dumps([info['spec'].get('cluster'), info['spec']['interactive'], os.environ['REGION']])\n"
        "print(json.dumps({**info, 'status': {'token': token}}))"
    )
    asked = plugin(told, provideClusterInfo=wanted, env=[{"name": "REGION", "value": "eu"}], interactiveMode="Never")
    issued = await asked.issue()
    assert issued.authorization is not None
    assert json.loads(issued.authorization.removeprefix("Bearer ")) == [cluster, False, "eu"]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (plugin("import sys; sys.exit('session over')"), "failed with 1: session over"),
        (plugin("print('hello')"), "answers with no ExecCredential"),
        (plugin("print('[]')"), "answers with no ExecCredential"),
        (plugin("print('{}')"), "answers with no ExecCredential: 'apiVersion'"),
        (answering({}), "neither a token nor a certificate"),
        (answering({"clientCertificateData": "PEM"}), "'clientKeyData'"),
        (answering({"token": "t", "expirationTimestamp": "soon"}), "answers with no ExecCredential"),
        (answering({"token": "t"}, apiVersion="client.authentication.k8s.io/v1beta1"), "its apiVersion is"),
        (plugin("", command="no-such-plugin", installHint="Get it."), "cannot be run: No such file.*; Get it."),
        (plugin("", command="./no-such-plugin"), "/nowhere/./no-such-plugin cannot be run"),
        (plugin("", interactiveMode="Always"), "needs a terminal"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_plugin_that_gives_no_credentials_says_why(asked: ExecPlugin, says: str) -> None:
    with pytest.raises(CredentialsError, match=says):
        await asked.issue()


async def test_a_plugin_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execplugin, "TIMEOUT_S", 0.5)
    with pytest.raises(CredentialsError, match="in time"):
        await plugin("import time; time.sleep(100)").issue()


async def test_what_a_hanging_plugin_started_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A grandchild keeps the output open, as a browser does that a login has opened."""
    monkeypatch.setattr(execplugin, "TIMEOUT_S", 0.5)
    lives = tmp_path / "lives"
    os.mkfifo(lives)
    script = f"import subprocess, time; subprocess.Popen(['cat', {str(lives)!r}]); time.sleep(100)"
    try:
        with anyio.fail_after(30), pytest.raises(CredentialsError, match="in time"):
            await plugin(script).issue()
    finally:
        os.close(os.open(lives, os.O_RDWR | os.O_NONBLOCK))
