"""Which rank failed first, and how: read from what a worker left in its termination message.

torchrun exits 1 whatever its ranks did. The code that counts is the first failing rank's: in the report of
`@record` (JSON), or in torchrun's "Root Cause" block, or, where neither is there, the container's own.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

__all__ = ["RootCause", "root_cause"]

_BLOCK = re.compile(r"Root Cause \(first observed failure\):(.{0,4000})", re.DOTALL)
_RANK = re.compile(r"^\s*rank\s*:\s*(\d+)", re.MULTILINE)
_CODE = re.compile(r"^\s*exitcode\s*:\s*(-?\d+)", re.MULTILINE)
_MAX_MESSAGE = 1024
_MAX_DIGITS = 11


@dataclass(frozen=True, slots=True)
class RootCause:
    """What a termination message says; None where it says nothing."""

    rank: int | None = None
    exit_code: int | None = None
    message: str = ""


def root_cause(text: str) -> RootCause:
    """Reads a termination message; any text is accepted."""
    recorded = _recorded(text)
    if recorded is not None:
        return recorded
    blocks = _BLOCK.findall(text)
    block = blocks[-1] if blocks else ""
    rank, code = _RANK.search(block), _CODE.search(block)
    return RootCause(
        rank=_number(rank.group(1)) if rank else None,
        exit_code=_number(code.group(1)) if code else None,
        message=_tail(text),
    )


def _recorded(text: str) -> RootCause | None:
    """The file that `@record` writes: `{"message": {"message": "ValueError: boom", "errorCode": 1, ...}}`."""
    try:
        report: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    said = report.get("message") if isinstance(report, dict) else None
    if isinstance(said, str):
        return RootCause(message=_tail(said))
    if not isinstance(said, dict):
        return None
    code = said.get("errorCode")
    return RootCause(
        exit_code=_number(str(code)) if isinstance(code, int) and not isinstance(code, bool) else None,
        message=_tail(str(said.get("message", ""))),
    )


def _number(digits: str) -> int | None:
    """The number, unless it is one that a status cannot hold: the text is the user's."""
    number = int(digits) if len(digits) <= _MAX_DIGITS else None
    return number if number is not None and -(2**31) <= number < 2**31 else None


def _tail(text: str) -> str:
    """The end of a log, where the error is; without the half characters that JSON can say and UTF-8 cannot."""
    stripped = text.strip().encode(errors="replace").decode()
    return stripped if len(stripped) <= _MAX_MESSAGE else "..." + stripped[-(_MAX_MESSAGE - 3) :]
