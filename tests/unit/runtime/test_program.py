"""What a program says when it ends by itself."""

import os
import subprocess
import sys
from pathlib import Path

from structlog.testing import capture_logs

from torchctl.runtime.lastresort import EXIT_STUCK
from torchctl.runtime.program import MOST_CAUSES, tell_causes

STUCK = """
import os, signal, threading
import anyio.to_thread
from torchctl.runtime.program import run
from torchctl.runtime.settings import ElectionSettings, RuntimeSettings, ServerSettings

def hang():
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait()  # nothing ever sets it

async def work():
    await anyio.to_thread.run_sync(hang)

settings = RuntimeSettings(
    server=ServerSettings(metrics_port=None, health_port=None),
    election=ElectionSettings(enabled=False),
    shutdown_grace_s=0.1,
    cancel_grace_s=0.1,
)
run("stuck", lambda manager: manager.add_task("work", work), settings=settings)
"""

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: me, user: {}}]
"""


def test_stop_ends_a_program_that_hangs_in_a_thread(tmp_path: Path) -> None:
    """It needs no API server: nothing is watched."""
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    environment = {**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig")}
    done = subprocess.run([sys.executable, "-c", STUCK], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == EXIT_STUCK, done.stderr
    assert "not stopped after 0.2 s" in done.stderr


def test_each_cause_of_the_end_has_its_own_log_line() -> None:
    inner = ExceptionGroup("leadership", [OSError("the port is taken"), RuntimeError("the watch died")])
    with capture_logs() as logs:
        tell_causes(ExceptionGroup("manager", [inner, ValueError("the certificate is none")]))
    said = ["the port is taken", "the watch died", "the certificate is none"]
    assert [line["error"] for line in logs] == said
    assert [line.get("causes") for line in logs] == [3, None, None]
    assert {line["log_level"] for line in logs} == {"critical"}
    assert isinstance(logs[0]["exc_info"], OSError)


def test_only_the_first_of_many_causes_are_logged() -> None:
    """The first line says how many there are in all."""
    with capture_logs() as logs:
        tell_causes(ExceptionGroup("manager", [ValueError(str(number)) for number in range(3 * MOST_CAUSES)]))
    assert (len(logs), logs[0]["causes"]) == (MOST_CAUSES, 3 * MOST_CAUSES)


def test_operator_loads_no_library_for_terminals() -> None:
    """Neither rich, which structlog imports if it can, nor the models of the Python client."""
    script = "import sys, torchctl.cli.run as run, torchctl.runtime.client.kubeconfig; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert {"structlog", "yaml"} <= {*done.stdout.split()}
    assert {"rich", "rich.console", "kubernetes_asyncio"}.isdisjoint(done.stdout.split())


def test_rich_can_be_imported_where_the_operator_is() -> None:
    script = "import torchctl.cli.run, rich.console"
    subprocess.run([sys.executable, "-c", script], check=True)
