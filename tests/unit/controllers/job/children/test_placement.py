"""The node affinity that the coordinator's record becomes."""

from typing import Any

import pytest

from torchctl.api.jobstatus import Admission
from torchctl.controllers.job.children.placement import limited

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def field(operator: str, node: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": operator, "values": [node]}


def pod(*terms: dict[str, Any]) -> dict[str, Any]:
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}, "podAffinity": {"kept": True}}
    return {"metadata": {}, "spec": {"containers": [], **({"affinity": affinity} if terms else {})}}


def terms_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    terms: list[dict[str, Any]] = found["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    return terms


@pytest.mark.parametrize("let_in", [None, Admission()])
def test_without_limits_the_pod_is_as_it_was(let_in: Admission | None) -> None:
    assert limited(pod(), let_in) == pod()


@pytest.mark.proves("TorchrunJob.status.admission.avoidNodes")
def test_kept_nodes_are_avoided_in_every_term() -> None:
    avoided = [field("NotIn", "a"), field("NotIn", "b")]
    let_in = Admission(avoid_nodes=("a", "b"))
    assert terms_of(limited(pod(), let_in)) == [{"matchFields": avoided}]
    zone, rack = {"matchExpressions": ["zone"]}, {"matchExpressions": ["rack"], "matchFields": ["own"]}
    found = limited(pod(zone, rack), let_in)
    assert terms_of(found) == [zone | {"matchFields": avoided}, rack | {"matchFields": ["own", *avoided]}]
    assert found["spec"]["affinity"]["podAffinity"] == {"kept": True}


@pytest.mark.proves("TorchrunJob.status.admission.onlyNodes")
def test_nodes_that_are_kept_for_the_job_are_alternatives() -> None:
    """A requirement on the name has one value, so each node is a term, and one term has to hold."""
    zone = {"matchExpressions": ["zone"]}
    found = limited(pod(zone), Admission(only_nodes=("a", "b")))
    assert terms_of(found) == [zone | {"matchFields": [field("In", name)]} for name in ("a", "b")]


def test_the_template_itself_is_left_as_it_is() -> None:
    given = pod({"matchExpressions": ["zone"]})
    limited(given, Admission(only_nodes=("a",)))
    assert given == pod({"matchExpressions": ["zone"]})
