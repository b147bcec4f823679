"""Whatever somebody does to a child, one apply puts it back, and the next one sends nothing. On the fake API server."""

import asyncio
from typing import Any

import msgspec
import pytest
from effort import examples
from fakestories import CRD
from fakestories import STORY as PARTIAL
from hypothesis import given, settings
from hypothesis import strategies as st

from torchctl.runtime.apply import Applier
from torchctl.runtime.cache.cache import Cache
from torchctl.runtime.intent import Operation
from torchctl.runtime.kinds import Kind, ObjectMeta
from torchctl.testing.fake import FakeApiServer, served_by

WORDS = st.sampled_from(("red", "blue"))
SETS = st.lists(WORDS, unique=True, max_size=2)
SHELF = st.fixed_dictionaries({}, optional={"left": WORDS, "right": WORDS, "tags": SETS, "plain": SETS})
SPECS: Any = st.fixed_dictionaries(
    {"shelves": st.fixed_dictionaries({}, optional={"top": SHELF, "low": SHELF})},
    optional={
        "labels": st.dictionaries(WORDS, WORDS, max_size=2),
        "tags": SETS,
        "box": st.fixed_dictionaries({}, optional={"a": WORDS, "b": WORDS}),
        "items": st.lists(
            st.fixed_dictionaries({"name": WORDS}, optional={"value": WORDS}),
            max_size=2,
            unique_by=lambda item: item["name"],
        ),
    },
)


class Story(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: dict[str, Any] = {}


STORY = Kind(PARTIAL.group, PARTIAL.version, PARTIAL.kind, PARTIAL.plural, Story)


class Child:
    """A child on a server of its own, its applier, and somebody else who writes it."""

    def __init__(self) -> None:
        self.server = FakeApiServer([served_by(CRD, STORY)])
        self.client, self.somebody = self.server.client(), self.server.client(field_manager="somebody")
        self.applier = Applier(self.client, Cache(self.client))

    async def apply(self, intent: dict[str, Any]) -> Operation:
        live = await self.live() if await self.client.list(STORY) else None
        return (await self.applier.apply_to(live, STORY, intent, lambda _: True)).operation

    async def live(self) -> Story:
        return await self.client.get(STORY, "child", "default")

    async def is_as(self, intent: dict[str, Any]) -> bool:
        """Tells if one more apply, even by force, would change nothing of the spec."""
        forced = await self.client.dry().apply(STORY, intent, force=True)
        return bool(unordered(forced.spec) == unordered((await self.live()).spec))


def unordered(value: Any) -> Any:
    """Sorts lists: nobody owns the order of a set, or of items with keys."""
    if isinstance(value, dict):
        return {name: unordered(inner) for name, inner in value.items()}
    return sorted(map(repr, map(unordered, value))) if isinstance(value, list) else value


def story(spec: Any) -> dict[str, Any]:
    meta = {"name": "child", "namespace": "default"}
    return {"apiVersion": STORY.api_version, "kind": STORY.kind, "metadata": meta, "spec": spec}


async def _drift(spec: Any, drifts: list[Any]) -> None:
    child, intent = Child(), story(spec)
    await child.apply(intent)
    for drift in drifts:
        await child.somebody.merge_patch(STORY, "child", {"spec": drift}, namespace="default")
        await child.apply(intent)
        assert await child.is_as(intent)
        assert await child.apply(intent) is Operation.KEEP


@settings(max_examples=examples(100))
@given(SPECS, st.lists(SPECS, max_size=3))
def test_one_apply_puts_back_what_drifted(spec: Any, drifts: list[Any]) -> None:
    """Whatever was applied, whatever somebody makes of it."""
    asyncio.run(_drift(spec, drifts))


@pytest.mark.parametrize(
    ("shelf", "drift"),
    [
        ({"left": "red"}, {"left": "blue"}),
        ({"left": "red"}, {"left": None}),
        ({"tags": ["red"]}, {"tags": ["blue"]}),
    ],
)
async def test_entry_that_lost_all_its_fields_is_filled_again(shelf: dict[str, Any], drift: dict[str, Any]) -> None:
    """Then managedFields shows it as it would show one that has its owner as a whole."""
    child, intent = Child(), story({"shelves": {"top": shelf}})
    await child.apply(intent)
    await child.somebody.merge_patch(STORY, "child", {"spec": {"shelves": {"top": drift}}}, namespace="default")
    assert await child.apply(intent) is Operation.UPDATE
    assert await child.is_as(intent)


async def test_atomic_field_costs_one_write_of_each_applier() -> None:
    """Another process than the one that applied it first cannot tell it from one that lost all its fields."""
    child, intent = Child(), story({"box": {"a": "red"}})
    await child.apply(intent)
    child.applier = Applier(child.client, Cache(child.client))
    assert [await child.apply(intent) for _ in range(3)] == [Operation.UPDATE, Operation.KEEP, Operation.KEEP]


async def test_value_without_a_trace_is_compared_with_the_answer() -> None:
    child, intent = Child(), story({"items": [], "text": "red"})
    await child.apply(intent)
    assert await child.apply(intent) is Operation.KEEP
    await child.somebody.merge_patch(STORY, "child", {"spec": {"text": "blue"}}, namespace="default")
    assert [await child.apply(intent) for _ in range(2)] == [Operation.UPDATE, Operation.KEEP]
