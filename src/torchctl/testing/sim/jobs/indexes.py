"""Completion indexes as the Job controller writes them, such as `1,3-5,7`. Pure."""

from collections.abc import Iterable

__all__ = ["parse", "text"]


def parse(text: str) -> frozenset[int]:
    """Returns the indexes of a text."""
    ranges = [part.partition("-") for part in text.split(",") if part]
    return frozenset(index for first, _, last in ranges for index in range(int(first), int(last or first) + 1))


def text(indexes: Iterable[int]) -> str:
    """Returns the text of some indexes: two that follow each other are listed, three are a range."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(_run(run[0], run[-1]) for run in runs)


def _run(first: int, last: int) -> str:
    if last - first < 2:
        return ",".join(str(index) for index in range(first, last + 1))
    return f"{first}-{last}"
