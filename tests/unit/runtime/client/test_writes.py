"""What was written is collected by whoever asked for it, in this task and in those it starts."""

import anyio

from torchctl.runtime.client.writes import Deleted, Written, note_write, record_writes
from torchctl.runtime.kinds import LEASE, Key

WRITTEN = Written(LEASE, Key("ns", "a"), "u", "7")
DELETED = Deleted(LEASE, Key("ns", "a"), "u")


def test_nobody_has_to_listen() -> None:
    note_write(WRITTEN)


def test_writes_are_collected_in_their_order_until_the_block_ends() -> None:
    with record_writes() as writes:
        note_write(WRITTEN)
        note_write(DELETED)
    note_write(WRITTEN)
    assert writes == [WRITTEN, DELETED]


def test_an_outer_block_sees_what_an_inner_one_sees() -> None:
    with record_writes() as outer:
        with record_writes() as inner:
            note_write(WRITTEN)
        note_write(DELETED)
    assert (outer, inner) == ([WRITTEN, DELETED], [WRITTEN])


async def test_tasks_started_inside_are_heard_and_neighbours_are_not() -> None:
    seen: dict[str, list[Written | Deleted]] = {}

    async def write(write: Written | Deleted) -> None:
        note_write(write)

    async def work(name: str, write_: Written | Deleted) -> None:
        with record_writes() as writes:
            async with anyio.create_task_group() as inner:
                inner.start_soon(write, write_)
        seen[name] = writes

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work, "one", WRITTEN)
        tasks.start_soon(work, "two", DELETED)
    assert seen == {"one": [WRITTEN], "two": [DELETED]}
