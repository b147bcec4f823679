"""Downloads that are begun before they are needed."""

import asyncio
from pathlib import Path

import pytest

from torchctl.workspace.ahead import Ahead
from torchctl.workspace.core import Member
from torchctl.workspace.errors import Unreachable


async def test_download_that_failed_before_is_not_waited_out(tmp_path: Path) -> None:
    """It may have failed while an earlier one was written; the one whose turn it is may take an hour."""
    downloads, failed = Ahead(tmp_path), asyncio.Event()

    async def lasts(_: Path) -> None:
        await asyncio.Event().wait()

    async def fails(_: Path) -> None:
        failed.set()
        raise Unreachable("it is gone")

    for name, fetch in (("a", lasts), ("b", fails)):
        downloads.begin(Member((name,), "file", size=1), fetch)
    await failed.wait()
    with pytest.raises(Unreachable):
        await asyncio.wait_for(downloads.take(), 1)
    await downloads.close()
