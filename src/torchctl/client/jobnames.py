"""Names for jobs: what a name may be, and one that is made from a directory or a script. Pure."""

import re
import unicodedata
from collections.abc import Callable, Sequence

from torchctl.api.names import GROUP, MAX_JOB_NAME
from torchctl.client.errors import UsageError

__all__ = ["SUFFIX_LENGTH", "job_name", "name_problem", "new_name", "script_in"]

SUFFIX_LENGTH = 5
_FIRST = "bcdfghjklmnpqstvwxz"
"""Without r: `-r1234` is the ending of an attempt's name. Without vowels: no suffix is a word."""
_FURTHER = _FIRST + "r2456789"
_LONGEST_STEM = MAX_JOB_NAME - SUFFIX_LENGTH - 1
_KIND = re.compile(rf"\A(?:trj|torchrunjobs?)(?:\.{re.escape(GROUP)})?/")
"""The prefix of a name, as `list -o name` and kubectl write it."""
_OBJECT = re.compile("[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_SCRIPT = re.compile(r"([^\s/\"'=]+)\.py\b")


def name_problem(name: str) -> str:
    """Returns the rule for names that this one breaks; empty if a job can have it."""
    if len(name) > MAX_JOB_NAME or not re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", name):
        return (
            f"A name has at most {MAX_JOB_NAME} lower-case letters, digits and '-', starts with a letter and does not "
            "end in '-'."
        )
    if re.search("-(r|sync-)[0-9]+$", name):
        return "A name must not end in -r<number> or -sync-<number>: attempts and sync pods have such names."
    if name.endswith("-workspace"):
        return "A name must not end in -workspace: the Service of another job's workspace has such a name."
    return ""


def job_name(text: str) -> str:
    """Returns the name of a job that may exist, which a person writes with or without its kind: `vit`, `trj/vit`.

    Raises:
        UsageError: No object can have such a name.
    """
    name = _KIND.sub("", text, count=1)
    if not _OBJECT.fullmatch(name):
        raise UsageError(f"{text!r} is no name of a job", "`kubectl torchrun list` shows their names.")
    return name


def new_name(origin: str, choose: Callable[[Sequence[str]], str]) -> str:
    """Returns a name for a job that nobody else uses, such as `resnet-x7k2p`.

    Args:
        origin: What it is made from, such as the name of a directory.
        choose: Picks one of several characters at random, as `random.SystemRandom().choice` does.
    """
    suffix = choose(_FIRST) + "".join(choose(_FURTHER) for _ in range(SUFFIX_LENGTH - 1))
    return f"{_stem(origin)}-{suffix}"


def script_in(line: str) -> str:
    """Returns the name, without `.py`, of the last Python script in a command; empty if it names none."""
    scripts: list[str] = _SCRIPT.findall(line)
    return scripts[-1] if scripts else ""


def _stem(text: str) -> str:
    ascii_only = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    words = re.sub("[^a-z0-9]+", "-", ascii_only.lower())
    return words.lstrip("-0123456789")[:_LONGEST_STEM].strip("-") or "job"
