"""Reads which rank failed first, and how, from the termination message of a worker.

torchrun exits 1 whatever its ranks did. The code that counts is the first failing rank's, and torchrun leaves it in one
of two forms. A script that uses `@record` has its exception written into the message, as JSON without the rank.
Otherwise the kubelet takes the end of the log, where torchrun's "Root Cause" block stands, below the ranks' last
output. The kubelet keeps the last 4096 bytes of the one, the last 2048 of the other, and of a pod with more than three
containers only the beginning of these: either form may come without its head or its tail.

A peer that fails takes the others with it, because they lose their connections to it. The errors that they report then
are no cause: `RootCause.follows`.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["RootCause", "root_cause"]

_BLOCK = re.compile(r"Root Cause \(first observed failure\):(.{0,4000})", re.DOTALL)
_RANK = re.compile(r"^\s*rank\s*:\s*(\d+)", re.MULTILINE)
_CODE = re.compile(r"^\s*exitcode\s*:\s*(-?\d+)", re.MULTILINE)
_SIGNAL = re.compile(r"^\s*traceback\s*:\s*(Signal \d+ \(\w+\) received by PID \d+)", re.MULTILINE)
_NOTHING = re.compile(r"^(?:=+|\s*error_file\s*: <N/A>|\s*traceback\s*: To enable traceback see.*)$", re.MULTILINE)
"""Lines of the block that say nothing."""
_AGENT = re.compile(r"^.{0,200}failed \(exitcode: -?\d{1,11}\) local_rank: ", re.MULTILINE)
"""The start of torchrun's own output, below the output of the ranks."""
_OWN = re.compile(r"[DIWE]\d{4} [\d:.]+ \d+ torch/distributed/|(?:INFO|WARNING|ERROR):torch\.distributed\.")
"""The beginning of a line that torchrun logs."""
_PREFIX = re.compile(r"^\[rank(\d+)\]:? ?")
"""The prefix of each line of a traceback that torch prints of a rank in a process group."""
_STOPPED = re.compile(r"SignalException: Process \d+ got signal: (\d+)")
"""torchrun's own end when it is told to stop."""

_HEAD = re.compile(r'\A\{"message": \{"message": "')
_TAIL = re.compile(r'", "timestamp": "\d+"\}(?:, "errorCode": (-?\d+))?\}\}\s*\Z')
_CALLSTACK = '", "extraInfo": {"py_callstack": "'
_LONGEST_ESCAPE = 6

_FOLLOWS = re.compile(
    "|".join(
        (
            r"gloo/transport/",
            r"remote process exited or there was a network error|ncclRemoteError|NCCL communicator was aborted",
            r"Watchdog caught collective operation timeout|from \[\d+\] via c10d key-value store",
            r"DistNetworkError|DistStoreError|Failed to recv, got 0 bytes|client socket has (?:failed|timed out)",
            r"Rendezvous(?:Connection|Timeout|Closed)Error",
        )
    )
)
"""Errors of gloo, NCCL, c10d's store and torchrun's rendezvous that mean that a peer is gone."""

_MAX_MESSAGE = 1024
_MAX_LOG = 2048
"""Bytes of a log that the kubelet takes."""
_MAX_DIGITS = 11


@dataclass(frozen=True, slots=True)
class RootCause:
    """The failure that a termination message reports; a rank or exit code that it does not report is None.

    Args:
        message: What the rank said last, its exception at the end.
        follows: Whether it tells of a peer that is gone: another failure was the first, whenever this one ended.
    """

    rank: int | None = None
    exit_code: int | None = None
    message: str = ""
    follows: bool = False


def root_cause(text: str) -> RootCause:
    """Reads a termination message; any text is accepted."""
    return _recorded(text) or _cut(text) or _logged(text)


# The report of @record.


def _recorded(text: str) -> RootCause | None:
    """The whole file: `{"message": {"message": "ValueError: boom", "errorCode": 1, ...}}`."""
    try:
        report: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    said = report.get("message") if isinstance(report, dict) else None
    if isinstance(said, str):
        return _reported(said, None)
    if not isinstance(said, dict):
        return None
    code = said.get("errorCode")
    known = isinstance(code, int) and not isinstance(code, bool)
    return _reported(str(said.get("message", "")), _number(str(code)) if known else None)


def _cut(text: str) -> RootCause | None:
    """The file without its beginning or without its end."""
    tail = _TAIL.search(text)
    if tail is not None:
        said = _unescaped(text[: tail.start()].rpartition(_CALLSTACK)[2])
        return _reported(said, _number(tail.group(1)) if tail.group(1) else None)
    head = _HEAD.match(text)
    if head is None:
        return None
    said, end, _ = text[head.end() :].partition(_CALLSTACK)
    return _reported(_unescaped(said), None, whole=bool(end))


def _unescaped(part: str) -> str:
    """The text of a part of a JSON string, but for an escape that is cut in two at either end."""
    trimmed = (part[start : len(part) - end] for end in range(_LONGEST_ESCAPE) for start in range(_LONGEST_ESCAPE))
    return next(_strings(trimmed), part)


def _strings(parts: Iterator[str]) -> Iterator[str]:
    for part in parts:
        try:
            yield json.loads(f'"{part}"')
        except ValueError:
            continue


def _reported(said: str, code: int | None, *, whole: bool = True) -> RootCause:
    """Reads an exception's text; `whole` unless its end, and maybe half a number, is cut off."""
    stopped = _STOPPED.search(said) if code is None and whole else None
    if stopped is not None:
        code = _number(f"-{stopped.group(1)}")
    return RootCause(exit_code=code, message=_tail(said), follows=bool(_FOLLOWS.search(_last(said))))


# The end of the log.


def _logged(text: str) -> RootCause:
    blocks = list(_BLOCK.finditer(text))
    if not blocks:
        return _reported(text, None)
    block = blocks[-1].group(1)
    rank, code, ended = (pattern.search(block) for pattern in (_RANK, _CODE, _SIGNAL))
    number = _number(rank.group(1)) if rank else None
    above, is_cut = text[: blocks[-1].start()], len(text.encode(errors="replace")) >= _MAX_LOG
    said = "\n".join(filter(None, (_words(above, number, is_cut=is_cut), ended.group(1) if ended else "")))
    return RootCause(
        rank=number,
        exit_code=_number(code.group(1)) if code else None,
        message=_tail(said or _NOTHING.sub("", block)),
        follows=bool(_FOLLOWS.search(_last(said))),
    )


def _words(above: str, rank: int | None, *, is_cut: bool) -> str:
    """Returns the rank's own output, above torchrun's; empty if the start of torchrun's is cut off."""
    agent = list(_AGENT.finditer(above))
    if not agent:
        return ""
    lines = above[: agent[-1].start()].strip().splitlines()
    if is_cut and len(lines) > 1:
        lines = lines[1:]  # a part of a line, whoever wrote it
    lines = [line for line in lines if not _OWN.match(line)]
    own = [line for line in lines if (said := _PREFIX.match(line)) and int(said.group(1)) == rank]
    return "\n".join(_PREFIX.sub("", line) for line in own or (line for line in lines if not _PREFIX.match(line)))


# Both.


def _last(said: str) -> str:
    """The exception at the end of a traceback."""
    return said[-_MAX_MESSAGE:].rpartition("\n  File ")[2]


def _number(digits: str) -> int | None:
    """The number, unless it is one that a status cannot hold: the text is the user's."""
    number = int(digits) if len(digits) <= _MAX_DIGITS else None
    return number if number is not None and -(2**31) <= number < 2**31 else None


def _tail(text: str) -> str:
    """Returns the end of a log, because the error is there.

    It drops the half characters that JSON can express and UTF-8 cannot.
    """
    stripped = text.strip().encode(errors="replace").decode()
    return stripped if len(stripped) <= _MAX_MESSAGE else "..." + stripped[-(_MAX_MESSAGE - 3) :]
