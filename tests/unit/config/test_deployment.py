"""What is deployed agrees with itself."""

import re
from pathlib import Path
from typing import Any

import yaml

CONFIG = Path(__file__).parents[3] / "config"


def documents(path: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all((CONFIG / path).read_text()) if document]


def test_images_are_pinned_and_sync_pods_get_the_operators() -> None:
    (deployment,) = documents("manager/deployment.yaml")
    (manager,) = deployment["spec"]["template"]["spec"]["containers"]
    assert re.fullmatch(r"\S+:\d+\.\d+\.\d+", manager["image"])
    assert {"name": "TORCHCTL_IMAGE", "value": manager["image"]} in manager["env"]


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
