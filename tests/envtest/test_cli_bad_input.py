"""What goes wrong between a person and the cluster is one line and an exit status: never a traceback, never silence."""

import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from kubectl import Kubectl

from torchctl.client import NotInstalled, Target, connect
from torchctl.client.views import JobView
from torchctl.runtime.kinds import Kind
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.kubeconfig import write_kubeconfig
from torchctl.testing.ports import reserve

pytestmark = pytest.mark.usefixtures("operator_account")


async def complaint(kubectl: Kubectl, *arguments: str) -> tuple[int, str]:
    """The exit status and the line of a command that fails and prints nothing else."""
    result = await kubectl(*arguments)
    assert (result.stdout, "Traceback" in result.stderr) == ("", False)
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return result.exit_code, line.removeprefix("Error: ")


@pytest.fixture
def admin_config(control_plane: ControlPlane, tmp_path: Path) -> Path:
    """A copy of the admin's kubeconfig, to be spoilt."""
    path = tmp_path / "kubeconfig"
    path.write_text(control_plane.admin_kubeconfig.read_text())
    return path


def spoil(path: Path, user: dict[str, Any]) -> Kubectl:
    config = yaml.safe_load(path.read_text())
    config["users"][0]["user"] = user
    path.write_text(yaml.safe_dump(config))
    return Kubectl(str(path))


def misled(path: Path, **cluster: str) -> Kubectl:
    """A kubeconfig without an authority, and with other fields of the cluster."""
    config = yaml.safe_load(path.read_text())
    there = config["clusters"][0]["cluster"]
    config["clusters"][0]["cluster"] = {"server": there["server"], **cluster}
    path.write_text(yaml.safe_dump(config))
    return Kubectl(str(path))


async def test_objects_that_do_not_exist(control_plane: ControlPlane, namespace: str) -> None:
    kubectl, nowhere = Kubectl.as_admin(control_plane, namespace), Kubectl.as_admin(control_plane, "nowhere")
    for verb in ("status", "wait"):
        assert await complaint(kubectl, verb, "vit") == (
            4,
            f"there is no TorchrunJob vit in namespace {namespace}. "
            "Check its name and namespace (-n); `kubectl torchrun list -A` shows all jobs.",
        )
    no_namespace = (4, "there is no namespace nowhere. Choose one with -n; `kubectl get ns` lists them.")
    for arguments in (["status", "vit"], ["list"], ["queues"], ["list", "-o", "json"]):
        assert await complaint(nowhere, *arguments) == no_namespace


async def test_who_lacks_a_right_is_told_whom_to_ask(control_plane: ControlPlane, namespace: str) -> None:
    kubectl = Kubectl(str(control_plane.kubeconfig("stranger")), namespace)
    for arguments in (["list"], ["queues"], ["status", "vit"], ["status", "-w", "vit"], ["list", "-o", "yaml"]):
        status, line = await complaint(kubectl, *arguments)
        assert status == 3
        assert 'User "stranger" cannot' in line
        assert "Ask who runs the cluster for the role view" in line


async def test_in_the_name_of_somebody_else(control_plane: ControlPlane, namespace: str) -> None:
    admin, stranger = Kubectl.as_admin(control_plane, namespace), Kubectl(str(control_plane.kubeconfig("stranger")))
    status, line = await complaint(admin, "list", "--as", "ann", "--as-group", "dev")
    assert (status, 'User "ann" cannot list' in line) == (3, True)
    assert (await admin("list", "--as", "ann", "--as-group", "system:masters")).exit_code == 0
    status, line = await complaint(stranger, "list", "--as", "ann")
    assert (status, 'User "stranger" cannot impersonate' in line) == (3, True)
    assert await complaint(admin, "list", "--as-group", "dev") == (
        2,
        "a group, a uid or extra values can only be impersonated together with a user. Name the user with --as.",
    )


async def test_a_login_that_has_ended(admin_config: Path) -> None:
    status, line = await complaint(spoil(admin_config, {"token": "expired"}), "list")
    assert status == 3
    assert "does not accept the login of the current context. Log in again" in line


def plugin(command: str, *arguments: str) -> dict[str, Any]:
    """A user whose credentials come from a program."""
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": command, "args": [*arguments]}}


async def test_a_login_without_credentials(admin_config: Path) -> None:
    status, line = await complaint(spoil(admin_config, {}), "list")
    assert (status, "the current context gives no credentials that it takes. Log in" in line) == (3, True)


async def test_a_plugin_that_gives_no_login(admin_config: Path) -> None:
    """Such as a cloud's whose session has ended; what it says is passed on."""
    status, line = await complaint(spoil(admin_config, plugin("sh", "-c", "echo SSO over >&2; exit 1")), "list")
    assert (status, "SSO over" in line, "Log in" in line) == (3, True, True)
    status, line = await complaint(spoil(admin_config, plugin("no-such-plugin")), "list")
    assert (status, "no-such-plugin cannot be run: No such file or directory" in line) == (3, True)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("clusters: 7", "no usable kubeconfig"),
        ("{not yaml", "no usable kubeconfig"),
        ("", "no usable kubeconfig"),
        (None, "there is no kubeconfig at"),
    ],
    ids=["another shape", "no YAML", "empty", "missing"],
)
async def test_a_kubeconfig_that_makes_no_sense(tmp_path: Path, content: str | None, says: str) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    status, line = await complaint(Kubectl(str(path)), "list")
    assert status == 2
    assert "the kubeconfig cannot be used" in line
    assert says in line
    assert str(path) in line


async def test_a_directory_is_no_kubeconfig(tmp_path: Path) -> None:
    status, line = await complaint(Kubectl(str(tmp_path)), "list")
    assert (status, f"{tmp_path} is a directory, and a kubeconfig is a file" in line) == (2, True)


async def test_a_namespace_that_cannot_exist(admin_config: Path) -> None:
    assert await complaint(Kubectl(str(admin_config), "a/b"), "list") == (
        2,
        "'a/b' is no name of a namespace. Choose one with -n; `kubectl get ns` lists them.",
    )


async def test_an_address_that_is_none(admin_config: Path) -> None:
    status, line = await complaint(misled(admin_config, server="kubernetes"), "list")
    assert (status, "server: 'kubernetes' is no URL, such as https://host:6443" in line) == (2, True)


async def test_a_certificate_that_is_not_trusted(admin_config: Path) -> None:
    status, line = await complaint(misled(admin_config), "list")
    assert (status, "is not one that the kubeconfig trusts" in line, "object at 0x" in line) == (3, True, False)


async def test_a_context_that_does_not_exist(admin_config: Path) -> None:
    status, line = await complaint(Kubectl(str(admin_config)), "list", "--context", "prod")
    assert (status, "prod" in line, "kubectl config get-contexts" in line) == (2, True, True)


async def test_an_api_server_that_is_away(control_plane: ControlPlane, tmp_path: Path) -> None:
    with reserve(1) as (port,):
        path = write_kubeconfig(
            tmp_path / "away", server=f"https://127.0.0.1:{port}", ca=control_plane.ca, user={"token": "t"}
        )
    status, line = await complaint(Kubectl(str(path)), "list")
    assert (status, f"https://127.0.0.1:{port} gives no answer" in line) == (3, True)


async def test_a_cluster_that_does_not_know_our_kinds(control_plane: ControlPlane) -> None:
    unknown = Kind("torchrun.invalid", "v1", "TorchrunJob", "torchrunjobs", JobView)
    async with connect(Target(kubeconfig=str(control_plane.admin_kubeconfig))) as cluster:
        with pytest.raises(NotInstalled, match="torchctl is not installed in the cluster"), cluster.explained("jobs"):
            await cluster.client.list(unknown)
        with pytest.raises(NotInstalled, match="torchctl is not installed in the cluster"), cluster.explained("job a"):
            await cluster.client.get(unknown, "a", "default")


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "--request-timeout", "soon"],
        ["wait", "job", "--for", "Done"],
        ["wait", "job", "--timeout", "-1s"],
        ["wait"],
        ["list", "-o", "xml"],
        ["frobnicate"],
        ["list", "-l", "team in (a"],
        ["status", "job", "-w", "-o", "json"],
        ["delete", "job", "--all"],
        ["delete", ""],
        ["exec", "job", "ls", "-l"],
        ["list", "--frobnicate"],
        ["list", "surplus"],
    ],
    ids=" ".join,
)
async def test_a_command_line_that_makes_no_sense(control_plane: ControlPlane, arguments: list[str]) -> None:
    result = await Kubectl.as_admin(control_plane, "default")(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines()[-1].startswith("Error: ")


async def test_a_process_prints_one_line_too(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    """Without a traceback, without logs of libraries on either stream."""
    path = write_kubeconfig(tmp_path / "config", server=control_plane.host, ca=control_plane.ca, user=plugin("false"))
    done = await anyio.run_process([*Kubectl(str(path)).program, "list"], check=False, stderr=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (3, b"")
    assert len(done.stderr.decode().splitlines()) == 1
