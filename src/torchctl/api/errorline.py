"""Picks the line of a failure's message that says what went wrong. Pure.

The operator's conditions and the tables of the plugin show one line. It is the exception below the last frame of a
traceback, because warnings may stand above it and below it, but not one that Python reports and ignores. A signal that
torchrun names comes after everything that the program said, and counts more. Without either the last line counts,
unless it is a warning.
"""

import re

__all__ = ["error_line"]

_FRAME = re.compile(r'^\s*File ".*", line \d+')
_SIGNAL = re.compile(r"^\s*Signal \d+ \(\w+\) received by PID \d+\s*$")
_MARGIN = re.compile(r"^\[rank\d+\]:? ?|^[\s|]*\|\s")
"""The prefix of each line that torch prints of a rank in a process group, and the margin of an exception group."""
_WARNING = re.compile(r"^\S+:\d+: \w*Warning: |^\w*Warning: |^\[W(?:\d+ [\d:.]+)? [^\]\s]+:\d+\]")
"""A warning as Python's `warnings` and as torch's C++ prints it."""
_SAYS_NOTHING = re.compile(r"^\W*$")


def error_line(message: str) -> str:
    """Returns the line that says what went wrong; empty if none says anything."""
    lines = [line for said in message.splitlines() if not _SAYS_NOTHING.match(line := _MARGIN.sub("", said))]
    if not lines or _SIGNAL.match(lines[-1]):
        return "".join(lines[-1:]).strip()
    lines = _without_ignored(lines) or lines
    last_frame = max((number for number, line in enumerate(lines) if _FRAME.match(line)), default=None)
    if last_frame is None:
        return (_without_warnings(lines) or lines)[-1].strip()
    return next((line for line in lines[last_frame + 1 :] if not line[0].isspace()), lines[-1]).strip()


def _without_ignored(lines: list[str]) -> list[str]:
    """The lines but for exceptions that Python reports and goes on, such as those of destructors as it ends."""
    kept, ignored = list[str](), False
    for line in lines:
        if line.startswith("Exception ignored "):
            ignored = True
        elif ignored:
            ignored = line[0].isspace() or line.startswith("Traceback ")  # the exception itself is the last line
        else:
            kept.append(line)
    return kept


def _without_warnings(lines: list[str]) -> list[str]:
    """The lines but for warnings, each with the line of source that Python shows below it."""
    warned = [_WARNING.match(line) is not None for line in lines]
    sources = [above and line.startswith("  ") for above, line in zip([False, *warned], lines, strict=False)]
    return [line for line, *skipped in zip(lines, warned, sources, strict=True) if not any(skipped)]
