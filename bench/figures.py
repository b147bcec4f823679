"""A measured figure, and what a list of samples says."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["Figure", "percentile", "spread"]


def percentile(samples: Sequence[float], rank: float) -> float:
    """The smallest sample that at least `rank` per cent of the samples do not exceed (nearest rank).

    Args:
        samples: At least one, in any order.
        rank: From 0 (the smallest) to 100 (the largest).

    Raises:
        ValueError: No samples, or a rank that is none.
    """
    if not samples or not 0 <= rank <= 100:
        raise ValueError("a percentile needs samples, and a rank from 0 to 100")
    return sorted(samples)[max(0, math.ceil(len(samples) * rank / 100) - 1)]


def spread(samples: Sequence[float]) -> dict[str, float]:
    """Smallest, median and largest of the samples, and how many there are."""
    return {
        "min": percentile(samples, 0),
        "median": percentile(samples, 50),
        "max": percentile(samples, 100),
        "samples": len(samples),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the result.

    Attributes:
        bench: The benchmark that it belongs to.
        name: What was measured.
        value: The figure.
        unit: Its unit.
        goal: What it should be, None where it is only reported.
        better: Which side of the goal is the good one.
        detail: Samples, definitions: whatever a reader of the JSON may want.
    """

    bench: str
    name: str
    value: float
    unit: str
    goal: float | None = None
    better: Literal["lower", "higher"] = "lower"
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def reached(self) -> bool | None:
        """Whether the goal is reached; None where there is none."""
        if self.goal is None:
            return None
        return self.value <= self.goal if self.better == "lower" else self.value >= self.goal

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "reached": self.reached}
