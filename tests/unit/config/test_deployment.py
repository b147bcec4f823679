"""What is deployed agrees with itself."""

import re
from pathlib import Path
from typing import Any

import yaml

from torchctl.cli.run import run
from torchctl.runtime.server import METRICS

CONFIG = Path(__file__).parents[3] / "config"


def documents(path: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all((CONFIG / path).read_text()) if document]


def test_images_are_pinned_and_sync_pods_get_the_operators() -> None:
    (deployment,) = documents("manager/deployment.yaml")
    (manager,) = deployment["spec"]["template"]["spec"]["containers"]
    assert re.fullmatch(r"\S+:\d+\.\d+\.\d+", manager["image"])
    assert {"name": "TORCHCTL_IMAGE", "value": manager["image"]} in manager["env"]


def test_every_dependency_is_locked_by_version_and_hash() -> None:
    lock = (CONFIG.parent / "requirements-dev.txt").read_text()
    _, *entries = re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE)
    assert len(entries) > 50
    locked = re.compile(r"[a-z0-9._\[\]-]+==\S+ .*--hash=sha256:", re.DOTALL)
    assert [entry for entry in entries if not locked.match(entry)] == []


def test_the_flags_of_the_manager_are_flags_of_the_program() -> None:
    (deployment,) = documents("manager/deployment.yaml")
    (manager,) = deployment["spec"]["template"]["spec"]["containers"]
    program, *flags = manager["args"]
    assert program == run.name
    options = run.make_context("run", [*flags, f"--image={manager['image']}"]).params
    assert options["metrics_auth"]
    (mount,) = (mount for mount in manager["volumeMounts"] if mount["mountPath"] == options["metrics_cert_dir"])
    (volume,) = (
        volume for volume in deployment["spec"]["template"]["spec"]["volumes"] if volume["name"] == mount["name"]
    )
    assert volume["secret"] == {"secretName": "torchctl-metrics-cert", "optional": True}


def test_prometheus_asks_as_the_manager_answers() -> None:
    (monitor,) = documents("prometheus/service_monitor.yaml")
    (service,) = documents("manager/service.yaml")
    (role,) = documents("rbac/metrics_reader.yaml")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert (endpoint["scheme"], endpoint["path"]) == ("https", METRICS)
    assert endpoint["bearerTokenFile"].endswith("/serviceaccount/token")
    assert endpoint["tlsConfig"] == {"insecureSkipVerify": True}, "self-signed until there is a Secret"
    assert role["metadata"]["name"] == "torchctl-metrics-reader"
    assert role["rules"] == [{"nonResourceURLs": [METRICS], "verbs": ["get"]}]


def test_the_pods_that_are_selected_are_the_managers() -> None:
    (deployment,) = documents("manager/deployment.yaml")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    (service,) = documents("manager/service.yaml")
    (budget,) = documents("manager/pod_disruption_budget.yaml")
    (policy,) = documents("manager/network_policy.yaml")
    for selector in (
        deployment["spec"]["selector"]["matchLabels"],
        service["spec"]["selector"],
        budget["spec"]["selector"]["matchLabels"],
        policy["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
