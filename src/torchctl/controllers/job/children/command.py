"""The command of a worker: which lines are handed to torchrun, and how the user's text stays out of scripts.

A simple command takes the place of the shell, which would be the container's first process: that one is deaf to the
SIGTERM of an eviction, and a shell hands none on (dash forks for its only command too).

A line is handed to torchrun when it is one simple command (POSIX: assignments, words, redirections) whose
command word is python or python3. Whatever else it is (a pipe, a list, several lines, a line with its own
torchrun) runs as it was written, and torchrun finds its settings in PET_*.

The user's text is only ever an argument of `sh -c`, never formatted into a script. The kubelet replaces
$(NAME) and $$ in arguments before the shell sees them, so these are escaped: the line arrives as it was written.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from torchctl.api.job import Launcher

__all__ = ["Line", "argv", "in_place", "scan", "with_torchrun", "words_with_torchrun"]

_PYTHON = ("python", "python3")
_PROGRAM = re.compile(r"(?:python[0-9.]*|torchrun|[A-Za-z0-9_.-]*/[A-Za-z0-9_./-]+)\Z")
"""Words that are neither a builtin nor a function of the shell, so that `exec` finds what the shell would."""
_OWN_LAUNCHER = re.compile(r"(?:^|[\s;&|()`\"'/])torchrun(?=$|[\s;&|()`\"'<>])|torch\.distributed\.(?:run|launch)\b")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_KUBELET = re.compile(r"\$(?=[$(])")
_REDIRECTION = re.compile(r"[0-9]*[<>]")
_DEEPEST = 32
"""Expansions and quotes within each other."""

_SETUP = 'set -e; eval "$1"; set +e; shift; '
"""The setup line in the same shell, where any failing command of it ends the worker with its status."""
_HOST = (
    'if [ "$JOB_COMPLETION_INDEX" = 0 ]; then h=1; else h=0; fi; '
    'export PET_RDZV_CONF="${PET_RDZV_CONF:+$PET_RDZV_CONF,}is_host=$h"; '
)
"""With the host's network no pod recognises itself by its name, so the index says who hosts the store."""
_LINE = 'eval "$1"'
_ARGV = 'exec "$@"'


@dataclass(frozen=True, slots=True)
class Line:
    """A simple command: where its words begin and end, assignments and redirections included."""

    text: str
    words: tuple[tuple[int, int], ...]

    def command(self) -> int | None:
        """Index of the command word, after the assignments."""
        assignments = list(takewhile(lambda span: _ASSIGNMENT.match(self.text[slice(*span)]), self.words))
        return len(assignments) if len(assignments) < len(self.words) else None

    def word(self, index: int) -> str:
        return self.text[slice(*self.words[index])] if index < len(self.words) else ""


def argv(
    *,
    line: str | None,
    args: Sequence[str],
    setup: str | None = None,
    launcher: Launcher = Launcher.TORCHRUN,
    host_by_index: bool = False,
) -> list[str]:
    """The argv of `trainer`.

    Args:
        line: The user's shell line, or None where `args` is the command.
        setup: The user's line that runs first in the same shell.
        host_by_index: The rendezvous store's host is told by the pod's index.
    """
    prologue = (_HOST if host_by_index else "") + (_SETUP if setup else "")
    first = [_literal(setup)] if setup else []
    if line is None:
        words = words_with_torchrun(args) if launcher is Launcher.TORCHRUN else list(args)
        return ["sh", "-c", prologue + _ARGV, "sh", *first, *words] if prologue else words
    line = in_place(with_torchrun(line) if launcher is Launcher.TORCHRUN else line)
    return ["sh", "-c", prologue + _LINE, "sh", *first, _literal(line)] if prologue else ["sh", "-c", _literal(line)]


def in_place(line: str) -> str:
    """The line with its program in place of the shell, or the line itself where that would be another line."""
    simple = scan(line)
    at = None if simple is None else simple.command()
    if simple is None or at is None or not _PROGRAM.match(simple.word(at)):
        return line
    start = simple.words[at][0]
    return f"{line[:start]}exec {line[start:]}"


def with_torchrun(line: str) -> str:
    """The line with its interpreter replaced by torchrun, or the line itself where that does not apply."""
    simple = None if _OWN_LAUNCHER.search(line) else scan(line)
    at = None if simple is None else simple.command()
    if simple is None or at is None or simple.word(at) not in _PYTHON:
        return line
    start, end = simple.words[at]
    return line[:start] + "torchrun" + _keep(simple.word(at), simple.word(at + 1)) + line[end:]


def words_with_torchrun(args: Sequence[str]) -> list[str]:
    """The same rule for an argv, which is one simple command by nature."""
    if args[0] not in _PYTHON or any(_OWN_LAUNCHER.search(word) for word in args[1:3]):
        return list(args)
    kept = _keep(args[0], args[1] if len(args) > 1 else "").split()
    return ["torchrun", *kept, *args[1:]]


def _keep(python: str, following: str) -> str:
    """torchrun runs a script or `-m module` itself; an interpreter with other flags it is told to run as a program."""
    script = following and not following.startswith("-") and not _REDIRECTION.match(following)
    return "" if script or following == "-m" else f" --no-python {python}"


def _literal(text: str) -> str:
    return _KUBELET.sub("$$", text)


def scan(text: str) -> Line | None:
    """The words of a line if it is one simple command, else None: also for a line that a shell would not accept."""
    words: list[tuple[int, int]] = []
    start: int | None = None
    at, end = 0, len(text.rstrip())
    while at <= end:
        char = text[at] if at < end else " "
        if char in " \t" or text.startswith("\\\n", at):
            if start is not None:
                words.append((start, at))
            start, at = None, at + (2 if char == "\\" else 1)
            continue
        if char == "\n" and not words and start is None:
            at += 1
            continue
        if char in "\n;|()" or (char == "&" and text[at - 1 : at] not in ("<", ">")):
            return None
        if char == "#" and start is None:
            return None if "\n" in text[at:end] else Line(text, tuple(words))
        start = at if start is None else start
        at = _skip(text, at)
        if at > end:
            return None
    return Line(text, tuple(words))


def _skip(text: str, at: int, depth: int = 0) -> int:
    """Behind the quoted part, expansion or character that begins at `at`; beyond the text where it has no end.

    Nor has what nests too deeply: such a line is left to the shell.
    """
    if text[at] == "\\":
        return at + 2
    if text[at] == "'":
        return _behind(text.find("'", at + 1), 1, text)
    if text[at] == '"':
        return _nested(text, at + 1, '"', depth)
    if text[at] == "`":
        return _nested(text, at + 1, "`", depth)
    for opening, closing in (("$(", ")"), ("${", "}")):
        if text.startswith(opening, at):
            return _nested(text, at + 2, closing, depth)
    return at + 1


def _nested(text: str, at: int, closing: str, depth: int) -> int:
    if depth > _DEEPEST:
        return len(text) + 1
    while at < len(text) and text[at] != closing:
        if text[at] == "'" and closing == '"':
            at += 1
        elif text[at] == "(" and closing == ")":
            at = _nested(text, at + 1, ")", depth + 1)
        else:
            at = _skip(text, at, depth + 1)
    return at + 1 if at < len(text) else len(text) + 1


def _behind(found: int, length: int, text: str) -> int:
    return len(text) + 1 if found < 0 else found + length
