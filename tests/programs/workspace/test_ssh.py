"""git over ssh: what ssh is told, and a fetch from a real sshd where Debian's openssh-server is installed."""

import getpass
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from torchctl.testing.ports import reserve
from torchctl.workspace import gitcommand
from torchctl.workspace.errors import Refused
from torchctl.workspace.fetch import fetch
from torchctl.workspace.gitcommand import GitSource
from torchctl.workspace.marker import Marker
from torchctl.workspace.request import FetchRequest

if TYPE_CHECKING:
    from .conftest import Repository

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:" + os.defpath)


def test_ssh_uses_one_key_one_host_list_and_no_prompt() -> None:
    command = gitcommand.ssh_command(Path("/dev/shm/a b/key"), Path("/dev/shm/a b/known_hosts"))
    assert command.startswith("ssh -F /dev/null ")
    assert "-i '/dev/shm/a b/key'" in command
    assert "'UserKnownHostsFile=/dev/shm/a b/known_hosts'" in command
    assert {"StrictHostKeyChecking=yes", "BatchMode=yes", "IdentitiesOnly=yes"} <= set(command.split())


def test_git_environment_allows_two_protocols_and_no_prompt() -> None:
    """Nothing of the machine's configuration gets into git's environment."""
    split = GitSource("https://example.com/a.git").check()
    env = gitcommand.environment(
        split,
        {"PATH": "/bin", "GIT_DIR": "/x", "LD_PRELOAD": "x"},
        home=Path("/h"),
        basic="Basic abc",
        ca=None,
        ssh="s",
    )
    assert env["GIT_ALLOW_PROTOCOL"] == "https:ssh"
    assert env["GIT_TERMINAL_PROMPT"] == "0"
    assert not {"GIT_DIR", "LD_PRELOAD", "GIT_ASKPASS"} & set(env)
    count = int(env["GIT_CONFIG_COUNT"])
    config = {env[f"GIT_CONFIG_KEY_{i}"]: env[f"GIT_CONFIG_VALUE_{i}"] for i in range(count)}
    assert config["http.https://example.com/.extraHeader"] == "Authorization: Basic abc"
    assert config["http.followRedirects"] == "false"
    assert config["core.hooksPath"] == "/dev/null"


def test_user_without_a_name_is_explained() -> None:
    """What ssh says where the queue's runAsUser is one that the image does not know."""
    said = "No user exists for uid 1000\r\nfatal: Could not read from remote repository.\n"
    error = gitcommand.explain(said, "ssh://git@example.com/a.git", "ssh://git@example.com/a.git")
    assert str(error) == (
        "cannot fetch ssh://git@example.com/a.git: ssh takes no user without a name, and the queue's runAsUser has "
        "none in the image of torchctl (No user exists for uid 1000). Leave runAsUser out of the queue's podTemplate, "
        "or use https"
    )


async def test_ssh_without_known_hosts_is_refused_with_the_next_step(claim: Path) -> None:
    with pytest.raises(Refused, match=r"known_hosts.*secretRef"):
        await fetch(FetchRequest(source="git", root=claim, url="ssh://git@localhost/x.git"), environ={})


def _key(directory: Path, name: str) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)], check=True)
    return directory / name


def _start(place: Path) -> "subprocess.Popen[bytes]":
    assert SSHD is not None
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd gives up its privileges
    with (place / "log").open("w") as log:
        return subprocess.Popen([SSHD, "-D", "-e", "-f", str(place / "config")], stderr=log, stdin=subprocess.DEVNULL)


@pytest.fixture
async def sshd(tmp_path: Path) -> AsyncIterator[tuple[int, Path]]:
    """A real sshd on a free port, and the Secret that opens it."""
    if SSHD is None:
        pytest.skip("needs sshd (Debian: openssh-server)")
    place, secret = tmp_path / "sshd", tmp_path / "secret"
    place.mkdir()
    secret.mkdir()
    host, user = _key(place, "host"), _key(place, "user")
    with reserve(1) as (port,):
        pass
    (place / "authorized").write_bytes(user.with_suffix(".pub").read_bytes())
    (place / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {host}\nAuthorizedKeysFile {place}/authorized\n"
        f"PidFile {place}/pid\nStrictModes no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n"
        "UsePAM no\nSetEnv GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0=*\n"
    )
    (secret / "ssh-privatekey").write_text(user.read_text().rstrip("\n"))  # as many Secrets have it
    (secret / "known_hosts").write_text(f"[127.0.0.1]:{port} {host.with_suffix('.pub').read_text()}")
    process = _start(place)
    try:
        with anyio.fail_after(60):
            while "listening" not in (place / "log").read_text():
                assert process.poll() is None, (place / "log").read_text()
                await anyio.sleep(0.01)
        yield port, secret
    finally:
        process.terminate()
        process.wait()


async def _fetch(port: int, secret: Path, repository: "Repository", claim: Path) -> Marker:
    url = f"ssh://{getpass.getuser()}@127.0.0.1:{port}{repository.bare}"
    request = FetchRequest(source="git", root=claim, url=url, ref="main", secret=secret, timeout_s=30)
    return await fetch(request, environ={"PATH": os.environ["PATH"]})


async def test_a_repository_arrives_over_ssh(sshd: tuple[int, Path], repository: "Repository", claim: Path) -> None:
    marker = await _fetch(*sshd, repository, claim)
    assert marker.revision == repository.git("rev-parse", "HEAD")
    assert (claim / "train.py").exists()


async def test_an_unknown_host_key_is_refused(
    sshd: tuple[int, Path], repository: "Repository", claim: Path, tmp_path: Path
) -> None:
    port, secret = sshd
    other = _key(tmp_path, "other").with_suffix(".pub").read_text()
    (secret / "known_hosts").write_text(f"[127.0.0.1]:{port} {other}")
    with pytest.raises(Refused, match="host key is not the known one"):
        await _fetch(port, secret, repository, claim)


async def test_a_key_that_the_server_does_not_know_is_refused(
    sshd: tuple[int, Path], repository: "Repository", claim: Path, tmp_path: Path
) -> None:
    port, secret = sshd
    (secret / "ssh-privatekey").write_text(_key(tmp_path, "other").read_text())
    with pytest.raises(Refused, match="refused the key"):
        await _fetch(port, secret, repository, claim)
