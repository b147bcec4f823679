"""The comparison of two tellings sees what matters and nothing that is by chance."""

from typing import Any

from snapshots import differences, normalised

OWNER = "11111111-2222-3333-4444-555555555555"
DEAD = "99999999-2222-3333-4444-555555555555"


def an_object(kind: str = "Service", name: str = "job", uid: str = OWNER, **rest: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": uid, "creationTimestamp": "2026-01-02T03:04:05Z", "resourceVersion": "7"}
    return {"kind": kind, "metadata": metadata | rest.pop("metadata", {}), "spec": {}, **rest}


def test_uids_versions_and_times_are_no_differences() -> None:
    later = {"creationTimestamp": "2026-01-02T03:04:06Z", "resourceVersion": "8"}
    one = normalised([an_object()], "team-1", {})
    other = normalised([an_object(uid=DEAD, metadata=later)], "team-2", {})
    assert differences(one, other) == []


def test_reference_to_a_deleted_owner_is_a_difference() -> None:
    def child(owner: str) -> dict[str, Any]:
        return an_object("Pod", "child", "0" * 8 + OWNER[8:], metadata={"ownerReferences": [{"uid": owner}]})

    one = normalised([an_object(), child(OWNER)], "team", {})
    other = normalised([an_object(), child(DEAD)], "team", {})
    assert [line.partition(":")[0] for line in differences(one, other)] == [
        "Pod/child.metadata.ownerReferences[0].uid",
    ]


def test_an_owner_that_was_seen_before_keeps_its_name() -> None:
    known: dict[str, str] = {}
    normalised([an_object("TorchrunJob")], "team", known)
    left = an_object("PersistentVolumeClaim", "kept", DEAD, metadata={"labels": {"job": OWNER}})
    (kept,) = normalised([left], "team", known).values()
    assert kept["metadata"]["labels"] == {"job": "<uid of TorchrunJob job>"}


def test_two_pods_of_one_index_are_two() -> None:
    pods = [
        an_object("Pod", f"job-0-{suffix}", suffix * 8 + OWNER[8:], metadata={"generateName": "job-0-"})
        for suffix in "ab"
    ]
    assert list(normalised(pods, "team", {})) == ["Pod/job-0-<random>", "Pod/job-0-<random> #2"]


def test_a_field_of_the_same_name_elsewhere_is_compared() -> None:
    one = normalised([an_object(status={"resourceVersion": "1"})], "team", {})
    other = normalised([an_object(status={"resourceVersion": "2"})], "team", {})
    assert differences(one, other) == ['Service/job.status.resourceVersion: "1" became "2"']


def test_the_fields_that_the_operator_owns_are_compared() -> None:
    def managed(*managers: str) -> dict[str, Any]:
        fields = [{"manager": manager, "operation": "Apply"} for manager in managers]
        return an_object(metadata={"managedFields": fields})

    alone, beside = normalised([managed("torchctl")], "team", {}), normalised([managed("x", "torchctl")], "team", {})
    assert differences(alone, beside) == []
    assert differences(alone, normalised([managed("x")], "team", {})) != []


def test_only_random_parts_of_a_deleted_pod_are_left_out() -> None:
    def failed(pod: str, node: str) -> dict[str, Any]:
        failure = {"pod": pod, "node": node, "message": f"pod {pod} on node {node} failed"}
        return an_object("TorchrunJob", status={"failure": failure})

    one = normalised([failed("job-r1-0-x7k2p", "node-3")], "team", {})
    assert differences(one, normalised([failed("job-r1-0-bcdf9", "h100-1")], "team", {})) == []
    assert differences(one, normalised([failed("job-r1-1-x7k2p", "node-3")], "team", {})) != []
