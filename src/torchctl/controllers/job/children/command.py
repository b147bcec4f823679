"""The command of a worker: which lines are handed to torchrun, and how the user's text stays out of scripts.

A simple command takes the place of the shell, which would be the container's first process: that one is deaf to the
SIGTERM of an eviction, and a shell hands none on (dash forks for its only command too).

A line is handed to torchrun if it ends in a simple command (POSIX: assignments, words, redirections) whose command word
is a Python interpreter, and if everything before it only prepares the shell: comments, assignments, `cd`, `export` and
the like, joined by `&&`, `;` or line ends. Any other line (a pipe, another program, two programs, a line with its own
torchrun) runs as it was written, and torchrun finds its settings in PET_*. `python` and `python3` become the `torchrun`
of the same PATH; an interpreter that is named more closely runs torchrun itself.

The user's text is only ever an argument of `sh -c`, never formatted into a script. The kubelet replaces
$(NAME) and $$ in arguments before the shell sees them, so these are escaped: the line arrives as it was written.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from torchctl.api.job import Launcher

__all__ = ["Line", "argv", "in_place", "plain_words", "runs_as_written", "scan", "with_torchrun", "words_with_torchrun"]

_PYTHON = ("python", "python3")
"""Interpreters that are whatever the PATH says, so that the PATH's torchrun stands for them."""
_INTERPRETER = re.compile(r"(?:[A-Za-z0-9_.-]*/)*python(?:3(?:\.[0-9]+t?)?)?\Z")
_PREPARES = ("cd", "export", "set", "ulimit", "umask", "unset")
"""Builtins that start no program and define no trap, function or alias, so that a later `exec` changes nothing."""
_SCRIPT = re.compile(r"""["']?[^-$`"'\\\s<>]""")
"""The beginning of a word that is no option, whatever the shell makes of the word."""
_PROGRAM = re.compile(r"(?:python[0-9.]*|torchrun|[A-Za-z0-9_.-]*/[A-Za-z0-9_./-]+)\Z")
"""Words that are neither a builtin nor a function of the shell, so that `exec` finds what the shell would."""
_PLAIN = re.compile(r"""(?:[A-Za-z0-9_@%+=:,./-]|'[^']*'|"[^"$`\\!]*")+\Z""")
"""A word that the shell only takes the quotes from."""
_OWN_LAUNCHER = re.compile(r"(?:^|[\s;&|()`\"'/])torchrun(?=$|[\s;&|()`\"'<>])|torch\.distributed\.(?:run|launch)\b")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_KUBELET = re.compile(r"\$(?=[$(])")
_REDIRECTION = re.compile(r"[0-9]*[<>]")
_DEEPEST = 32
"""Expansions and quotes within each other."""

_SETUP = 'set -e; eval "$1"; set +e; shift; '
"""Runs the setup line in the same shell; a command of it that fails ends the worker with its status."""
_HOST = (
    'if [ "$JOB_COMPLETION_INDEX" = 0 ]; then h=1; else h=0; fi; '
    'export PET_RDZV_CONF="${PET_RDZV_CONF:+$PET_RDZV_CONF,}is_host=$h"; '
)
"""Tells by the index which pod hosts the store: with the host's network no pod recognises itself by its name."""
_LINE = 'eval "$1"'
_ARGV = 'exec "$@"'


@dataclass(frozen=True, slots=True)
class Line:
    """A simple command in a text, as the spans of its words, assignments and redirections included."""

    text: str
    words: tuple[tuple[int, int], ...]

    def command(self) -> int | None:
        """Index of the command word, after the assignments and `exec`."""
        at = len(list(takewhile(lambda span: _ASSIGNMENT.match(self.text[slice(*span)]), self.words)))
        at += self.word(at) == "exec"
        return at if at < len(self.words) else None

    def prepares(self) -> bool:
        """Whether it only changes the shell in which a later command runs."""
        at = self.command()
        return self.word(at) in _PREPARES if at is not None else self.word(-1) != "exec"

    def word(self, index: int) -> str:
        return self.text[slice(*self.words[index])] if index < len(self.words) else ""


def argv(
    *,
    line: str | None,
    args: Sequence[str],
    setup: str | None = None,
    launcher: Launcher = Launcher.TORCHRUN,
    host_by_index: bool = False,
    split: bool = False,
) -> list[str]:
    """Returns the argv of `trainer`.

    Args:
        line: The user's shell line, or None if `args` is the command.
        setup: The user's line that runs first in the same shell.
        host_by_index: Whether the pod's index decides which pod hosts the rendezvous store.
        split: Whether a line that needs no shell becomes an argv of its own.
    """
    prologue = (_HOST if host_by_index else "") + (_SETUP if setup else "")
    first = [_literal(setup)] if setup else []
    if line is None:
        words = words_with_torchrun(args) if launcher is Launcher.TORCHRUN else list(args)
        return ["sh", "-c", prologue + _ARGV, "sh", *first, *words] if prologue else words
    line = in_place(with_torchrun(line) if launcher is Launcher.TORCHRUN else line)
    plain = plain_words(line) if split and not prologue else None
    if plain is not None:
        return [*map(_literal, plain)]
    return ["sh", "-c", prologue + _LINE, "sh", *first, _literal(line)] if prologue else ["sh", "-c", _literal(line)]


def in_place(line: str) -> str:
    """Returns the line with its program in place of the shell; unchanged if that would change its meaning."""
    simple = scan(line)
    at = None if simple is None else simple.command()
    if simple is None or at is None or not _PROGRAM.match(simple.word(at)):
        return line
    if at and simple.word(at - 1) == "exec":
        return line
    start = simple.words[at][0]
    return f"{line[:start]}exec {line[start:]}"


def plain_words(line: str) -> list[str] | None:
    """The words of a line that is one simple command and means the same without a shell, else None."""
    commands = _commands(line)
    if commands is None or len(commands) != 1:
        return None
    words = [commands[0].word(index) for index in range(len(commands[0].words))]
    words = words[1:] if words[:1] == ["exec"] else words
    if not words or not _PROGRAM.match(words[0]) or not all(map(_PLAIN.match, words)):
        return None
    return [shlex.split(word)[0] for word in words]


def with_torchrun(line: str) -> str:
    """The line with its interpreter replaced by torchrun, or the line itself if that does not apply."""
    simple = scan(line)
    at = None if simple is None else simple.command()
    if simple is None or at is None or not _INTERPRETER.match(simple.word(at)):
        return line
    if _runs_launcher([simple.word(index) for index in range(at + 1, len(simple.words))]):
        return line
    start, end = simple.words[at]
    return line[:start] + " ".join(_torchrun(simple.word(at), simple.word(at + 1))) + line[end:]


def words_with_torchrun(args: Sequence[str]) -> list[str]:
    """The same rule for an argv, which is one simple command by nature."""
    if not _INTERPRETER.match(args[0]) or _runs_launcher(args[1:]):
        return list(args)
    return [*_torchrun(args[0], args[1] if len(args) > 1 else ""), *args[1:]]


def runs_as_written(*, line: str | None, args: Sequence[str], launcher: Launcher) -> bool:
    """Whether torchrun was asked for and the command neither is handed to it nor names it."""
    if launcher is not Launcher.TORCHRUN:
        return False
    if line is None:
        return words_with_torchrun(args) == list(args) and not any(map(_OWN_LAUNCHER.search, args))
    return with_torchrun(line) == line and not _OWN_LAUNCHER.search(line)


def _runs_launcher(words: Sequence[str]) -> bool:
    """Whether an interpreter runs torchrun; what comes after a script or module is for that one to read."""
    for index, word in enumerate(words):
        if _OWN_LAUNCHER.search(word):
            return True
        if word.rstrip("\"'").endswith(".py") or (index and words[index - 1] == "-m"):
            return False
    return False


def _torchrun(python: str, following: str) -> list[str]:
    """torchrun runs a script or `-m module` itself; an interpreter with other flags it is told to run as a program."""
    launcher = ["torchrun"] if python in _PYTHON else [python, "-m", "torch.distributed.run"]
    own = following == "-m" or (_SCRIPT.match(following) and not _REDIRECTION.match(following))
    return launcher if own else [*launcher, "--no-python", python]


def _literal(text: str) -> str:
    return _KUBELET.sub("$$", text)


def scan(text: str) -> Line | None:
    """The last simple command of a text in which all before it only prepares the shell, else None."""
    commands = _commands(text)
    return commands[-1] if commands and all(line.prepares() for line in commands[:-1]) else None


def _commands(text: str) -> list[Line] | None:
    """The simple commands of a text that are joined by `&&`, `;` and line ends alone.

    None if there is anything else in it, a here-document too, or if a shell would not accept it.
    """
    found: list[Line] = []
    words: list[tuple[int, int]] = []
    start: int | None = None
    at, end, more = 0, len(text), False
    while at <= end:
        char = text[at : at + 1] or "\n"
        if char in " \t\n;&|()" and not (char == "&" and text[at - 1 : at] in ("<", ">")):
            if start is not None:
                words.append((start, at))
            start = None
        if text.startswith("\\\n", at):
            at += 2
        elif char in " \t":
            at += 1
        elif start is None and char in "\n;&|()":
            step = 2 if text.startswith("&&", at) else 1
            if (char in "&|()" and step == 1) or not (words or char == "\n"):
                return None
            if words:
                found.append(Line(text, tuple(words)))
                words, more = [], step == 2
            at += step
        elif start is None and char == "#":
            at = text.find("\n", at) if "\n" in text[at:] else end
        elif text.startswith("<<", at):
            return None
        else:
            start = at if start is None else start
            at = _skip(text, at)
    return None if more or start is not None else found


def _skip(text: str, at: int, depth: int = 0) -> int:
    """Returns the index behind the quoted part, expansion or character that begins at `at`.

    The index lies beyond the text if the part has no end, or nests too deeply: such a line is left to the shell.

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
