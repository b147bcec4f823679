"""The generated schema is structural, described and bounded at every place."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from torchctl.api.crd import crds

Node = dict[str, Any]
Place = tuple[str, Node]


def walk(path: str, node: Node) -> Iterator[Place]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from walk(f"{path}.{name}", child)
    if "items" in node:
        yield from walk(f"{path}[]", node["items"])
    if isinstance(node.get("additionalProperties"), dict):
        yield from walk(f"{path}{{}}", node["additionalProperties"])


def schema(crd: Node) -> Node:
    (version,) = crd["spec"]["versions"]
    node: Node = version["schema"]["openAPIV3Schema"]
    return node


PLACES = [
    (f"{crd['spec']['names']['kind']}.{path}", node)
    for crd in crds()
    for part in ("spec", "status")
    for path, node in walk(part, schema(crd)["properties"][part])
]


@pytest.fixture(params=PLACES, ids=[path for path, _ in PLACES])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.param
    return found


def test_every_field_says_what_it_does(place: Place) -> None:
    path, node = place
    if not path.endswith(("[]", "{}")):
        assert len(node.get("description", "")) > 8


def test_every_value_is_bounded(place: Place) -> None:
    _, node = place
    match node:
        case {"enum": _} | {"format": "date-time"}:
            pass
        case {"type": "string"} | {"x-kubernetes-int-or-string": True}:
            assert "maxLength" in node
        case {"type": "array"}:
            assert "maxItems" in node
            assert "x-kubernetes-list-type" in node
        case {"type": "integer"} | {"type": "number"}:
            assert "minimum" in node
        case {"type": "object", "additionalProperties": _}:
            assert "maxProperties" in node


def test_every_optional_field_of_a_spec_says_its_default() -> None:
    silent = [
        path
        for path, node in PLACES
        if ".spec" in path
        for name, child in node.get("properties", {}).items()
        if name not in node.get("required", ())
        and not path.startswith(("TorchrunQueue.spec.podTemplate", "TorchrunQueue.spec.resources"))
        and "Default" not in child["description"]
        and "Either this or" not in child["description"]
        and "As in a pod" not in child["description"]
    ]
    assert silent == []


def test_no_keyword_of_the_generators_stays_behind(place: Place) -> None:
    _, node = place
    assert not {"title", "$ref", "$defs", "x-written-out", "x-shown", "oneOf", "allOf"} & node.keys()
    assert node.get("default", 0) is not None


def test_a_pod_template_is_kept_at_every_level() -> None:
    kept = {path for path, node in PLACES if node.get("x-kubernetes-preserve-unknown-fields")}
    template = "TorchrunQueue.spec.podTemplate"
    assert {template, f"{template}.metadata", f"{template}.spec", f"{template}.spec.containers[]"} <= kept


def test_fields_that_another_object_decides_have_no_default() -> None:
    decided_elsewhere = ("TorchrunJob.spec.distributed", "TorchrunJob.spec.runPolicy", "TorchrunJob.spec.volumes.")
    defaults = [
        path
        for path, node in PLACES
        if path.startswith(decided_elsewhere) and "default" in node and not path.endswith("datasets[].readOnly")
    ]
    assert defaults == []


def test_columns_and_names_are_the_contract() -> None:
    queue, job = (crd["spec"] for crd in crds())
    columns = [[column["name"] for column in crd["versions"][0]["additionalPrinterColumns"]] for crd in (queue, job)]
    assert columns == [
        ["KaiQueue", "Ready", "Running", "Queued", "GPUs", "Age"],
        ["Queue", "Nodes", "GPUs", "Phase", "Workers", "Restarts", "Age"],
    ]
    assert (queue["names"]["shortNames"], job["names"]["shortNames"]) == (["trq"], ["tj", "trj"])
    assert job["versions"][0]["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.numNodes",
            "statusReplicasPath": ".status.nodes.ready",
            "labelSelectorPath": ".status.selector",
        },
    }


def test_the_gpus_of_many_large_jobs_can_be_written() -> None:
    largest = 100_000 * 1024
    gpus = next(node for path, node in PLACES if path == "TorchrunQueue.status.gpus")
    for name in ("requested", "running"):
        field = gpus["properties"][name]
        assert (field["format"], field["maximum"] >= 1_000_000 * largest) == ("int64", True)


def test_no_rule_compares_optional_fields() -> None:
    """Kubernetes 1.31 and 1.32 estimate such a comparison by the size of the whole object, and refuse the CRD."""
    rules = [
        rule["rule"]
        for crd in crds()
        for _, node in walk("", schema(crd))
        for rule in node.get("x-kubernetes-validations", ())
    ]
    assert len(rules) > 50
    assert [rule for rule in rules if re.search(r"\.\?\w+ *[!=]= *\w+[.\w]*\.\?", rule)] == []
