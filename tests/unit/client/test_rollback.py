"""Going back to a tree that a real receiver has had before."""

import hashlib
from pathlib import Path

import pytest
from receivers import TOKEN, contents, plant, receiving

from torchctl.client.content import Content
from torchctl.client.errors import RequestRefused
from torchctl.client.history import forget, keep, known
from torchctl.client.rollback import republish
from torchctl.client.tree import scan
from torchctl.client.upload import hashed, upload
from torchctl.workspace.store import Store


async def read(directory: Path) -> tuple[Content, str, bytes]:
    content = await hashed(scan(directory))
    manifest = content.manifest()
    return content, f"sha256:{hashlib.sha256(manifest).hexdigest()}", manifest


async def test_earlier_tree_is_published_without_sending_it(tmp_path: Path) -> None:
    project = plant(tmp_path / "project", {"train.py": b"one", "same.py": b"same"})
    claim = plant(tmp_path / "claim", {})
    store = Store(tmp_path / "store", max_bytes=2**20)
    async with receiving(claim, store=store) as (url, _):
        content, first, manifest = await read(project)
        await upload(url, TOKEN, content.tree, content=content)
        before = contents(claim)
        plant(project, {"train.py": b"two"})
        changed, _, _ = await read(project)
        await upload(url, TOKEN, changed.tree, content=changed)
        assert contents(claim) != before
        await republish(url, TOKEN, first, manifest)
        assert contents(claim) == before


async def test_tree_that_the_job_has_not_is_refused(tmp_path: Path) -> None:
    project = plant(tmp_path / "project", {"train.py": b"one"})
    _, revision, manifest = await read(project)
    async with receiving(plant(tmp_path / "claim", {})) as (url, _):
        with pytest.raises(RequestRefused, match=r"the job does not have 1 files of sha256:.* any more"):
            await republish(url, TOKEN, revision, manifest)


def test_lists_of_files_are_remembered_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep("sha256:aa", b"one")
    keep("sha256:bb", b"two")
    assert (known("sha256:aa"), known("sha256:cc"), known("../../etc/passwd")) == (b"one", None, None)
    forget(1)
    assert [known("sha256:aa"), known("sha256:bb")].count(None) == 1
