"""Runs the core of tests/envtest on every Kubernetes that is pinned, and prints a table of what ran.

Each version has a control plane of its own, built once. A test that needs a later Kubernetes says so by the marker
`kubernetes`; what a version skipped stands below the table. It fails if a test of any version fails.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from torchctl.testing.assets import Settings, ensure
from torchctl.testing.programs import kubernetes_modules, programs_of, version

ROOT = Path(__file__).resolve().parent.parent
CORE = (
    *("test_crds", "test_config", "test_kai_contract"),  # what is installed
    *("test_tenancy", "test_tenancy_running", "test_accepted_specs", "test_bad_input"),  # what is refused, and how
    *("test_controlplane", "test_watch", "test_cache", "test_apply"),  # the runtime
    *("test_seeds", "test_lifecycle", "test_attempts", "test_away", "test_roots"),  # jobs from beginning to end
    *("test_workspaces", "test_storage", "test_deleting", "test_queues", "test_status"),  # what jobs have and leave
)
"""Files of tests/envtest: those that ask something of Kubernetes that no other of them asks."""


@dataclass(frozen=True, slots=True)
class Run:
    """What became of one version's tests."""

    version: str
    seconds: float
    status: int
    cases: tuple[ElementTree.Element, ...]

    def row(self) -> str:
        failed = self.count("failure", "error")
        skipped = self.count("skipped")
        passed = len(self.cases) - failed - skipped
        return f"{self.version:<10} {passed:>7} {failed:>7} {skipped:>8} {self.seconds:>8.0f}"

    def count(self, *outcomes: str) -> int:
        return sum(any(case.find(outcome) is not None for outcome in outcomes) for case in self.cases)

    def skips(self) -> Iterator[str]:
        for case in self.cases:
            if (skipped := case.find("skipped")) is not None:
                yield f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}: {skipped.get('message')}"


def main() -> int:
    pinned = kubernetes_modules()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubernetes", choices=pinned, action="append", help="this version only; may be repeated")
    parser.add_argument("arguments", nargs="*", help="for pytest, after --")
    options = parser.parse_args()
    runs = [run(minor, options.arguments) for minor in options.kubernetes or pinned]
    print(f"\n{'version':<10} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}")
    for each in runs:
        print(each.row())
    for each in runs:
        for skip in each.skips():
            print(f"skipped on {each.version}: {skip}")
    return max(each.status for each in runs)


def run(minor: str, arguments: list[str]) -> Run:
    """Builds what is missing, then tests: the seconds are those of the tests."""
    ensure(settings=Settings.from_environment(environment := os.environ | {"TORCHCTL_KUBERNETES_VERSION": minor}))
    exact = version(programs_of(minor)["kube-apiserver"])
    print(f"\nKubernetes {exact}", flush=True)
    files = [f"tests/envtest/{name}.py" for name in CORE]
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *files, *arguments]
        started = time.monotonic()
        status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        seconds = time.monotonic() - started
        cases = tuple(ElementTree.parse(report).iter("testcase")) if report.exists() else ()
    return Run(exact, seconds, status, cases)


if __name__ == "__main__":
    sys.exit(main())
