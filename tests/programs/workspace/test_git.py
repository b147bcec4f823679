"""Fetching from a real git server over https."""

import base64
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from torchctl.workspace.errors import Refused, Unreachable, WorkspaceError
from torchctl.workspace.fetch import fetch
from torchctl.workspace.marker import Marker, read_marker
from torchctl.workspace.request import FetchRequest

if TYPE_CHECKING:
    from .conftest import Repository, Server

URL = "/git/team/code.git"


async def _fetch(server: "Server", claim: Path, ref: str = "", **more: object) -> Marker:
    options: dict[str, object] = {"url": server.url + URL, "timeout_s": 30, **more}
    return await fetch(
        FetchRequest(source="git", root=claim, ref=ref, **options),  # type: ignore[arg-type]  # of a test's choice
        environ=server.environ,
    )


async def test_a_branch_arrives_with_its_commit_and_a_marker(
    server: "Server", repository: "Repository", claim: Path
) -> None:
    commit = repository.commit({"pkg/model.py": "M = 1\n"})
    marker = await _fetch(server, claim, "main")
    assert marker.revision == commit
    assert (claim / "pkg/model.py").read_text() == "M = 1\n"
    assert (claim / ".hidden/settings").exists()
    assert read_marker(claim) == marker
    assert marker.files == 3
    assert sorted(os.listdir(claim)) == [
        ".hidden", ".sync_success", "lost+found", "pkg", "train.py",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["tag", "annotated tag", "commit", "default"])
async def test_ref_may_be_a_tag_a_commit_or_empty(
    server: "Server", repository: "Repository", claim: Path, kind: str
) -> None:
    first = repository.git("rev-parse", "HEAD")
    if kind == "tag":
        repository.git("tag", "v1")
    elif kind == "annotated tag":
        repository.git("tag", "-a", "-m", "one", "v1")
    if "tag" in kind:
        repository.git("push", "--quiet", "origin", "v1")
    second = repository.commit({"train.py": "later\n"})
    ref = {"commit": first, "default": ""}.get(kind, "v1")
    marker = await _fetch(server, claim, ref)
    assert marker.revision == (second if kind == "default" else first)


async def test_second_fetch_of_one_request_is_a_no_op(server: "Server", repository: "Repository", claim: Path) -> None:
    first = await _fetch(server, claim, "main")
    (claim / "written-by-a-trainer").write_text("keep")
    asked = len(server.requests)
    assert await _fetch(server, claim, "main") == first
    assert len(server.requests) == asked
    assert (claim / "written-by-a-trainer").exists()


async def test_another_revision_replaces_the_whole_tree(
    server: "Server", repository: "Repository", claim: Path
) -> None:
    first = await _fetch(server, claim, "main")
    repository.git("rm", "--quiet", "train.py")
    commit = repository.commit({"new.py": ""})
    marker = await _fetch(server, claim, "main", revision=commit)
    assert marker.revision == commit
    assert not (claim / "train.py").exists()
    assert (claim / "new.py").exists()
    back = await _fetch(server, claim, "main", revision=first.revision)
    assert (back.revision, back.digest) == (first.revision, first.digest)


async def test_modes_and_links_survive_and_attributes_hide_nothing(
    server: "Server", repository: "Repository", claim: Path
) -> None:
    script = repository.work / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    (repository.work / "link").symlink_to("train.py")
    repository.commit({".gitattributes": "* export-ignore\n*.py export-subst\n", "id.py": "$Format:%H$\n"})
    await _fetch(server, claim)
    assert (claim / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (claim / "link").readlink() == Path("train.py")
    assert (claim / "id.py").read_text() == "$Format:%H$\n"


async def test_link_out_of_the_repository_leaves_no_marker(
    server: "Server", repository: "Repository", claim: Path
) -> None:
    (repository.work / "evil").symlink_to("/etc")
    repository.commit({})
    with pytest.raises(Refused, match="'evil' leads to '/etc'"):
        await _fetch(server, claim)
    assert read_marker(claim) is None


async def test_an_unknown_ref_is_named(server: "Server", repository: "Repository", claim: Path) -> None:
    with pytest.raises(Refused, match=r"no branch or tag 'mian'.*volumes\.workspace\.ref"):
        await _fetch(server, claim, "mian")


async def test_an_unknown_commit_is_named(server: "Server", repository: "Repository", claim: Path) -> None:
    with pytest.raises(Refused, match="not in the repository"):
        await _fetch(server, claim, "0" * 39 + "1")


async def test_an_unknown_repository_is_named(server: "Server", repository: "Repository", claim: Path) -> None:
    with pytest.raises(Refused, match=r"no such repository.*volumes\.workspace\.url"):
        await _fetch(server, claim, url=f"{server.url}/git/team/other.git")


def _secret(tmp_path: Path, **keys: str) -> Path:
    directory = tmp_path / "secret"
    directory.mkdir()
    for key, value in keys.items():
        (directory / key).write_text(value)
    return directory


async def test_credentials_come_from_the_secret_and_are_never_shown(
    server: "Server", repository: "Repository", claim: Path, tmp_path: Path
) -> None:
    server.basic = "Basic " + base64.b64encode(b"me:canary-secret").decode()
    with pytest.raises(Refused, match="refused the credentials"):
        await _fetch(server, claim)
    secret = _secret(tmp_path, username="me", password="canary-secret\n")
    marker = await _fetch(server, claim, secret=secret)
    assert "canary" not in marker.to_json()
    (secret / "password").write_text("canary-wrong")
    with pytest.raises(WorkspaceError) as raised:
        await _fetch(server, claim, secret=secret, revision="main")
    assert "canary" not in str(raised.value)


async def test_a_redirect_is_not_followed_with_credentials(
    server: "Server", repository: "Repository", claim: Path, tmp_path: Path
) -> None:
    async def elsewhere(request: web.Request) -> web.Response:
        raise web.HTTPMovedPermanently(f"{server.url}{URL}/info/refs?service=git-upload-pack")

    server.routes["/moved.git/info/refs"] = elsewhere
    secret = _secret(tmp_path, password="token")
    with pytest.raises(Refused, match="redirects elsewhere"):
        await _fetch(server, claim, url=f"{server.url}/moved.git", secret=secret)
    assert (await _fetch(server, claim, url=f"{server.url}/moved.git")).source == "git"


async def test_an_untrusted_certificate_is_refused(
    server: "Server", repository: "Repository", claim: Path, tmp_path: Path
) -> None:
    environ = {"PATH": server.environ["PATH"]}
    request = FetchRequest(source="git", root=claim, url=server.url + URL, timeout_s=30)
    with pytest.raises(Refused, match="certificate is not trusted"):
        await fetch(request, environ=environ)
    secret = _secret(tmp_path, **{"ca.crt": server.ca.read_text()})
    marker = await fetch(
        FetchRequest(source="git", root=claim, url=server.url + URL, timeout_s=30, secret=secret), environ=environ
    )
    assert marker.files == 2


async def test_a_server_that_never_answers_meets_the_deadline(server: "Server", claim: Path) -> None:
    async def hang(request: web.Request) -> web.Response:
        await request.loop.create_future()
        raise AssertionError

    server.routes["/slow.git/info/refs"] = hang
    with pytest.raises(Unreachable, match=r"more than 0\.5 s"):
        await _fetch(server, claim, url=f"{server.url}/slow.git", timeout_s=0.5)


@pytest.mark.parametrize(
    ("url", "ref"),
    [
        ("--upload-pack=touch canary", ""),
        ("ext::sh -c 'touch canary'", ""),
        ("file:///etc", ""),
        ("/etc", ""),
        ("git://localhost/x", ""),
        ("http://localhost/x", ""),
        ("https://localhost/$(touch canary)`touch canary`", ""),
        ("https://user:pass@localhost/x.git", ""),
        ("git@localhost:team/code.git", ""),
        ("ssh://-oProxyCommand=touch/x", ""),
        ("ssh://localhost -oProxyCommand=x/x", ""),
        ("https://localhost/a\nb", ""),
        ("https://169.254.169.254/x", ""),
        ("https://[fe80::1]/x", ""),
        ("https://localhost/x.git", "--upload-pack=touch canary"),
        ("https://localhost/x.git", "-o"),
        ("https://localhost/x.git", "a b"),
        ("https://localhost/x.git", "a..b"),
        ("https://localhost/x.git", "x:refs/heads/y"),
        ("https://localhost/x.git", "main;touch canary"),
    ],
)
async def test_url_with_an_option_helper_or_credential_is_refused(
    url: str, ref: str, claim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(claim)
    request = FetchRequest(source="git", root=claim, url=url, ref=ref, timeout_s=5)
    with pytest.raises(WorkspaceError) as raised:
        await fetch(request, environ={})
    assert "pass@" not in str(raised.value)
    assert os.listdir(claim) == ["lost+found"]
