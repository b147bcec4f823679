"""Rules for jobs of one name that may be the same."""

from typing import Any

import pytest

from torchctl.api.job import JobSpec
from torchctl.client.difference import difference

SPEC: dict[str, Any] = {"jobQueue": "q", "numNodes": 2, "command": "python train.py"}


def between(there: dict[str, Any], asked: dict[str, Any]) -> str:
    return difference(JobSpec.model_validate(SPEC | there), JobSpec.model_validate(SPEC | asked))


@pytest.mark.parametrize(
    ("there", "asked"),
    [
        ({}, {}),
        ({"launcher": "torchrun", "queueUpdatePolicy": "Frozen", "suspend": False}, {}),
        ({"suspend": True}, {}),
        ({"volumes": {"workspace": {"source": "zip", "revision": "a" * 64}}}, {"volumes": {"workspace": {}}}),
        ({"env": []}, {}),
    ],
)
def test_defaults_and_what_changes_later_are_no_difference(there: dict[str, Any], asked: dict[str, Any]) -> None:
    assert between(there, asked) == ""


def test_first_field_that_differs_is_named() -> None:
    assert between({}, {"numNodes": 3}) == "spec.numNodes is 2, and 3 was asked for"
    assert between({"image": "a"}, {}) == "spec.image is 'a', and not set was asked for"
    found = between({"volumes": {"workspace": {"source": "zip"}}}, {"volumes": {"workspace": {"enabled": False}}})
    assert found == "spec.volumes.workspace.enabled is not set, and False was asked for"
