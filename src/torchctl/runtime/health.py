"""Named checks that tell if the process is alive and ready. Each component that makes progress adds its own."""

from asyncio import CancelledError
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Check", "HealthChecks", "Report"]

Check = Callable[[], str]
"""Returns a short complaint, or "" if nothing is wrong. Must not block."""


@dataclass(frozen=True, slots=True)
class Report:
    """The results of the checks of one kind: each one's name and its complaint, "" if it has none."""

    answers: tuple[tuple[str, str], ...]

    @property
    def ok(self) -> bool:
        return not any(complaint for _, complaint in self.answers)

    def text(self, path: str) -> str:
        """Formats the report as kube-apiserver does."""
        lines = [f"[-]{name} failed: {wrong}" if wrong else f"[+]{name} ok" for name, wrong in self.answers]
        return "\n".join([*lines, f"{path} check {'passed' if self.ok else 'failed'}", ""])


@dataclass(slots=True)
class HealthChecks:
    """The checks behind `/healthz` (a failure restarts the container) and `/readyz` (it takes no traffic)."""

    _live: dict[str, Check] = field(default_factory=dict)
    _ready: dict[str, Check] = field(default_factory=dict)

    def add_live(self, name: str, check: Check) -> None:
        """Adds a check to `/healthz`.

        Raises:
            ValueError: The name is taken.
        """
        _add(self._live, name, check)

    def add_ready(self, name: str, check: Check) -> None:
        """Adds a check to `/readyz`.

        Raises:
            ValueError: The name is taken.
        """
        _add(self._ready, name, check)

    def live(self) -> Report:
        return _run(self._live)

    def ready(self) -> Report:
        return _run(self._ready)


def _add(checks: dict[str, Check], name: str, check: Check) -> None:
    if name in checks:
        raise ValueError(f"a check named {name!r} exists already")
    checks[name] = check


def _run(checks: dict[str, Check]) -> Report:
    return Report(tuple((name, _answer(check)) for name, check in sorted(checks.items())))


def _answer(check: Check) -> str:
    try:
        return check()
    except (Exception, CancelledError) as error:  # a check that cannot answer must not hide the answers of the others
        return f"the check raised {error!r}"
