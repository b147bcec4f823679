"""Rules for watching a directory."""

from contextlib import aclosing
from pathlib import Path

from torchctl.client.code import changes
from torchctl.client.tree import scan


async def test_change_of_what_is_sent_is_seen_once(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("1")
    known = scan(tmp_path)
    (tmp_path / ".env").write_text("KEY=1")  # is never sent
    (tmp_path / "more.py").write_text("2")
    async with aclosing(changes(known, every_s=0)) as found:
        first = await anext(found)
        assert [local.member.path for local in first.members] == ["more.py", "train.py"]
        (tmp_path / "more.py").unlink()
        second = await anext(found)
        assert [local.member.path for local in second.members] == ["train.py"]
