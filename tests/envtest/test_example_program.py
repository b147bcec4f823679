"""The program of examples/program as a real process: it leads, works, and gives its Lease up on SIGTERM."""

import sys
from pathlib import Path

import anyio
from waiting import until

from torchctl.runtime.client.client import Client
from torchctl.runtime.kinds import LEASE
from torchctl.testing.controlplane import ControlPlane
from torchctl.testing.namespaces import NAMESPACE

PROGRAM = Path(__file__).parents[2] / "examples" / "program" / "teams.py"

MAIN = f"""
import runpy
from torchctl.runtime.program import run
from torchctl.runtime.settings import ElectionSettings, RuntimeSettings, ServerSettings

setup = runpy.run_path({str(PROGRAM)!r})["setup"]
free_ports = ServerSettings(metrics_port=0, health_port=0)
run("teams", setup, settings=RuntimeSettings(server=free_ports, election=ElectionSettings(lease_namespace=NAMESPACE)))
"""


async def test_program_of_ten_lines_runs_as_a_process(
    control_plane: ControlPlane, admin: Client, namespace: str, tmp_path: Path
) -> None:
    environment = {"KUBECONFIG": str(control_plane.kubeconfig("admin", ["system:masters"])), "PATH": ""}
    command = [sys.executable, "-c", MAIN.replace("NAMESPACE", repr(namespace))]
    with (tmp_path / "log").open("wb") as log:
        async with await anyio.open_process(command, stdout=log, stderr=log, env=environment) as process:
            await admin.merge_patch(NAMESPACE, namespace, {"metadata": {"labels": {"needs-team": ""}}})

            async def labelled() -> bool:
                return (await admin.get(NAMESPACE, namespace)).metadata.labels.get("team") == "nobody"

            await until(labelled)
            assert (await admin.get(LEASE, "teams", namespace)).spec.holder_identity
            process.terminate()
            assert await process.wait() == 0, (tmp_path / "log").read_text()
    assert not (await admin.get(LEASE, "teams", namespace)).spec.holder_identity
