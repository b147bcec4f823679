"""Whoever makes a ControllerRevision under the name that a job's status has cannot choose its content."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from torchctl.api.kube import ControllerRevision
from torchctl.controllers.job.template.digest import DIGITS, is_sealed, seal
from torchctl.runtime.kinds import ObjectMeta

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)
DATA = st.dictionaries(st.text(), JSON, max_size=4)


def revision(name: str, data: Mapping[str, Any]) -> ControllerRevision:
    return ControllerRevision(metadata=ObjectMeta(name=name, namespace="team", uid="1"), data=dict(data))


@given(DATA)
def test_a_frozen_template_is_recognised_after_json_in_any_order(data: dict[str, Any]) -> None:
    turned = msgspec.json.decode(json.dumps(dict(reversed(data.items()))))
    assert is_sealed(revision(f"demo-{seal(data)}", turned))


@given(DATA, DATA)
def test_other_data_under_that_name_is_not(data: dict[str, Any], other: dict[str, Any]) -> None:
    assert is_sealed(revision(f"demo-{seal(data)}", other)) == (
        json.dumps(data, sort_keys=True) == json.dumps(other, sort_keys=True)
    )


def test_a_part_of_the_digest_is_not_enough() -> None:
    data = {"nodes": 1}
    assert len(seal(data)) == DIGITS == 32
    assert not is_sealed(revision(f"demo-{seal(data)[:10]}", data))
    assert not is_sealed(revision("demo", data))
