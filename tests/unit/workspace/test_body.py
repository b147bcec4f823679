"""The body of an upload in pieces: small ones that follow each other are one, and a cut loses none that has come."""

import asyncio
import threading
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp.base_protocol import BaseProtocol
from aiohttp.test_utils import make_mocked_request

from torchctl.workspace.answers import Cut, body, taken


@pytest.fixture
async def content() -> aiohttp.StreamReader:
    loop = asyncio.get_running_loop()
    return aiohttp.StreamReader(BaseProtocol(loop), 2**20, loop=loop)


def pieces_of(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    return body(make_mocked_request("PATCH", "/", payload=content))


async def test_small_pieces_that_follow_are_one(content: aiohttp.StreamReader) -> None:
    content.feed_data(b"a" * 32_768)
    asyncio.get_running_loop().call_soon(content.feed_data, b"b" * 32_768)
    asyncio.get_running_loop().call_soon(content.feed_eof)
    assert [piece async for piece in pieces_of(content)] == [b"a" * 32_768 + b"b" * 32_768]


async def test_what_came_before_a_cut_is_not_lost(content: aiohttp.StreamReader) -> None:
    content.feed_data(b"a" * 32_768)
    asyncio.get_running_loop().call_soon(content.set_exception, aiohttp.ClientPayloadError("cut"))
    pieces = pieces_of(content)
    assert await anext(pieces) == b"a" * 32_768
    with pytest.raises(Cut):
        await anext(pieces)


async def test_a_large_piece_waits_for_no_other(content: aiohttp.StreamReader) -> None:
    content.feed_data(b"a" * 2**18)
    asyncio.get_running_loop().call_soon(content.feed_data, b"b")
    assert await anext(pieces_of(content)) == b"a" * 2**18


# Pieces that a thread takes while the next one arrives.


async def test_next_piece_arrives_while_one_is_taken() -> None:
    arrived, found = threading.Event(), list[bytes]()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"
        arrived.set()
        yield b"three"

    def take(piece: bytes) -> None:
        assert piece != b"two" or arrived.wait(10)
        found.append(piece)

    await taken(pieces(), take)
    assert found == [b"one", b"two", b"three"]


async def test_a_cut_waits_for_the_piece_that_is_being_taken() -> None:
    """Whoever asks for the offset after it finds all that has come."""
    going, found = threading.Event(), list[bytes]()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        asyncio.get_running_loop().call_later(0.05, going.set)
        raise Cut

    def take(piece: bytes) -> None:
        assert going.wait(10)
        found.append(piece)

    with pytest.raises(Cut):
        await taken(pieces(), take)
    assert found == [b"one"]


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_piece_that_is_not_taken_ends_it(number: int) -> None:
    """Also the last one, and whatever else breaks then: the sender has to know."""
    found = list[int]()

    async def pieces() -> AsyncIterator[bytes]:
        for size in (1, 2, 3):
            yield bytes(size)
        raise Cut

    def take(piece: bytes) -> None:
        found.append(len(piece))
        if len(piece) == number:
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        await taken(pieces(), take)
    assert found[-1] == number


async def test_whoever_is_cancelled_waits_for_the_piece() -> None:
    """A newer connection takes over only then."""
    begun, going, found = threading.Event(), threading.Event(), list[bytes]()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        await asyncio.Event().wait()

    def take(piece: bytes) -> None:
        begun.set()
        assert going.wait(10)
        found.append(piece)

    taking = asyncio.create_task(taken(pieces(), take))
    await asyncio.to_thread(begun.wait, 10)
    taking.cancel()
    asyncio.get_running_loop().call_later(0.05, going.set)
    await asyncio.wait([taking])
    assert (taking.cancelled(), found) == (True, [b"one"])
