"""Alerts watch series that the operator really has."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from torchctl.controllers.coordinator.metrics import CoordinatorMetrics
from torchctl.runtime.metrics import Metrics
from torchctl.runtime.settings import RuntimeSettings

RULES = Path(__file__).resolve().parents[3] / "config" / "prometheus" / "rules.yaml"
ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES.read_text())["spec"]["groups"] for rule in group["rules"]
]


@pytest.fixture(scope="module")
def series() -> set[str]:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics.for_controller("torchrunjob")
    metrics.for_lease("torchctl")
    CoordinatorMetrics(registry)
    return set(re.findall(r"^# TYPE (\w+)", generate_latest(registry).decode(), flags=re.MULTILINE))


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: str(alert["alert"]))
def test_an_alert_names_existing_series(alert: dict[str, Any], series: set[str]) -> None:
    named = re.findall(r"\b(?:torchctl|controller_runtime|workqueue|leader_election)_\w+", alert["expr"])
    assert named
    assert {re.sub("_bucket$", "", name) for name in named} <= series


def test_refused_watch_has_an_alert_before_the_process_restarts() -> None:
    """Liveness fails later, so that somebody hears of it while the operator still runs."""
    alert = next(alert for alert in ALERTS if alert["alert"] == "TorchctlWatchRefused")
    after_s = int(re.findall(r"torchctl_watch_age_seconds\) > (\d+)", alert["expr"])[0])
    assert alert["for"] == "1m"
    assert after_s + 60 < RuntimeSettings().watch_refused_limit_s


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: str(alert["alert"]))
def test_an_alert_says_what_it_means(alert: dict[str, Any]) -> None:
    assert alert["annotations"]["summary"].endswith(".")
    assert alert["annotations"]["description"].endswith(".")
