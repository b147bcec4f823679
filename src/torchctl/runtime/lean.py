"""Imports structlog without rich, which costs 5 MiB and 0.1 s of CPU and draws nothing that is logged here.

Import it before structlog, which takes rich for tracebacks on a terminal if it is there; `logging` asks for plain ones
anyway.
"""

import sys

if "structlog" not in sys.modules and "rich" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]  # makes the import fail, as if it were not installed
    try:
        import structlog  # noqa: F401  # from now on it is loaded
    finally:
        del sys.modules["rich"]
