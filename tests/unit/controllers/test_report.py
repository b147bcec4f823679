"""What the API server says of a CRD that is older than the operator."""

import pytest

from torchctl.controllers.report import undeclared_field


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (
            "failed to create typed patch object (team/demo; torchrun.ai/v1alpha1, Kind=TorchrunJob): "
            ".status.hostUid: field not declared in schema",
            "status.hostUid",
        ),
        (
            "failed to create typed patch object (team/demo; torchrun.ai/v1alpha1, Kind=TorchrunJob): errors:\n"
            "  .status.restarts.recentByCause: field not declared in schema\n"
            "  .status.hostUid: field not declared in schema",
            "status.restarts.recentByCause",
        ),
        ("etcdserver: request timed out", None),
    ],
)
def test_an_older_crd_is_told_by_the_field_it_lacks(message: str, field: str | None) -> None:
    assert undeclared_field(message) == field
