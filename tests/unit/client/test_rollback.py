"""Going back to a tree that a real receiver has had before, from a machine that knows nothing of it."""

from pathlib import Path
from typing import Any

import pytest
from receivers import TOKEN, contents, plant, receiving

from torchctl.client.errors import RequestRefused
from torchctl.client.receiver import Receiver
from torchctl.client.rollback import republish
from torchctl.client.tree import scan
from torchctl.client.upload import upload
from torchctl.workspace.store import Store


async def send(url: str, directory: Path) -> str:
    return (await upload(url, TOKEN, scan(directory))).revision


async def back(url: str, revision: str) -> None:
    async with Receiver(url, TOKEN) as channel:
        await republish(channel, revision)


async def test_earlier_tree_is_published_by_its_name(tmp_path: Path) -> None:
    project = plant(tmp_path / "project", {"train.py": b"one", "same.py": b"same", "link": "same.py", "empty": b""})
    claim = plant(tmp_path / "claim", {})
    store = Store(tmp_path / "store", max_bytes=2**20)
    async with receiving(claim, store=store) as (url, _):
        first = await send(url, project)
        before = contents(claim)
        plant(project, {"train.py": b"two"})
        second = await send(url, project)
        after = contents(claim)
        for revision, has in ((first, before), (first, before), (second, after)):
            await back(url, revision)
            assert contents(claim) == has


async def test_tree_of_known_files_is_remembered_too(tmp_path: Path) -> None:
    """Nothing of it is sent but its list of files."""
    project = plant(tmp_path / "project", {"a.py": b"one", "b.py": b"two"})
    claim = plant(tmp_path / "claim", {})
    async with receiving(claim, store=Store(tmp_path / "store", max_bytes=2**20)) as (url, _):
        first = await send(url, project)
        (project / "b.py").unlink()
        second = await send(url, project)
        await back(url, first)
        await back(url, second)
        assert contents(claim) == {"a.py": (b"one", False)}


@pytest.mark.parametrize("stores", [False, True])
async def test_tree_that_the_job_never_had_is_refused(tmp_path: Path, stores: bool) -> None:
    options: dict[str, Any] = {"store": Store(tmp_path / "store", max_bytes=2**20)} if stores else {}
    async with receiving(plant(tmp_path / "claim", {}), **options) as (url, receiver):
        with pytest.raises(RequestRefused, match=r"the job does not have the files of tree abab.*use sync"):
            await back(url, "sha256:" + "ab" * 32)
        assert not receiver.busy


async def test_tree_whose_files_the_store_lost_is_refused(tmp_path: Path) -> None:
    project = plant(tmp_path / "project", {"train.py": b"one"})
    async with receiving(plant(tmp_path / "claim", {}), store=Store(tmp_path / "store", max_bytes=2**20)) as (url, _):
        first = await send(url, project)
        plant(project, {"train.py": b"two"})
        await send(url, project)
        for pack in (tmp_path / "store").glob("*.pack"):
            pack.unlink()
        with pytest.raises(RequestRefused, match=r"the job does not have 1 file of sha256:.* any more"):
            await back(url, first)


@pytest.mark.parametrize("damage", [b"", b"x" * 1000])
async def test_damaged_list_of_files_is_never_believed(tmp_path: Path, damage: bytes) -> None:
    """Others may write to a claim that a queue's jobs share."""
    project = plant(tmp_path / "project", {"train.py": b"one"})
    async with receiving(plant(tmp_path / "claim", {}), store=Store(tmp_path / "store", max_bytes=2**20)) as (url, _):
        first = await send(url, project)
        plant(project, {"train.py": b"two"})
        await send(url, project)
        for kept in (tmp_path / "store").glob("*.tree"):
            kept.write_bytes(damage)
        with pytest.raises(RequestRefused, match="the job does not have the files of tree"):
            await back(url, first)
