"""What holds for all tests."""

import gc
import os
from collections.abc import AsyncGenerator, Callable, Generator, Iterator

import effort  # noqa: F401  # registers the profiles
import pytest
import pytest_asyncio
import structlog
from forks import Forks, forks
from hypothesis import settings
from tracing import trace

from torchctl.runtime.cache.detector import MutationDetector
from torchctl.runtime.cache.store import Store
from torchctl.runtime.logging import add_reconcile
from torchctl.runtime.memory import relax

MEASURED = "measured"

settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# structlog's own default prints an exception by rich, with the variables of each frame: seconds of a blocked loop.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        add_reconcile,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S.%f"),
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collecting makes very many objects and hardly any garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """What was collected stays until the end, and operators here collect as seldom as the program does."""
    relax()


def pytest_configure(config: pytest.Config) -> None:
    """Measures the coverage of this process, and not of each program that it starts: that costs a tenth of a second."""
    if hasattr(config, "workerinput"):
        os.environ.pop("COVERAGE_PROCESS_CONFIG", None)
    trace(config)


@pytest.fixture(autouse=True)
def unchanged_caches() -> Iterator[None]:
    """No test changes an object in a cache, and neither does the code that it runs."""
    Store.watched = detector = MutationDetector()
    yield
    Store.watched = None
    assert detector.finish() == []


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Takes a line that is shown at the end of the run, whatever the outcome."""
    return lambda line: request.node.user_properties.append((MEASURED, line))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def starts() -> AsyncGenerator[Forks]:
    """Starts programs of ours within milliseconds."""
    async with forks() as made:
        yield made


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Shows the lines that came with the reports, from whichever process they are."""
    reports = (report for reports in terminalreporter.stats.values() for report in reports)
    called = (report for report in reports if getattr(report, "when", "") == "call")
    if lines := [line for report in called for name, line in report.user_properties if name == MEASURED]:
        terminalreporter.section("measured")
        for line in lines:
            terminalreporter.line(line)
