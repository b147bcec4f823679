"""Predicates: which updates pass, and how they compose."""

from datetime import UTC, datetime
from typing import Any

from torchctl.runtime.cache.informer import Change
from torchctl.runtime.kinds import LEASE, Lease, ObjectMeta
from torchctl.runtime.predicate import (
    ALWAYS,
    annotations_changed,
    generation_changed,
    labels_changed,
    version_changed,
)


def change(old: dict[str, Any] | None, new: dict[str, Any] | None) -> Change[Lease]:
    def lease(meta: dict[str, Any] | None) -> Lease | None:
        return None if meta is None else Lease(ObjectMeta(name="a", namespace="ns", **meta))

    type_ = "updated" if old is not None and new is not None else "added" if new is not None else "deleted"
    return Change(LEASE, type_, lease(old), lease(new), initial=False)  # type: ignore[arg-type]  # a literal


def test_a_status_write_is_no_change_of_generation() -> None:
    assert not generation_changed(
        change({"generation": 1, "resource_version": "1"}, {"generation": 1, "resource_version": "2"})
    )
    assert generation_changed(change({"generation": 1}, {"generation": 2}))


def test_start_of_a_deletion_passes_generation_changed() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert generation_changed(change({"generation": 1}, {"generation": 1, "deletion_timestamp": now}))


def test_what_appears_or_goes_always_passes() -> None:
    for predicate in (generation_changed, labels_changed, annotations_changed, version_changed):
        assert predicate(change(None, {}))
        assert predicate(change({}, None))


def test_a_relist_that_repeats_an_object_does_not_pass() -> None:
    assert not version_changed(change({"resource_version": "7"}, {"resource_version": "7"}))


def test_predicates_compose() -> None:
    labelled = change({"labels": {}}, {"labels": {"a": "b"}})
    assert (labels_changed | annotations_changed)(labelled)
    assert not (labels_changed & annotations_changed)(labelled)
    assert (~annotations_changed & ALWAYS)(labelled)
