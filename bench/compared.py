"""Figures beside those of an earlier version, which `baseline.json` has."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Figure

__all__ = ["TOLERANCE", "Baseline", "Compared", "load"]

TOLERANCE = 0.1
"""By which part of it a figure may be worse than it was: so much differs from run to run."""

BASELINE = Path(__file__).parent / "baseline.json"


@dataclass(frozen=True, slots=True)
class Compared:
    """A figure before and after. `change` is its relative growth (0.1: by a tenth), `worse` tells if that is bad."""

    before: float
    change: float
    worse: bool

    def __str__(self) -> str:
        return f"{self.change:+.0%}{' WORSE' if self.worse else ''}"


@dataclass(frozen=True, slots=True)
class Baseline:
    """Attributes: `version`, the commit that was measured; `figures`, values by `benchmark: name`."""

    version: str
    figures: Mapping[str, float]

    def compare(self, figure: Figure) -> Compared | None:
        """None where nobody measured that figure then."""
        before = self.figures.get(f"{figure.bench}: {figure.name}")
        if not before:
            return None
        change = figure.value / before - 1
        return Compared(before, change, (change if figure.better == "lower" else -change) > TOLERANCE)


def load(path: Path = BASELINE) -> Baseline:
    """Reads a baseline."""
    found = json.loads(path.read_text())
    return Baseline(found["version"], found["figures"])
