"""Traces a test only if it stands among those of a package whose coverage is judged, and is no property test.

To trace a test doubles its time. A property test runs the same lines a hundred times, and most of that time is theirs.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import is_hypothesis_test

if TYPE_CHECKING:
    from coverage import Coverage

__all__ = ["Tracing", "trace"]

UNIT = Path(__file__).parents[1] / "unit"


class Tracing:
    """A plugin that stops and resumes a measurement. The imports of tests are measured in one process of the run."""

    def __init__(self, coverage: "Coverage", config: pytest.Config) -> None:
        packages = coverage.get_option("run:source")
        assert isinstance(packages, list)
        self._judged = [UNIT.joinpath(*package.split(".")[1:]) for package in packages]
        self._coverage = coverage
        self._is_on = True
        runs_none = bool(config.getoption("numprocesses", None))  # the process of pytest-xdist that has workers
        self._switch(not runs_none and getattr(config, "workerinput", {}).get("workerid", "gw0") == "gw0")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Before the fixtures of each test."""
        is_judged = any(item.path.is_relative_to(directory) for directory in self._judged)
        self._switch(is_judged and not is_hypothesis_test(getattr(item, "obj", None)))

    def pytest_sessionfinish(self) -> None:
        """Keeps what a worker of pytest-xdist measured: it is killed if its exit, which would write it, takes long."""
        self._switch(False)
        self._coverage.save()

    def _switch(self, on: bool) -> None:
        if on != self._is_on:
            (self._coverage.start if on else self._coverage.stop)()
            self._is_on = on


def trace(config: pytest.Config) -> None:
    """Registers the plugin if this process measures coverage."""
    if (coverage := sys.modules.get("coverage")) and (measured := coverage.Coverage.current()):
        config.pluginmanager.register(Tracing(measured, config))
