"""`python -m bench`: runs the benchmarks, prints a table and one JSON document."""

import asyncio
import json
import os
import platform
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from bench import cached, commands, coordinator, latency, logs, memory, pauses, requests, sync, upload
from bench.compared import Baseline
from bench.compared import load as load_baseline
from bench.figures import Figure
from torchctl.runtime.logging import configure
from torchctl.runtime.settings import LogSettings

BENCHES: dict[str, Callable[[], Awaitable[list[Figure]]]] = {
    "coordinator": coordinator.measure,
    "commands": commands.measure,
    "cached": cached.measure,
    "pauses": pauses.measure,
    "sync": sync.measure,
    "upload": upload.measure,
    "latency": latency.measure,
    "requests": requests.measure,
    "logs": logs.measure,
    "memory": memory.measure,
}
"""The cheap ones first."""

console = Console(stderr=True, width=None if os.isatty(2) else 130)


@click.command()
@click.option("--only", multiple=True, type=click.Choice([*BENCHES]), help="Run only this one; may be repeated.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Where the JSON goes. Default: standard output.")
def main(only: tuple[str, ...], path: Path | None) -> None:
    """Measure torchctl on a real control plane. The table goes to standard error."""
    configure(LogSettings(level="warning"))
    figures: list[Figure] = []
    loads: dict[str, list[float]] = {}
    for name in only or BENCHES:
        began, load = time.monotonic(), os.getloadavg()[0]
        console.print(f"{name} ...", end=" ")
        figures += asyncio.run(_measured(name))
        loads[name] = [load, os.getloadavg()[0]]
        console.print(f"{time.monotonic() - began:.0f} s")
    baseline = load_baseline()
    console.print(_table(figures, baseline))
    if flows := {figure.name.rpartition(", ")[2]: figure.detail["per_job"] for figure in figures if _counts(figure)}:
        console.print(_flows(flows))
    document = json.dumps({"machine": _machine(loads), "figures": [figure.as_json() for figure in figures]}, indent=2)
    if path is None:
        print(document)
    else:
        path.write_text(document + "\n")


async def _measured(name: str) -> list[Figure]:
    return await BENCHES[name]()


def _table(figures: list[Figure], baseline: Baseline) -> Table:
    table = Table("Benchmark", "Figure", "Value", f"{baseline.version}", "Change", "Goal", "min / median / max")
    for figure in figures:
        goal = "" if figure.goal is None else f"{figure.goal:g} {figure.unit} {'met' if figure.reached else 'MISSED'}"
        found = next((part for part in (figure.detail, *figure.detail.values()) if _is_spread(part)), None)
        shown = " / ".join(f"{found[key]:.4g}" for key in ("min", "median", "max")) if found else ""
        compared = baseline.compare(figure)
        before, change = (f"{compared.before:g}", str(compared)) if compared else ("", "")
        table.add_row(figure.bench, figure.name, f"{figure.value:.4g} {figure.unit}", before, change, goal, shown)
    return table


def _counts(figure: Figure) -> bool:
    return "per_job" in figure.detail


def _flows(flows: dict[str, dict[str, float]]) -> Table:
    """Requests per job by verb and kind, a column for each flow."""
    table = Table("Requests per job", *flows)
    for name in sorted({name for counts in flows.values() for name in counts}):
        table.add_row(name, *(f"{counts[name]:.1f}" if name in counts else "" for counts in flows.values()))
    return table


def _is_spread(part: object) -> bool:
    return isinstance(part, dict) and {"min", "median", "max"} <= part.keys()


def _machine(loads: dict[str, list[float]]) -> dict[str, object]:
    """What the figures depend on besides the code. `load` is the 1 min average before and after each benchmark."""
    packages = ("torchctl", "kubernetes-asyncio", "aiohttp", "msgspec")
    return {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "load": loads,
        "versions": {name: version(name) for name in packages},
    }


if __name__ == "__main__":
    main()
