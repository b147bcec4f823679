"""Where the API server is: explicit path, environment, home, pod, in this order; and who we are there."""

import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from torchctl.runtime.client.config import ConfigError, in_cluster, load_connection
from torchctl.runtime.client.credentials import CredentialsError, TokenFile
from torchctl.testing.certificates import Authority

SERVER = "https://127.0.0.1:6443"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def write(
    path: Path, user: dict[str, Any] | None = None, *, name: str = "main", cluster: dict[str, Any] | None = None
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "team"}}],
        "clusters": [{"name": name, "cluster": {"server": SERVER, **(cluster or {})}}],
        "users": [{"name": name, "user": user or {"token": f"token-{name}"}}],
    }
    path.write_text(json.dumps(config))
    return path


async def test_a_kubeconfig_gives_host_namespace_and_token(tmp_path: Path) -> None:
    connection = await load_connection(write(tmp_path / "config"))
    assert (connection.host, connection.namespace) == (SERVER, "team")
    assert await connection.authorization() == "Bearer token-main"


async def test_the_explicit_path_goes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(write(tmp_path / "env", name="env")))
    write(tmp_path / "home" / ".kube" / "config", name="home")
    explicit = write(tmp_path / "explicit", name="explicit")
    assert await (await load_connection(explicit)).authorization() == "Bearer token-explicit"
    assert await (await load_connection()).authorization() == "Bearer token-env"
    monkeypatch.delenv("KUBECONFIG")
    assert await (await load_connection()).authorization() == "Bearer token-home"


async def test_several_files_are_merged_and_a_context_chosen(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one", name="one"), write(tmp_path / "two", name="two")
    connection = await load_connection(f"{one}:{tmp_path / 'missing'}:{two}", context="two")
    assert await connection.authorization() == "Bearer token-two"


@pytest.mark.parametrize("by_environment", [True, False])
async def test_proxy_of_another_kind_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_environment: bool
) -> None:
    """It would be tried again and again, as if it could not be reached."""
    proxy, server = "socks5://proxy:1080", "https://10.0.0.1:6443"
    if by_environment:
        monkeypatch.setenv("HTTPS_PROXY", proxy)
    path = write(tmp_path / "config", cluster={"server": server} | ({} if by_environment else {"proxy-url": proxy}))
    with pytest.raises(ConfigError, match="socks5 is not supported: use an HTTP proxy"):
        await load_connection(path)


async def test_tls_settings_are_taken_over(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(Authority().certificate)
    path = write(
        tmp_path / "config",
        cluster={
            "certificate-authority": "ca.crt",
            "tls-server-name": "api.internal",
            "proxy-url": "http://proxy:3128",
        },
    )
    connection = await load_connection(path)
    assert connection.tls.ca == str(tmp_path / "ca.crt")
    assert connection.tls.server_name == "api.internal"
    assert connection.tls.verify
    assert connection.proxy == "http://proxy:3128"


async def test_embedded_certificates_and_insecure_servers_are_understood(tmp_path: Path) -> None:
    authority = Authority()
    pair = authority.client("me")
    user = {
        "client-certificate-data": base64.b64encode(pair.certificate).decode(),
        "client-key-data": base64.b64encode(pair.key).decode(),
    }
    connection = await load_connection(write(tmp_path / "config", user, cluster={"insecure-skip-tls-verify": True}))
    assert not connection.tls.verify
    context = connection.tls_files().context()
    assert not context.check_hostname


async def test_a_token_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one")
    connection = await load_connection(write(tmp_path / "config", {"tokenFile": "token"}))
    (tmp_path / "token").write_text("two")
    assert isinstance(connection.credentials, TokenFile)
    assert await connection.authorization(force=True) == "Bearer two"


PLUGIN = """
import json, pathlib, sys
state = pathlib.Path(sys.argv[1])
count = int(state.read_text()) + 1 if state.exists() else 1
state.write_text(str(count))
if count > int(sys.argv[2]):
    sys.exit("the plugin is out of tokens")
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                  "status": {"token": f"token-{count}", "expirationTimestamp": sys.argv[3]}}))
"""


def exec_user(tmp_path: Path, *, tokens: int, expiry: str) -> dict[str, Any]:
    script = tmp_path / "plugin.py"
    script.write_text(PLUGIN)
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": ["-S", str(script), str(tmp_path / "count"), str(tokens), expiry],
        }
    }


async def test_an_exec_plugin_s_token_is_kept_while_it_lasts(tmp_path: Path) -> None:
    user = exec_user(tmp_path, tokens=1, expiry="2999-01-01T00:00:00Z")
    connection = await load_connection(write(tmp_path / "config", user))
    assert [await connection.authorization() for _ in range(3)] == ["Bearer token-1"] * 3


async def test_exec_plugin_runs_again_when_its_token_has_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchctl.runtime.client.credentials.REFUSED_PERIOD_S", 0.0)
    user = exec_user(tmp_path, tokens=2, expiry="2999-01-01T00:00:00Z")
    connection = await load_connection(write(tmp_path / "config", user))
    assert await connection.authorization(force=True) == "Bearer token-2"
    with pytest.raises(CredentialsError, match="out of tokens"):
        await connection.authorization(force=True)


async def test_first_failure_of_an_exec_plugin_is_a_configuration_error(tmp_path: Path) -> None:
    user = exec_user(tmp_path, tokens=0, expiry="2999-01-01T00:00:00Z")
    with pytest.raises(ConfigError, match="out of tokens"):
        await load_connection(write(tmp_path / "config", user))


@pytest.mark.parametrize("content", ["", "[]", "{}", "kind: Config", "{"])
async def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(ConfigError, match=str(path)):
        await load_connection(path)


async def test_an_unknown_context_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="elsewhere"):
        await load_connection(write(tmp_path / "config"), context="elsewhere")


async def test_a_missing_file_is_never_replaced_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "home" / ".kube" / "config")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match="missing"):
        await load_connection()


async def test_without_anything_the_message_says_what_was_looked_for() -> None:
    with pytest.raises(ConfigError, match="KUBECONFIG"):
        await load_connection()


def service_account(directory: Path) -> Path:
    directory.mkdir()
    (directory / "ca.crt").write_bytes(Authority().certificate)
    (directory / "token").write_text("pod-token\n")
    (directory / "namespace").write_text("torchctl-system")
    return directory


POD_ENVIRONMENT = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


async def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    connection = in_cluster(POD_ENVIRONMENT, service_account(tmp_path / "account"))
    assert connection.host == "https://10.96.0.1:443"
    assert connection.namespace == "torchctl-system"
    assert connection.tls.ca == str(tmp_path / "account" / "ca.crt")
    assert await connection.authorization() == "Bearer pod-token"


def test_an_ipv6_service_address_is_bracketed(tmp_path: Path) -> None:
    environment = {**POD_ENVIRONMENT, "KUBERNETES_SERVICE_HOST": "fd00::1"}
    assert in_cluster(environment, service_account(tmp_path / "account")).host == "https://[fd00::1]:443"


def test_a_pod_without_a_mounted_service_account_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not mounted"):
        in_cluster(POD_ENVIRONMENT, tmp_path)


def test_outside_a_pod_there_is_no_service_account(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no pod"):
        in_cluster({}, tmp_path)


async def test_a_user_to_impersonate_is_taken_over(tmp_path: Path) -> None:
    user = {"token": "t", "as": "ann", "as-groups": ["dev"], "as-uid": "7", "as-user-extra": {"scope": ["view"]}}
    connection = await load_connection(write(tmp_path / "config", user=user))
    assert connection.headers == (
        ("Impersonate-User", "ann"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Extra-scope", "view"),
    )


async def test_groups_to_impersonate_without_a_user_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="together with a user"):
        await load_connection(write(tmp_path / "config", user={"token": "t", "as-groups": ["dev"]}))


async def test_the_first_file_s_current_context_counts(tmp_path: Path) -> None:
    """As for kubectl: with the last one a command would go to another cluster than kubectl's."""
    one, two = write(tmp_path / "one", name="one"), write(tmp_path / "two", name="two")
    assert await (await load_connection(f"{one}:{two}")).authorization() == "Bearer token-one"


async def test_a_user_with_a_password_has_basic_authentication(tmp_path: Path) -> None:
    connection = await load_connection(write(tmp_path / "config", {"username": "ann", "password": "secret"}))
    assert await connection.authorization() == f"Basic {base64.b64encode(b'ann:secret').decode()}"


async def test_an_older_auth_provider_gives_its_token(tmp_path: Path) -> None:
    """An id-token without an expiry, so that its issuer is not asked."""
    token = f"{base64.b64encode(b'{}').decode()}." * 2 + "signature"
    provider = {"name": "oidc", "config": {"id-token": token, "client-id": "me"}}
    connection = await load_connection(write(tmp_path / "config", {"auth-provider": provider}))
    assert await connection.authorization() == f"Bearer {token}"


async def test_auth_provider_without_a_token_is_a_configuration_error(tmp_path: Path) -> None:
    user = {"auth-provider": {"name": "oidc", "config": {"id-token": "none"}}}
    with pytest.raises(ConfigError, match="auth provider gives no credentials") as raised:
        await load_connection(write(tmp_path / "config", user))
    assert isinstance(raised.value.__cause__, CredentialsError)


@pytest.mark.parametrize(
    ("cluster", "says"),
    [
        ({"certificate-authority": "missing.crt"}, "certificate-authority: there is no file .*missing.crt"),
        ({"certificate-authority-data": "no base64!"}, "certificate-authority-data is not in base64"),
    ],
)
async def test_certificates_that_cannot_be_had_are_named(tmp_path: Path, cluster: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        await load_connection(write(tmp_path / "config", cluster=cluster))
