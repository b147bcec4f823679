"""Bytes become objects one by one; what does not fit is reported with its key and stops nobody."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchctl.runtime.client.codec import Added, Bookmark, Codec, Deleted, ErrorLine, Modified, Undecodable
from torchctl.runtime.client.errors import Malformed
from torchctl.runtime.kinds import LEASE, Key, Kind, Lease, ObjectMeta


def lease(name: str = "a", **spec: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "7", "managedFields": [{}]}
    return {"metadata": meta, "spec": spec}


BAD = lease("bad", holderIdentity=5)


def line(type_: str, obj: Any) -> bytes:
    return msgspec.json.encode({"type": type_, "object": obj}) + b"\n"


def _body(name: str) -> bytes:
    return msgspec.json.encode(lease(name))


def undecodable(*, deleted: bool = False) -> Undecodable:
    return Undecodable(
        LEASE,
        Key("ns", "bad"),
        "Expected `str | null`, got `int` - at `$.spec.holderIdentity`",
        "uid-bad",
        "7",
        deleted,
    )


def test_an_object_is_decoded_to_the_fields_that_are_read() -> None:
    decoded = Codec().decode(LEASE, msgspec.json.encode(lease(holderIdentity="me")))
    assert decoded == Lease(
        ObjectMeta("a", "ns", "uid-a", "7"), msgspec.structs.replace(Lease(ObjectMeta()).spec, holder_identity="me")
    )


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"<html>", msgspec.json.encode(BAD), b"\xff"])
def test_an_answer_that_is_no_such_object_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed, match=r"leases\.coordination\.k8s\.io"):
        Codec().decode(LEASE, body)


def test_a_page_skips_what_it_cannot_decode_and_says_which() -> None:
    body = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [lease("a"), BAD, lease("b")]}
    page = Codec().decode_page(LEASE, msgspec.json.encode(body))
    assert [item.metadata.name for item in page.items] == ["a", "b"]
    assert page.skipped == (undecodable(),)
    assert (page.resource_version, page.continue_) == ("9", "more")


@pytest.mark.parametrize("items", [b"null", b"[]"])
def test_an_empty_list_may_be_null(items: bytes) -> None:
    assert Codec().decode_page(LEASE, b'{"metadata":{},"items":%s}' % items).items == ()


def test_a_page_that_is_no_list_is_malformed() -> None:
    with pytest.raises(Malformed):
        Codec().decode_page(LEASE, b"<html>")


@pytest.mark.parametrize(("type_", "wrap"), [("ADDED", Added), ("MODIFIED", Modified), ("DELETED", Deleted)])
def test_events_carry_the_object(type_: str, wrap: type[Any]) -> None:
    codec = Codec()
    assert codec.decode_event(LEASE, line(type_, lease())) == wrap(codec.decode(LEASE, msgspec.json.encode(lease())))


@pytest.mark.parametrize("type_", ["ADDED", "DELETED"])
def test_undecodable_event_tells_if_the_object_is_gone(type_: str) -> None:
    assert Codec().decode_event(LEASE, line(type_, BAD)) == undecodable(deleted=type_ == "DELETED")


def test_an_object_without_readable_metadata_is_still_reported() -> None:
    event = Codec().decode_event(LEASE, line("ADDED", {"metadata": {"name": 5}}))
    assert isinstance(event, Undecodable)
    assert event.key == Key("", "")


def test_a_bookmark_has_a_version_and_may_end_the_list() -> None:
    meta = {"resourceVersion": "12", "annotations": {"k8s.io/initial-events-end": "true"}}
    assert Codec().decode_event(LEASE, line("BOOKMARK", {"metadata": meta})) == Bookmark("12", True)
    assert Codec().decode_event(LEASE, line("BOOKMARK", {"metadata": {"resourceVersion": "13"}})) == Bookmark("13")


def test_an_error_event_carries_its_status() -> None:
    event = Codec().decode_event(LEASE, line("ERROR", {"code": 410, "reason": "Expired"}))
    assert isinstance(event, ErrorLine)
    assert (event.status.code, event.status.reason) == (410, "Expired")


def test_many_lines_are_what_each_of_them_is() -> None:
    lines = [
        line("ADDED", lease("a")),
        line("DELETED", lease("b")),
        line("BOOKMARK", lease()),
        line("ERROR", {"code": 410}),
    ]
    assert Codec().decode_events(LEASE, b"".join(lines)) == [Codec().decode_event(LEASE, one) for one in lines]


@pytest.mark.parametrize("bad", [line("ADDED", BAD), line("RENAMED", lease()), b"<html>\n", line("ERROR", "?")])
def test_undecodable_line_stops_no_other_line(bad: bytes) -> None:
    codec = Codec()
    first, found, last = codec.decode_events(LEASE, line("ADDED", lease("a")) + bad + line("MODIFIED", lease("b")))
    assert (first, last) == (Added(codec.decode(LEASE, _body("a"))), Modified(codec.decode(LEASE, _body("b"))))
    assert found == codec.decode_event(LEASE, bad.rstrip())
    assert isinstance(found, Undecodable | ErrorLine)


def test_what_comes_in_many_lines_is_shared_too() -> None:
    one, two = Codec().decode_events(LEASE, line("ADDED", lease("a")) + line("ADDED", lease("b")))
    assert isinstance(one, Added)
    assert isinstance(two, Added)
    assert one.object.metadata.namespace is two.object.metadata.namespace


@given(st.binary())
def test_no_lines_make_the_decoder_raise(garbage: bytes) -> None:
    assert all(isinstance(event, ErrorLine) for event in Codec().decode_events(LEASE, garbage))


@given(st.binary())
def test_no_line_makes_the_decoder_raise(garbage: bytes) -> None:
    assert isinstance(Codec().decode_event(LEASE, garbage), ErrorLine)


def test_exception_in_a_decode_hook_is_an_undecodable_object() -> None:
    class Odd(msgspec.Struct, frozen=True):
        metadata: ObjectMeta
        spec: complex

    def hook(type_: type, value: Any) -> Any:
        raise ZeroDivisionError("inside the hook")

    kind = Kind("", "v1", "Odd", "odds", Odd, dec_hook=hook)
    event = Codec().decode_event(kind, line("ADDED", {**lease(), "spec": "1"}))
    assert isinstance(event, Undecodable)
    assert "inside the hook" in event.error


def test_cached_objects_share_the_strings_that_they_have_in_common() -> None:
    codec = Codec()
    labelled = lease()
    labelled["metadata"]["labels"] = {"torchrun.ai/queue": "gpu"}
    one, two = codec.decode_page(LEASE, msgspec.json.encode({"metadata": {}, "items": [labelled, labelled]})).items
    assert one.metadata.namespace is two.metadata.namespace
    assert one.metadata.labels["torchrun.ai/queue"] is two.metadata.labels["torchrun.ai/queue"]


def test_encoding_is_json() -> None:
    assert msgspec.json.decode(Codec().encode({"a": [1, None, "ü"]})) == {"a": [1, None, "ü"]}
