"""How old the view of a process may be whose watches were silent while things happened. Pure."""

from collections.abc import Hashable

__all__ = ["DECIDES_S", "Backlog"]

DECIDES_S = 20.0
"""Seconds from the moment at which a process sees what it missed to the last write that it decided on before.

One request may be silent for ten seconds, and a watch that has ended rests for five at most.
"""

_OPEN = float("inf")


class Backlog:
    """Notes which watches keep something back from their client. Times are seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[float, float]] = {}
        """From when to when each watch kept something back last."""

    def keep(self, watch: Hashable, now_s: float) -> None:
        """Notes that a watch keeps back what happens from now on."""
        from_s, to_s = self._kept.get(watch, (now_s, now_s))
        self._kept[watch] = (from_s if now_s - to_s < DECIDES_S else now_s), _OPEN

    def clear(self, watch: Hashable, now_s: float) -> None:
        """Notes that a watch was opened again, which shows all that the last one kept back."""
        from_s, to_s = self._kept.get(watch, (now_s, now_s))
        if to_s == _OPEN:
            self._kept[watch] = from_s, now_s

    def age_s(self, now_s: float) -> float:
        """Returns the seconds by which a view may be old that a process writes by now; 0 if nothing is kept back."""
        return max((now_s - from_s for from_s, to_s in self._kept.values() if now_s - to_s < DECIDES_S), default=0.0)
