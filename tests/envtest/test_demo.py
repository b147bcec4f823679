"""`make demo`, the first thing that the README offers, in a process of its own."""

import sys
from pathlib import Path

import anyio

CLONE = Path(__file__).resolve().parents[2]


async def test_the_demo_runs_a_job_to_succeeded() -> None:
    done = await anyio.run_process([sys.executable, str(CLONE / "hack" / "demo.py")], check=False)
    said = done.stdout.decode()
    assert done.returncode == 0, f"{said}\n{done.stderr.decode()}"
    assert "Succeeded after" in said
