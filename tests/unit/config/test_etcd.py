"""config/etcd and the operator agree on where etcd is, and on who may ask it."""

from pathlib import Path
from typing import Any

import yaml

from torchctl.api.labels import ROLE, ROLE_WORKER
from torchctl.controllers.settings import OperatorSettings

ETCD = Path(__file__).parents[3] / "config" / "etcd"


def manifest(name: str) -> dict[str, Any]:
    body: dict[str, Any] = yaml.safe_load((ETCD / f"{name}.yaml").read_text())
    return body


def test_its_service_is_the_default_endpoint_of_the_operator() -> None:
    service = manifest("service")
    (port,) = service["spec"]["ports"]
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    assert OperatorSettings(image="").etcd_endpoint == f"{name}.{namespace}.svc:{port['port']}"


def test_only_workers_may_reach_it() -> None:
    policy = manifest("network_policy")["spec"]
    (rule,) = policy["ingress"]
    assert rule["from"] == [{"namespaceSelector": {}, "podSelector": {"matchLabels": {ROLE: ROLE_WORKER}}}]
    assert policy["podSelector"] == manifest("deployment")["spec"]["selector"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
