"""The body of an upload in pieces: small ones that follow each other are one, and a cut loses none that has come."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp.base_protocol import BaseProtocol
from aiohttp.test_utils import make_mocked_request

from torchctl.workspace.answers import Cut, body


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
