"""Each command of the plugin is a process: what it imports, a person waits for."""

import subprocess
import sys


def test_submit_imports_no_logging_library() -> None:
    """structlog costs 0.1 s of CPU, and logs only what the API server warns of."""
    modules = "torchctl.client.submit, torchctl.client.code, torchctl.client.submission"
    script = f"import sys, {modules}\nprint([name for name in ('structlog', 'rich') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_python_without_zstd_has_all_but_compression() -> None:
    """Python 3.14 can be built without its own, and then no other one is installed."""
    missing = "import sys; sys.modules['backports.zstd'] = sys.modules['compression.zstd'] = None"
    script = f"{missing}\nimport torchctl.client.sync, torchctl.workspace.frames as f\nprint(f.ENCODINGS)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "()\n"
