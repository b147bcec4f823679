"""A receiver is killed at any step of an upload; the next one and the client end as they would have without that."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from forks import Forks
from gates import Gate, Step, each, gate, sample, steps_of
from receivers import TOKEN, contents, plant
from relays import relay

from torchctl.client.errors import Unreachable
from torchctl.client.tree import scan
from torchctl.client.upload import hashed, upload
from torchctl.testing.ports import reserve
from torchctl.workspace.core import MARKER, PACK, STAGING, Limits
from torchctl.workspace.handout import copy

OF_EACH = os.environ.get("TORCHCTL_SWEEP", "2")
"""So many steps are swept, or `all` (`make sweep`)."""
WHOLE = OF_EACH == "all"
AT_ONCE = 4
POLLS = 3
KILLED = -9
FIRST: Mapping[str, bytes | str | None] = {
    "train.py": b"print(1)\n",
    "empty": b"",
    "data/large": b"0123456789" * 20_000,
    "data/twin": b"print(1)\n",
    "data/deep/er/file": b"deep",
    "nothing": None,
    "link": "data/twin",
}
SECOND: Mapping[str, bytes | str | None] = {
    "train.py": b"print(2)\n",
    "data/large": b"0123456789" * 20_000,
    "data/twin": b"print(2)\n",
    "other/file": b"deep",
    "link": "train.py",
}


@dataclass
class Telling:
    """What became of one upload: the steps, what the claim had in the end, and what the last receiver said."""

    at: Step | None
    seen: Counter[str] = field(default_factory=Counter)
    was_killed: bool = False
    claim: dict[str, object] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    said: str = ""

    @property
    def end(self) -> tuple[object, ...]:
        return self.claim, self.left, self.said


class Place:
    """A claim, and receivers for it one after another, as a sync pod whose container is started again."""

    def __init__(self, directory: Path, starts: Forks, gate: Gate, port: int, revision: str, *, packed: bool) -> None:
        self.claim, self.log = directory / "claim", directory / "log"
        self.claim.mkdir(exist_ok=True)
        self._starts, self._gate, self._revision = starts, gate, revision
        options = [f"--root={self.claim}", f"--port={port}", f"--token={TOKEN}", f"--revision={revision}"]
        options += ["--packed"] if packed else []
        options += [f"--cache={directory / 'cache'}", "--timeout=60", f"--termination-log={directory / 'said'}"]
        self._argv = ["torchctl", "workspace", "receive", *options]
        self.said = directory / "said"
        self.said.touch()

    async def receive(self) -> None:
        """Returns once a receiver has ended as it should."""
        while True:
            receiver = await self._starts.start(
                *self._argv, out=self.log, gate=self._gate.address, root=self.claim.parent
            )
            self._gate.kill = receiver.kill
            code = await receiver.wait()
            if code == 0:
                return
            assert code == KILLED, receiver.said


async def tell(
    directory: Path, starts: Forks, tree: Path, at: Step | None, before: Path | None = None, *, packed: bool
) -> Telling:
    """Sends a tree to a claim that has another one already, or none."""
    os.mkdir(directory)
    found = Telling(at)
    with reserve(1) as (port,):
        pass
    if before:
        async with gate() as quiet, relay(quiet, port) as open_port:
            await receive(Place(directory, starts, quiet, port, "", packed=packed), before, open_port)
    async with gate(at) as guard, relay(guard, port) as open_port:
        revision = (await digest(tree)) if before else ""
        place = Place(directory, starts, guard, port, revision, packed=packed)
        await receive(place, tree, open_port)
    found.seen, found.was_killed = guard.seen, guard.reached.is_set()
    found.claim = await workspace(place.claim) | {MARKER: (place.claim / MARKER).read_text()}
    found.left = [str(path) for path in (place.claim / STAGING).rglob("*")]
    found.said = place.said.read_text()
    return found


async def workspace(claim: Path) -> dict[str, object]:
    """What a worker gets; from a pack it is copied."""
    if not (claim / PACK).exists():
        return contents(claim)
    assert contents(claim) == {}
    copied = claim.with_name("copied")
    copied.mkdir()
    await copy(claim, copied, timeout_s=60, limits=Limits())
    return contents(copied)


async def receive(place: Place, tree: Path, port: int) -> None:
    """Sends a tree as often as it takes. Once the claim has it nobody listens, and a client looks at the job."""

    async def send() -> None:
        while True:
            with suppress(Unreachable):
                await upload(f"http://127.0.0.1:{port}", TOKEN, scan(tree))
                return

    sending = asyncio.create_task(send())
    try:
        await place.receive()
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending


async def digest(tree: Path) -> str:
    return f"sha256:{(await hashed(scan(tree))).name}"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("packed", [False, True], ids=["files", "packed"])
@pytest.mark.parametrize("again", [False, True], ids=["first", "second"])
async def test_killed_receivers_end_with_the_same_claim(
    tmp_path: Path, starts: Forks, report: Callable[[str], None], again: bool, packed: bool
) -> None:
    trees = [plant(tmp_path / "one", dict(FIRST)), plant(tmp_path / "two", dict(SECOND))]
    tree, before = (trees[1], trees[0]) if again else (trees[0], None)
    normal = await tell(tmp_path / "normal", starts, tree, None, before, packed=packed)
    assert normal.claim.keys() - {MARKER} == contents(tree).keys()
    steps = steps_of([normal.seen], POLLS)
    chosen = steps if WHOLE else sample(steps, int(OF_EACH), int(again))

    async def swept(at: Step) -> Telling:
        return await tell(tmp_path / str(steps.index(at)), starts, tree, at, before, packed=packed)

    tellings = await each(chosen, swept, at_once=AT_ONCE)
    missed = [str(telling.at) for telling in tellings if not telling.was_killed]
    wrong = [(str(telling.at), telling.end) for telling in tellings if telling.end != normal.end]
    report(f"receiver killed at {len(chosen)} of {len(steps)} steps: {len(wrong)} differences, {len(missed)} missed")
    assert wrong == []
    assert missed == []
