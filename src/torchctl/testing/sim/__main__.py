"""Lives through random days: `python -m torchctl.testing.sim --seed 1 --hours 24 --days 10`.

Each seed is a day. One that breaks a rule is told, shrunk and written to where `tests/sim/test_days.py` takes it up.
"""

import hashlib
import logging
import sys
import time
from collections import Counter
from pathlib import Path

import click
import structlog

from torchctl.testing.sim.days.actions import Day, read_day, write_day
from torchctl.testing.sim.days.drawing import draw
from torchctl.testing.sim.days.living import Told, live
from torchctl.testing.sim.days.shrinking import cut, shrink

__all__ = ["main"]

KEPT = "tests/sim/failures"
"""The directory, from the root of a clone, whose days are tests."""


@click.command()
@click.option("--seed", default=1, show_default=True, help="The first seed.")
@click.option("--hours", default=24.0, show_default=True, help="Length of a day, in simulated hours.")
@click.option("--days", default=1, show_default=True, help="Number of days; each has the next seed.")
@click.option("--replay", type=click.Path(exists=True, path_type=Path), help="Live through this written day instead.")
@click.option(
    "--keep", default=KEPT, show_default=True, type=click.Path(path_type=Path), help="Where failing days are written."
)
@click.option("--shrink/--no-shrink", "shrinks", default=True, show_default=True, help="Shrink days that fail.")
def main(seed: int, hours: float, days: int, replay: Path | None, keep: Path, *, shrinks: bool) -> None:
    """Live through random days of a simulated cluster, and tell which break a rule."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    chosen = [read_day(replay.read_text())] if replay else [draw(each, hours) for each in range(seed, seed + days)]
    began = time.monotonic()
    told = [_live(day) for day in chosen]
    failing = [cut(day, one.seconds) for day, one in zip(chosen, told, strict=True) if one.broken]
    click.echo(_summary(told, time.monotonic() - began))
    for day in failing:
        _keep(shrink(day, _fails) if shrinks else day, keep)
    sys.exit(bool(failing))


def _live(day: Day) -> Told:
    told = live(day)
    click.echo(f"seed {day.seed}: {len(day.actions)} actions, {told.changes} changes, {_counts(told.ends)}")
    for line in told.broken:
        click.echo(f"  BROKEN {line}")
    return told


def _fails(day: Day) -> bool:
    return bool(live(day).broken)


def _keep(day: Day, directory: Path) -> None:
    text = write_day(day)
    directory.mkdir(parents=True, exist_ok=True)
    # A seed gives other days for other hours, and after a change of what is drawn: none replaces an earlier test.
    file = directory / f"seed-{day.seed}-{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"
    file.write_text(text)
    click.echo(f"seed {day.seed} breaks a rule with {len(day.actions)} actions: {file}")


def _summary(told: list[Told], real_s: float) -> str:
    hours = sum(one.seconds for one in told) / 3600
    ends, incidents = (sum((getattr(one, name) for one in told), Counter[str]()) for name in ("ends", "incidents"))
    lines = (
        f"{len(told)} histories, {hours:.1f} simulated hours in {real_s / 60:.1f} minutes: "
        f"{hours * 60 / max(real_s, 0.001):.0f} simulated hours per real minute",
        f"jobs: {_counts(ends)}",
        f"incidents: {_counts(incidents)}",
        f"failures: {sum(bool(one.broken) for one in told)}",
    )
    return "\n".join(lines)


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counter.items())) or "none"


if __name__ == "__main__":
    main()
