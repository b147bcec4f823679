"""`python -m bench.peers`: measures the peers in turns, prints a table with medians and ratios, and writes JSON."""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

import click
from rich.console import Console
from rich.table import Table

from bench.peers.programs import PEERS
from bench.peers.rounds import Round, measure
from torchctl.testing.controlplane import ControlPlane

CRD = Path(__file__).parent / "crd.yaml"
OURS = "torchctl"
COLUMNS = {"objects_per_s": "objects/s", "cpu_s": "CPU s", "rss_mib": "RSS MiB", "writes": "writes", "reads": "reads"}

Rounds = Mapping[str, Sequence[Round]]

console = Console(stderr=True, width=None if os.isatty(2) else 130)


@click.command()
@click.option("--objects", default=2000, show_default=True, help="Objects per round.")
@click.option("--workers", default=10, show_default=True, help="Reconciles at once.")
@click.option("--rounds", default=3, show_default=True, help="Rounds, in each of which every peer has its turn.")
@click.option("--peer", "peers", multiple=True, type=click.Choice([*PEERS]), help="Only this one; may be repeated.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Also write all rounds to this file.")
def main(objects: int, workers: int, rounds: int, peers: tuple[str, ...], path: Path | None) -> None:
    """For each of N objects one ConfigMap and one status, both by server-side apply: who needs how much?"""
    load = os.getloadavg()[0]
    found = asyncio.run(_measured(peers or (*PEERS,), objects, workers, rounds))
    console.print(_table(found, f"{objects} objects, {workers} workers, {rounds} rounds, load {load:.1f} before"))
    if path is not None:
        taken = {name: [asdict(each) for each in rounds] for name, rounds in found.items()}
        document = {"objects": objects, "workers": workers, "load": load, "rounds": taken}
        path.write_text(json.dumps(document, indent=2) + "\n")


async def _measured(peers: Sequence[str], objects: int, workers: int, rounds: int) -> Rounds:
    found: dict[str, list[Round]] = {name: [] for name in peers}
    for name in peers:
        PEERS[name]("default", workers)  # build and install before anything is measured
    async with ControlPlane(components=("etcd", "kube-apiserver")) as plane, plane.client() as admin:
        await plane.kubectl("apply", "-f", str(CRD))
        await plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        for number in range(rounds + 1):  # round 0 warms the API server up
            first = number % len(peers)  # what the peer before has left behind costs the API server time
            for name in (*peers[first:], *peers[:first]):
                count = objects if number else min(objects, 200)
                taken = await measure(plane, admin, name, objects=count, workers=workers, number=number)
                if number:
                    found[name].append(taken)
                    console.print(f"round {number} {name:<20} {taken.objects_per_s:6.0f}/s {taken.cpu_s:6.2f} CPU s")
    return found


def _table(found: Rounds, title: str) -> Table:
    table = Table("median (min, max)", *COLUMNS.values(), title=title)
    for name, rounds in found.items():
        table.add_row(name, *(_spread([getattr(each, column) for each in rounds]) for column in COLUMNS))
    for name in found:
        if name != OURS and OURS in found:
            table.add_row(f"{OURS} / {name}", *(_ratio(found[OURS], found[name], column) for column in COLUMNS))
    return table


def _spread(values: Sequence[float]) -> str:
    """The median, and in brackets the smallest and the largest."""
    return (
        f"{median(values):.3g} ({min(values):.3g}, {max(values):.3g})"
        if max(values) < 1000
        else f"{median(values):.0f}"
    )


def _ratio(ours: Sequence[Round], theirs: Sequence[Round], column: str) -> str:
    """The median of the rounds' ratios."""
    pairs = [(getattr(us, column), getattr(them, column)) for us, them in zip(ours, theirs, strict=True)]
    return f"{median(us / them for us, them in pairs):.2f}" if all(them for _, them in pairs) else ""


if __name__ == "__main__":
    main()
