"""Which fields a fieldsV1 tree covers."""

from typing import Any

import pytest

from torchctl.runtime.fieldset import Path, covers, extract

ITEM = 'k:{"name":"a"}'


@pytest.mark.parametrize(
    ("tree", "value", "asked"),
    [
        ({"f:a": {}}, {"a": 1}, []),
        ({"f:a": {}}, {"a": {}}, []),
        ({"f:a": {}}, {"a": []}, []),
        ({"f:a": {}}, {"a": {"b": None, "c": [], "d": {"e": {}}}}, []),
        ({"f:a": {}}, {"a": {"b": [{"c": ""}]}}, [("f:a",)]),
        ({"f:a": {"f:b": {}}}, {"a": {"b": ["x"]}}, [("f:a", "f:b")]),
        ({"f:a": {ITEM: {".": {}, "f:name": {}, "f:b": {}}}}, {"a": [{"name": "a", "b": [0]}]}, [("f:a", "k:", "f:b")]),
        ({"f:a": {'v:"x"': {}}}, {"a": ["x"]}, []),
    ],
)
def test_only_nodes_that_may_have_lost_fields_are_asked_about(tree: Any, value: Any, asked: list[Path]) -> None:
    told: list[Path] = []

    def is_atomic(path: Path) -> bool:
        told.append(path)
        return True

    assert covers(tree, value, is_atomic)
    assert told == asked
    assert covers(tree, value, lambda path: False) is not bool(asked)


@pytest.mark.parametrize(
    ("tree", "value"),
    [
        ({"f:b": {}}, {"a": 1}),
        ({"f:a": {"f:b": {}}}, {"a": {"c": 1}}),
        ({"f:a": {'v:"y"': {}}}, {"a": ["x"]}),
        ({"f:a": {ITEM: {"f:name": {}}}}, {"a": [{"name": "b"}]}),
    ],
)
def test_field_that_is_missing_is_not_covered(tree: Any, value: Any) -> None:
    assert not covers(tree, value, lambda path: True)


@pytest.mark.parametrize(
    ("tree", "live", "owned"),
    [
        ({"f:a": {}}, {"a": 1, "b": 2}, {"a": 1}),
        ({"f:a": {}, "f:c": {}}, {"a": {"b": [1]}}, {"a": {"b": [1]}}),
        ({"f:a": {".": {}, "f:b": {}}}, {"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}),
        (
            {"f:a": {ITEM: {".": {}, "f:name": {}, "f:b": {}}}},
            {"a": [{"name": "z"}, {"name": "a", "b": 1, "c": 2}]},
            {"a": [{"name": "a", "b": 1}]},
        ),
        ({"f:a": {'v:"x"': {}}}, {"a": ["x", "y"]}, {"a": ["x"]}),
        ({"f:a": {}}, {}, {}),
    ],
)
def test_what_others_own_is_not_extracted(tree: Any, live: Any, owned: Any) -> None:
    assert extract(tree, live) == owned
