"""Owners, finalizers and differences, on the fake API server."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchctl.runtime.client.errors import Conflict, Invalid, NotFound
from torchctl.runtime.intent import controlled_by
from torchctl.runtime.kinds import Kind, ObjectMeta, PartialObject, controller_of
from torchctl.runtime.objects import add_finalizer, difference, owner_reference, remove_finalizer
from torchctl.testing.fake import FakeApiServer, Served
from torchctl.testing.fake.patches import merge_patched

THING: Kind[PartialObject] = Kind("things.test", "v1", "Thing", "things", PartialObject)
HELD = "things.test/held"

JSON = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text(max_size=2), JSON, max_size=4)


def thing(name: str, **meta: Any) -> dict[str, Any]:
    return {"apiVersion": THING.api_version, "kind": THING.kind, "metadata": {"name": name, **meta}}


@given(OBJECTS, OBJECTS)
def test_difference_makes_one_object_of_another(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert merge_patched(before, difference(before, after)) == after


def test_objects_that_are_equal_have_no_difference() -> None:
    assert difference({"a": {"b": [1]}}, {"a": {"b": [1]}}) == {}


async def test_owner_reference_is_recognized_and_collected() -> None:
    client = FakeApiServer([Served(THING)]).client()
    owner = await client.create(THING, thing("owner"), "ns")
    child = await client.create(THING, thing("child", ownerReferences=[owner_reference(THING, owner.metadata)]), "ns")
    assert controlled_by(owner.metadata.uid)(child.metadata)
    assert controller_of(child) is not None
    await client.delete(THING, "owner", namespace="ns")
    with pytest.raises(NotFound):
        await client.get(THING, "child", "ns")


async def test_finalizer_holds_an_object_until_it_is_removed() -> None:
    client = FakeApiServer([Served(THING)]).client()
    made = await client.create(THING, thing("a"), "ns")
    held = await add_finalizer(client, THING, made, HELD)
    assert await add_finalizer(client, THING, held, HELD) is held
    await client.delete(THING, "a", namespace="ns")
    leaving = await client.get(THING, "a", "ns")
    assert leaving.metadata.deletion_timestamp is not None
    with pytest.raises(Conflict):
        await remove_finalizer(client, THING, held, HELD)
    await remove_finalizer(client, THING, leaving, HELD)
    assert await client.list(THING) == []


async def test_dry_client_changes_nothing_and_needs_no_leadership() -> None:
    class Shut:
        def check(self) -> None:
            raise AssertionError("no leader")

    server = FakeApiServer([Served(THING)])
    await server.client().create(THING, thing("a"), "ns")
    dry = server.client(fence=Shut()).dry()
    assert (await dry.create(THING, thing("b"), "ns")).metadata.name == "b"
    await dry.apply(THING, thing("a", namespace="ns", labels={"x": "y"}))
    await dry.delete(THING, "a", namespace="ns")
    await dry.delete_collection(THING, namespace="ns")
    found = await server.client().list(THING)
    assert [(one.metadata.name, one.metadata.labels) for one in found] == [("a", {})]


async def test_json_patch_is_guarded_by_its_tests() -> None:
    client = FakeApiServer([Served(THING)]).client()
    await client.create(THING, thing("a", labels={"color": "red"}), "ns")
    repaint = {"op": "replace", "path": "/metadata/labels/color", "value": "blue"}
    guard = {"op": "test", "path": "/metadata/labels/color", "value": "red"}
    assert (await client.json_patch(THING, "a", [guard, repaint], namespace="ns")).metadata.labels == {"color": "blue"}
    with pytest.raises(Invalid):
        await client.json_patch(THING, "a", [guard, repaint], namespace="ns")


async def test_delete_collection_takes_what_the_selector_shows() -> None:
    client = FakeApiServer([Served(THING)]).client()
    for name, color in (("a", "red"), ("b", "blue")):
        await client.create(THING, thing(name, labels={"color": color}), "ns")
    await client.delete_collection(THING, namespace="ns", labels="color=red")
    assert [one.metadata.name for one in await client.list(THING)] == ["b"]


def test_owner_reference_without_control_is_no_child() -> None:
    reference = owner_reference(THING, ObjectMeta(name="a", uid="u"), controller=False)
    assert reference == {"apiVersion": "things.test/v1", "kind": "Thing", "name": "a", "uid": "u"}
