"""Tells a person on standard error how far a submit is: a live line on a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click

from torchctl.api.counts import counted
from torchctl.cli.exits import farewell

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from torchctl.client.tree import Tree
    from torchctl.client.upload import Progress as Step
    from torchctl.client.upload import Sent

__all__ = ["Teller", "amount", "listing", "summary"]

_EVERY_S = 5.0
"""Seconds between plain lines while bytes are sent."""
_LISTED = 40
"""The number of names that a dry run shows."""
_STAGES = {"hash": "reading the directory", "send": "sending", "publish": "unpacking in the cluster"}


class Teller:
    """Tells how far a submit is. Enter it for the time of the submit.

    Args:
        again: How to go on after an interruption, once there is a job.
    """

    def __init__(self, again: str) -> None:
        self._again = again
        self._live: Progress | None = None
        self._task: TaskID | None = None
        self._told_at = 0.0

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._live = _progress()
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def making(self, name: str) -> None:
        """The job is about to be made. Whoever is interrupted now does not hear whether it was."""
        farewell(f"The job {name} may have been created. {self._again.format(name=name)}")

    def made(self, name: str, *, again: bool) -> None:
        """The job is there; `again` if it was before."""
        farewell(f"The job {name} stays. {self._again.format(name=name)}")
        self.say(f"{name} is there already: going on with it" if again else f"{name} created")

    def waiting(self, why: str) -> None:
        """Nothing can be sent yet."""
        if self._live is None:
            self.say(f"waiting: {why}")
        else:
            self._show(f"waiting: {why}", None, None)

    def progress(self, progress: "Step") -> None:
        """So many bytes of so many were read, or have arrived."""
        what = _STAGES[progress.stage]
        if self._live is not None:
            self._show(what, progress.done, progress.total)
        elif progress.stage == "send" and time.monotonic() - self._told_at > _EVERY_S:
            self._told_at = time.monotonic()
            self.say(f"{what}: {amount(progress.done)} of {amount(progress.total)}")

    def listed(self, tree: "Tree") -> None:
        """This tree is about to be sent."""
        self.say(summary(tree))
        self.warn(tree)

    def warn(self, tree: "Tree") -> None:
        """Tells if the tree has nothing that a program could run."""
        if not tree.files:
            self.say(f"Warning: {_name(tree)} has no files to send: the workers get an empty directory")

    def sent(self, sent: "Sent | None") -> None:
        """The code has arrived; None if it was there before."""
        if sent is None:
            self.say("the job has this code already")
        else:
            self.say(f"sent {amount(sent.sent)}; the rest was there already" if sent.sent < sent.bytes else "sent")

    def _show(self, text: str, done: int | None, total: int | None) -> None:
        assert self._live is not None
        if self._task is None:
            self._task = self._live.add_task(text, total=total)
        self._live.update(self._task, description=text, completed=done or 0, total=total)

    def say(self, line: str) -> None:
        """Tells a line that stays."""
        if self._live is not None:
            self._live.console.print(line, highlight=False, markup=False)
        else:
            click.echo(line, err=True)


def amount(size: int) -> str:
    """Returns a number of bytes for people: 512 bytes, 1.5 KiB, 20 GiB."""
    value, unit = float(size), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if value >= 10 or unit == "bytes" else f"{value:.1f} {unit}"


def _name(tree: "Tree") -> str:
    from torchctl.client.errors import visible

    return visible(str(tree.root.resolve()))


def summary(tree: "Tree") -> str:
    """Returns what is sent of a directory, and what stays here, as one line."""
    found = f"{counted(tree.files, 'file')}, {amount(tree.bytes)}, of {_name(tree)}"
    reasons = ", ".join(f"{count} {why}" for why, count in sorted(tree.left_out.counts.items()))
    return f"{found}; left out: {reasons}" if reasons else found


def listing(tree: "Tree") -> str:
    """Returns what would be sent of a directory, and what would stay here, with the names."""
    from torchctl.client.errors import visible

    files = [local.member for local in tree.members if local.member.kind != "directory"]
    sent = [f"  {visible(member.path)} ({amount(member.size)})" for member in files[:_LISTED]]
    kept = [f"  {visible(path)} ({why})" for path, why in tree.left_out.paths[:_LISTED]]
    lines = [f"Would send {summary(tree)}", *sent, *_more(len(files)), *(["Would leave out:"] if kept else [])]
    return "\n".join([*lines, *kept, *_more(sum(tree.left_out.counts.values()))])


def _more(count: int) -> list[str]:
    return [f"  and {count - _LISTED} more"] if count > _LISTED else []


def _progress() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TransferSpeedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
    return Progress(*columns, TransferSpeedColumn(), console=Console(stderr=True), transient=True)
