"""Apply's decision: when it sends, what it sends, and what it never touches."""

from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from managed import applied

from torchctl.runtime import intent as module
from torchctl.runtime.drift import DriftDetector
from torchctl.runtime.intent import (
    INTENT_ANNOTATION,
    NO_VERSION,
    Decision,
    Operation,
    Ownership,
    controlled_by,
    digest_of,
    with_immutable,
)
from torchctl.runtime.kinds import ObjectMeta, OwnerReference

OURS = controlled_by("owner-uid")
OWNER = OwnerReference(api_version="v1", kind="Owner", name="o", uid="owner-uid", controller=True)


def service(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "n"}, "spec": spec}


def job(image: str, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "trainer", "image": image}]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "n"},
        "spec": {"template": template, **spec},
    }


def live_from(
    intent: dict[str, Any], *, atomic: tuple[str, ...] = (), **meta: Any
) -> tuple[ObjectMeta, dict[str, Any]]:
    annotations = {INTENT_ANNOTATION: digest_of(intent)}
    live = {key: value for key, value in deepcopy(intent).items() if key not in ("apiVersion", "kind")}
    fields = applied(intent, atomic=atomic)
    return ObjectMeta(uid="u", owner_references=(OWNER,), annotations=annotations, applied=fields, **meta), live


def decide(
    intent: dict[str, Any], meta: ObjectMeta | None, live: dict[str, Any] | None, ours: Ownership, **options: Any
) -> Decision:
    def drifted() -> bool:
        return meta is not None and DriftDetector("torchctl").drifted(intent, meta)

    decision = module.decide(intent, meta, ours, manager="torchctl", **{"drifted": drifted, **options})
    if decision.operation is not Operation.UPDATE or decision.body is None:
        return decision
    return Decision(Operation.UPDATE, with_immutable(decision.body, live or {}))


def lost(meta: ObjectMeta, intent: dict[str, Any], **still: Any) -> ObjectMeta:
    """The object after somebody has changed fields of it: `still` is the part of the spec that is ours."""
    return msgspec.structs.replace(meta, applied=applied({**intent, "spec": still}))


def test_what_is_absent_is_created_with_its_digest() -> None:
    intent = service(clusterIP="None")
    decision = decide(intent, None, None, OURS)
    assert decision.operation is Operation.CREATE
    assert decision.body is not None
    assert decision.body["metadata"]["annotations"] == {INTENT_ANNOTATION: digest_of(intent)}
    assert decision.body["metadata"]["resourceVersion"] == NO_VERSION
    assert intent["metadata"].keys().isdisjoint({"annotations", "resourceVersion"})


def test_an_object_as_intended_is_kept() -> None:
    intent = service(ports=[{"name": "rdzv", "port": 29500}])
    meta, live = live_from(intent)
    live["spec"]["ports"][0]["protocol"] = "TCP"
    live["spec"]["ports"].append({"name": "mesh", "port": 1})
    assert decide(intent, meta, live, OURS).operation is Operation.KEEP


def owned(**changes: str) -> dict[str, Any]:
    """A Service whose controller is the Owner `o` with the uid `owner-uid`, save for what is changed."""
    reference = {"apiVersion": "x.test/v1", "kind": "Owner", "name": "o", "uid": "owner-uid", "controller": True}
    body = service()
    body["metadata"]["ownerReferences"] = [reference | changes]
    return body


EARLIER = OwnerReference(api_version="x.test/v1", kind="Owner", name="o", uid="earlier", controller=True)


@pytest.mark.parametrize(
    ("theirs", "operation"),
    [
        ({}, Operation.LEAVING),
        ({"api_version": "x.test/v2"}, Operation.LEAVING),
        ({"api_version": "y.test/v1"}, Operation.FOREIGN),
        ({"kind": "Other"}, Operation.FOREIGN),
        ({"name": "p"}, Operation.FOREIGN),
        ({"controller": False}, Operation.FOREIGN),
    ],
)
def test_child_of_an_earlier_owner_of_the_name_is_leaving(theirs: dict[str, Any], operation: Operation) -> None:
    meta = ObjectMeta(uid="u", owner_references=(msgspec.structs.replace(EARLIER, **theirs),))
    assert decide(owned(), meta, service(), OURS).operation is operation


def test_any_object_that_is_being_deleted_is_leaving() -> None:
    meta = ObjectMeta(uid="u", deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    assert decide(owned(), meta, service(), OURS).operation is Operation.LEAVING
    assert decide(service(), meta, service(), OURS).operation is Operation.LEAVING


def test_orphan_of_an_earlier_owner_is_foreign() -> None:
    """Nobody will delete it: the one who orphaned it wants to keep it."""
    assert decide(owned(), ObjectMeta(uid="u"), service(), OURS).operation is Operation.FOREIGN


def test_drifted_field_is_sent_again_with_the_uid() -> None:
    intent = service(clusterIP="None", publishNotReadyAddresses=True)
    meta, live = live_from(intent)
    decision = decide(intent, lost(meta, intent, clusterIP="None"), live, OURS)
    assert decision.operation is Operation.UPDATE
    assert decision.body is not None
    assert (decision.body["metadata"]["uid"], decision.body["spec"]) == ("u", intent["spec"])


def test_a_key_that_somebody_added_to_a_selector_is_drift() -> None:
    """Whoever adds it owns the selector, because the schema calls it atomic."""
    intent = service(selector={"app": "ours"}, clusterIP="None")
    meta, live = live_from(intent, atomic=("selector",))
    assert decide(intent, meta, live, OURS).operation is Operation.KEEP
    assert decide(intent, lost(meta, intent, clusterIP="None"), live, OURS).operation is Operation.UPDATE


def test_field_of_another_manager_is_drift() -> None:
    intent = service(sessionAffinity="None")
    meta, live = live_from(intent)
    theirs = msgspec.structs.replace(meta, applied=applied(intent, "somebody"))
    assert decide(intent, theirs, live, OURS).operation is Operation.UPDATE


def test_changed_owner_reference_is_drift() -> None:
    intent = owned()
    meta, live = live_from(intent)
    kept = msgspec.convert(intent["metadata"]["ownerReferences"], tuple[OwnerReference, ...])
    meta = msgspec.structs.replace(meta, owner_references=kept)
    assert decide(intent, meta, live, OURS).operation is Operation.KEEP
    blocked = tuple(msgspec.structs.replace(one, block_owner_deletion=True) for one in kept)
    meta = msgspec.structs.replace(meta, owner_references=blocked)
    assert decide(intent, meta, live, OURS).operation is Operation.UPDATE


def test_field_removed_from_the_intent_leads_to_an_update() -> None:
    before = service(publishNotReadyAddresses=True, sessionAffinity="None")
    meta, live = live_from(before)
    assert decide(service(publishNotReadyAddresses=True), meta, live, OURS).operation is Operation.UPDATE


def test_another_owners_object_is_foreign_whatever_it_looks_like() -> None:
    intent = service()
    _, live = live_from(intent)
    assert decide(intent, ObjectMeta(uid="u"), live, OURS).operation is Operation.FOREIGN
    stranger = OwnerReference(api_version="v1", kind="Owner", name="o", uid="other", controller=True)
    assert decide(intent, ObjectMeta(owner_references=(stranger,)), live, OURS).operation is Operation.FOREIGN


def test_an_owner_reference_that_does_not_control_is_no_claim() -> None:
    bystander = OwnerReference(api_version="v1", kind="Owner", name="o", uid="owner-uid")
    assert decide(service(), ObjectMeta(owner_references=(bystander,)), service(), OURS).operation is Operation.FOREIGN


def test_an_object_that_is_being_deleted_is_left_to_go() -> None:
    intent = service()
    meta, live = live_from(intent, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    assert decide(intent, meta, live, OURS).operation is Operation.TERMINATING


def test_immutable_field_is_sent_with_its_live_value() -> None:
    """After that apply, the difference is no drift."""
    _, live = live_from(job("old", suspend=False))
    wanted = job("new", suspend=True)
    meta, _ = live_from(job("old", suspend=False))
    decision = decide(wanted, meta, live, OURS)
    assert decision.operation is Operation.UPDATE
    assert decision.body is not None
    assert decision.body["spec"] == {"template": live["spec"]["template"], "suspend": True}
    annotations, fields = decision.body["metadata"]["annotations"], applied(decision.body)
    after = ObjectMeta(uid="u", owner_references=(OWNER,), annotations=annotations, applied=fields)
    assert decide(wanted, after, dict(decision.body), OURS).operation is Operation.KEEP


def test_an_entry_without_a_manager_is_nobodys() -> None:
    """Whoever may write an object may write its managedFields, and the API server demands no manager there."""
    entry = {"operation": "Apply", "apiVersion": "batch/v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}
    _, live = live_from(job("old"))
    live["metadata"] = {**live["metadata"], "managedFields": [entry]}
    assert with_immutable(job("new"), live)["spec"] == live["spec"]


@pytest.mark.parametrize(
    ("before", "wanted"),
    [
        (job("old", suspend=False), job("new", suspend=True)),
        (service(clusterIP="10.0.0.1", sessionAffinity="None"), service(clusterIP="None")),
        (service(sessionAffinity="None"), service(clusterIP="None")),
    ],
)
def test_decision_changes_neither_intent_nor_live_object(before: dict[str, Any], wanted: dict[str, Any]) -> None:
    """The body shares with both what it does not change."""
    wanted["metadata"]["annotations"] = {"ours": "yes"}
    meta, live = live_from(before)
    unchanged = deepcopy((wanted, live))
    body = decide(wanted, meta, live, OURS).body
    assert body is not None
    assert body["metadata"] == {
        **wanted["metadata"],
        "annotations": {"ours": "yes", INTENT_ANNOTATION: digest_of(wanted)},
        "uid": "u",
    }
    assert (wanted, live) == unchanged


def test_a_pod_that_exists_is_kept_whatever_the_intent_says() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}}
    assert decide(pod, ObjectMeta(owner_references=(OWNER,)), {"spec": {}}, OURS).operation is Operation.KEEP


def test_object_that_is_made_once_is_never_updated() -> None:
    """Somebody's edits to it stay. One of another owner is foreign all the same."""
    meta, live = live_from(service(clusterIP="None"))
    stripped = ObjectMeta(uid=meta.uid, owner_references=meta.owner_references)
    assert decide(service(clusterIP="10.0.0.1"), stripped, live, OURS, once=True).operation is Operation.KEEP
    assert decide(service(), None, None, OURS, once=True).operation is Operation.CREATE
    assert decide(service(), ObjectMeta(uid="u"), live, OURS, once=True).operation is Operation.FOREIGN


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("abc", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=2), JSON, max_size=4), st.dictionaries(st.text("xyz"), JSON))
def test_a_second_apply_of_the_same_intent_sends_nothing(spec: dict[str, Any], defaults: dict[str, Any]) -> None:
    intent = service(**spec)
    first = decide(intent, None, None, OURS)
    assert first.body is not None
    live = deepcopy(dict(first.body))
    live["spec"] |= {key: value for key, value in defaults.items() if key not in spec}
    annotations, fields = live["metadata"]["annotations"], applied(first.body)
    meta = ObjectMeta(owner_references=(OWNER,), annotations=annotations, applied=fields)
    assert decide(intent, meta, live, OURS).operation is Operation.KEEP


def test_the_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest_of({"a": 1, "b": {"c": 2, "d": 3}}) == digest_of({"b": {"d": 3, "c": 2}, "a": 1})
