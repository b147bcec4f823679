"""What many objects have in common is kept once; what makes them differ is not touched."""

import copy
import json
import sys
from typing import Any

import msgspec
import pytest

from torchctl.api.kube import POD, PVC
from torchctl.runtime.client import intern
from torchctl.runtime.client.codec import Added, Codec
from torchctl.runtime.kinds import Kind, ObjectMeta

BODY: dict[str, Any] = {
    "metadata": {
        "name": "p",
        "namespace": "team",
        "uid": "u",
        "labels": {"queue": "gpu"},
        "annotations": {"note": "mine"},
        "finalizers": ["job-tracking"],
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "o"}],
    },
    "spec": {"nodeName": "node-0", "free": {"form": ["a"]}},
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
}


class OddSpec(msgspec.Struct, frozen=True):
    labels: dict[str, str] | None = {}


def decode(codec: Codec, body: dict[str, Any] = BODY, kind: Kind[Any] = POD) -> Any:
    """Returns an object as a watch brings it."""
    event = codec.decode_event(kind, msgspec.json.encode({"type": "ADDED", "object": body}))
    assert isinstance(event, Added)
    return event.object


def in_common(pod: Any) -> list[Any]:
    meta, condition = pod.metadata, pod.status.conditions[0]
    words = [meta.namespace, meta.labels["queue"], pod.spec.node_name, pod.status.phase, condition.type]
    return [*words, meta.finalizers, meta.owner_references]


def test_what_pods_have_in_common_is_one_object() -> None:
    codec = Codec()
    one, two = in_common(decode(codec)), in_common(decode(codec))
    assert all(first is second for first, second in zip(one, two, strict=True))


def test_sharing_changes_no_value() -> None:
    codec = Codec()
    decode(codec)
    assert decode(codec) == msgspec.json.decode(msgspec.json.encode(BODY), type=POD.type)


def test_equal_conditions_without_messages_share_one_tuple() -> None:
    """Conditions with messages share only their words."""
    codec, silent, loud = Codec(), copy.deepcopy(BODY), copy.deepcopy(BODY)
    loud["status"]["conditions"][0] |= {"message": "0/3 nodes are available"}
    assert decode(codec, silent).status.conditions is decode(codec, silent).status.conditions
    one, two = decode(codec, loud).status.conditions, decode(codec, loud).status.conditions
    assert one is not two
    assert one[0].type is two[0].type
    assert one[0].message == "0/3 nodes are available"


def test_what_is_called_labels_and_is_none_is_left_alone() -> None:
    class Odd(msgspec.Struct, frozen=True):
        metadata: ObjectMeta
        spec: OddSpec = OddSpec()

    codec, kind = Codec(), Kind("", "v1", "Odd", "odds", Odd)
    odd = decode(codec, {"metadata": {"name": "a"}, "spec": {"labels": None}}, kind)
    assert odd == Odd(ObjectMeta("a"), OddSpec(None))


def test_a_spec_that_is_kept_whole_is_left_alone() -> None:
    codec, body = Codec(), copy.deepcopy(BODY)
    claim = decode(codec, {"metadata": body["metadata"], "spec": body["spec"]}, PVC)
    assert claim.spec == body["spec"]


@pytest.mark.parametrize("size", [1, 100, 8192])
def test_unique_values_do_not_pile_up(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(intern, "BUDGET", 20_000)
    codec = Codec()
    for index in range(1000):
        body = copy.deepcopy(BODY)
        body["metadata"]["labels"] = {"index": f"{index:0{size}}"}
        body["metadata"]["finalizers"] = [f"{index:0{size}}"]
        decode(codec, body)
    assert sum(map(sys.getsizeof, codec._intern._known)) < 25_000


def test_text_that_hardly_repeats_is_not_kept() -> None:
    codec, body = Codec(), copy.deepcopy(BODY)
    body["metadata"]["labels"] = {"long": "x" * 1000}
    decode(codec, body)
    assert "x" * 1000 not in codec._intern._known


def test_children_of_one_form_share_what_was_applied() -> None:
    """Only the uid of their owners differs."""

    def managed(uid: str) -> Any:
        body = copy.deepcopy(BODY)
        fields: dict[str, Any] = {
            "f:metadata": {"f:ownerReferences": {"k:" + json.dumps({"uid": uid}, separators=(",", ":")): {}}},
            "f:spec": {},
        }
        body["metadata"]["managedFields"] = [
            {"manager": "torchctl", "operation": "Apply", "fieldsV1": fields},
            {"manager": "torchctl", "operation": "Apply", "subresource": "status", "fieldsV1": {}},
            {"manager": "kubelet", "operation": "Update", "fieldsV1": {}},
        ]
        return decode(codec, body).metadata

    codec = Codec()
    one, two = managed("one"), managed("two")
    assert [entry.manager for entry in one.applied] == ["torchctl"]
    assert one.applied is two.applied
    assert one.managed_fields == ()
