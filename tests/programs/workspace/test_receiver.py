"""The receiver towards peers that are hostile, slow, twice there, or repeat themselves."""

import asyncio
import errno
import hashlib
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from threading import Event
from typing import Any

import aiohttp
import pytest
from peaks import growing, wide
from receivers import TOKEN, contents, receiving

from torchctl.client.compressed import Compressed
from torchctl.workspace.core import Limits
from torchctl.workspace.errors import Refused
from torchctl.workspace.incoming import Incoming
from torchctl.workspace.marker import Marker, read_marker
from torchctl.workspace.receiver import Receiver
from torchctl.workspace.staging import Staging
from torchctl.workspace.unpack import Unpacker


class Peer:
    """Speaks the protocol by hand."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url
        self.http = http

    async def ask(self, method: str, path: str, **more: Any) -> tuple[int, dict[str, Any]]:
        async with self.http.request(method, self.url + path, **more) as response:
            is_json = response.content_type == "application/json"
            return response.status, (await response.json() if is_json else {})

    async def put(self, manifest: bytes) -> tuple[int, dict[str, Any]]:
        return await self.ask("PUT", f"/v1/trees/{name(manifest)}", data=manifest)

    async def patch(self, manifest: bytes, offset: int, data: Any) -> tuple[int, dict[str, Any]]:
        headers = {"Upload-Offset": str(offset)}
        return await self.ask("PATCH", f"/v1/trees/{name(manifest)}", data=data, headers=headers)

    async def commit(self, manifest: bytes) -> tuple[int, dict[str, Any]]:
        return await self.ask("POST", f"/v1/trees/{name(manifest)}/commit")


def name(manifest: bytes) -> str:
    return hashlib.sha256(manifest).hexdigest()


def manifest_of(**files: bytes) -> bytes:
    return b"".join(
        b"f - %d %s %s\0" % (len(content), hashlib.sha256(content).hexdigest().encode(), path.encode())
        for path, content in sorted(files.items())
    )


A, B = manifest_of(a=b"aaaa", b=b"bbbb"), manifest_of(b=b"other")


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session:
        yield session


async def test_upload_by_hand_in_pieces(claim: Path, http: aiohttp.ClientSession) -> None:
    committed: list[Marker] = []

    async def published(marker: Marker) -> None:
        committed.append(marker)

    async with receiving(claim, published=published) as (url, receiver):
        peer = Peer(url, http)
        assert await peer.put(A) == (
            200,
            {"tree": name(A), "state": "receiving", "offset": 0, "size": 8, "missing": [0, 1]},
        )
        assert (await peer.patch(A, 0, b"aaa"))[1]["offset"] == 3
        assert (await peer.commit(A))[0] == 409
        assert (await peer.patch(A, 3, b"abbbb"))[1]["offset"] == 8
        status, done = await peer.commit(A)
        assert (status, done["state"], done["revision"]) == (200, "published", f"sha256:{name(A)}")
        assert await peer.commit(A) == (status, done)  # a client that did not get the answer asks again
        assert (await peer.put(A))[1]["missing"] == []
        assert not receiver.confirmed.is_set()
        assert (await peer.ask("DELETE", f"/v1/trees/{name(A)}"))[0] == 204
        assert receiver.confirmed.is_set()
    assert committed == [read_marker(claim)]
    assert contents(claim) == {"a": (b"aaaa", False), "b": (b"bbbb", False)}


@pytest.mark.parametrize("token", ["", "Bearer", "Bearer ", f"Bearer {TOKEN}x", TOKEN, f"bearer {TOKEN}", "Basic eDp5"])
async def test_without_the_token_nothing_is_done(token: str, claim: Path) -> None:
    async with receiving(claim) as (url, _), aiohttp.ClientSession(headers={"Authorization": token}) as http:
        for method, path in (("GET", "/v1/state"), ("PUT", f"/v1/trees/{name(A)}"), ("DELETE", "/v1/trees/x")):
            assert (await Peer(url, http).ask(method, path, data=A))[0] == 401
    assert os.listdir(claim) == ["lost+found"]


def test_receiver_without_token_is_never_made(claim: Path) -> None:
    with pytest.raises(ValueError, match="token"):
        Receiver(claim, token="", limits=Limits())


async def test_upload_waits_until_a_failed_one_is_removed(
    claim: Path, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads may still write large files of the failed one, and then its staging area goes."""
    removing, removed, abandon = Event(), Event(), Incoming.abandon

    def slow(incoming: Incoming) -> None:
        removing.set()
        removed.wait()
        abandon(incoming)

    monkeypatch.setattr(Incoming, "abandon", slow)
    async with receiving(claim) as (url, _):
        peer = Peer(url, http)
        await peer.put(A)
        failing = asyncio.create_task(peer.patch(A, 0, b"aaab"))
        await asyncio.to_thread(removing.wait)
        again = asyncio.create_task(peer.put(A))
        await asyncio.wait([again], timeout=0.2)
        removed.set()
        assert (await failing)[0] == 422
        assert (await again)[1]["offset"] == 0
        assert (await peer.patch(A, 0, b"aaaabbbb"))[1]["offset"] == 8
        assert (await peer.commit(A))[0] == 200


@pytest.mark.parametrize("tree", ["x", "..", "A" * 64, "0" * 63, "%2e%2e%2fetc"])
async def test_tree_is_named_by_digest_only(tree: str, claim: Path, http: aiohttp.ClientSession) -> None:
    async with receiving(claim) as (url, _):
        assert (await Peer(url, http).ask("PUT", f"/v1/trees/{tree}", data=A))[0] == 404


async def test_wrong_content_is_refused_and_nothing_stays(claim: Path, http: aiohttp.ClientSession) -> None:
    async with receiving(claim) as (url, _):
        peer = Peer(url, http)
        await peer.put(A)
        status, said = await peer.patch(A, 0, b"aaaaBBBB")
        assert (status, said["message"]) == (422, "the content of 'b' does not have the SHA-256 of the manifest")
        assert (await peer.ask("GET", f"/v1/trees/{name(A)}"))[0] == 422  # whoever lost the answer is told again
        assert (await peer.commit(A))[0] == 422
        assert os.listdir(claim) == ["lost+found"]
        assert (await peer.put(A))[0] == 200


def test_wrong_content_is_never_published(claim: Path) -> None:
    """Also if the connection that sent it was replaced at that moment, so that nobody heard of the refusal."""
    staging = Staging(claim)
    staging.open(keep=True)
    (staging.scratch / "manifest").write_bytes(A)
    incoming = Incoming(name(A), staging.scratch / "manifest", staging, limits=Limits())
    with pytest.raises(Refused, match="does not have the SHA-256"):
        incoming.feed(b"aaaaBBBB")
    assert incoming.offset == incoming.size
    with pytest.raises(Refused, match="does not have the SHA-256"):
        incoming.finish()
    incoming.abandon()
    assert read_marker(claim) is None


async def test_manifest_under_another_name_is_refused(claim: Path, http: aiohttp.ClientSession) -> None:
    async with receiving(claim) as (url, _):
        assert (await Peer(url, http).ask("PUT", f"/v1/trees/{name(A)}", data=B))[0] == 422
        assert (await Peer(url, http).put(b"nonsense"))[0] == 422


@pytest.mark.parametrize("offset", ["", "-1", "1", "9", "x", "0x0", " 0 0", "99999999999999999999"])
async def test_other_offset_is_told_the_right_one(offset: str, claim: Path, http: aiohttp.ClientSession) -> None:
    async with receiving(claim) as (url, _):
        peer = Peer(url, http)
        await peer.put(A)
        headers = {"Upload-Offset": offset}
        status, said = await peer.ask("PATCH", f"/v1/trees/{name(A)}", data=b"aaaa", headers=headers)
        assert (status, said["code"], said["offset"]) == (409, "offset", 0)


async def test_more_bytes_than_announced_are_refused(claim: Path, http: aiohttp.ClientSession) -> None:
    async with receiving(claim) as (url, _):
        peer = Peer(url, http)
        await peer.put(A)
        status, said = await peer.patch(A, 0, b"aaaabbbb!")
        assert (status, said["message"]) == (422, "more than the 8 missing bytes were sent")


async def test_too_large_manifest_and_tree_are_refused(
    claim: Path, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchctl.workspace.receiver._MAX_MANIFEST", 200)
    async with receiving(claim, limits=Limits(max_bytes=7)) as (url, _):
        assert "more than 7 bytes" in (await Peer(url, http).put(A))[1]["message"]
        long = manifest_of(a=b"", b=b"", c=b"")
        assert "the manifest has more than 200 bytes" in (await Peer(url, http).put(long))[1]["message"]


def frame_of(chunks: Iterable[bytes]) -> bytes:
    packer = Compressed()
    return b"".join([*map(packer.pack, chunks), packer.end()])


async def test_compressed_content_is_bounded_as_plain_content(
    claim: Path, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 KiB that unpack to half a gigabyte: what is not awaited is refused, long before it is unpacked."""
    monkeypatch.setattr("torchctl.workspace.receiver._MAX_MANIFEST", 200)
    bomb = frame_of(bytes(2**20) for _ in range(512))
    headers = {"Content-Encoding": "zstd"}
    async with receiving(claim) as (url, _):
        peer = Peer(url, http)
        status, said = await peer.ask("PUT", f"/v1/trees/{name(A)}", data=bomb, headers=headers)
        assert (status, said["message"]) == (422, "the manifest has more than 200 bytes")
        await peer.put(A)
        headers["Upload-Offset"] = "0"
        status, said = await peer.ask("PATCH", f"/v1/trees/{name(A)}", data=bomb, headers=headers)
        assert status == 422
        assert "does not have the SHA-256" in said["message"]


async def test_frame_that_wants_much_memory_is_refused(claim: Path, http: aiohttp.ClientSession) -> None:
    """Of the memory of its container that is a quarter, for each connection."""
    tree, bomb = manifest_of(big=bytes(2**28)), wide(2**28)
    headers = {"Content-Encoding": "zstd", "Upload-Offset": "0"}
    async with receiving(claim) as (url, _):
        peer = Peer(url, http)
        await peer.put(tree)
        with growing() as grown:
            status, said = await peer.ask("PATCH", f"/v1/trees/{name(tree)}", data=bomb, headers=headers)
        assert (status, said["code"]) == (400, "encoding")
        assert grown.bytes < 2**25


async def test_no_encoding_but_zstd_is_taken(claim: Path, http: aiohttp.ClientSession) -> None:
    async with receiving(claim) as (url, _):
        peer = Peer(url, http)
        for encoding in ("gzip", "br", "zstd, zstd"):
            headers = {"Content-Encoding": encoding}
            status, said = await peer.ask("PUT", f"/v1/trees/{name(A)}", data=b"x", headers=headers)
            assert (status, said["code"]) == (400, "encoding")


async def test_what_follows_a_frame_is_refused(claim: Path, http: aiohttp.ClientSession) -> None:
    headers = {"Content-Encoding": "zstd", "Upload-Offset": "0"}
    frame = frame_of([b"aaaa"])
    async with receiving(claim) as (url, _):
        peer = Peer(url, http)
        await peer.put(A)
        status, said = await peer.ask("PATCH", f"/v1/trees/{name(A)}", data=frame * 2, headers=headers)
        assert (status, said["code"]) == (400, "encoding")
        assert (await peer.patch(A, 4, b"bbbb"))[1]["offset"] == 8


async def test_broken_frame_spoils_nothing_that_came_before(claim: Path, http: aiohttp.ClientSession) -> None:
    headers = {"Content-Encoding": "zstd", "Upload-Offset": "0"}
    async with receiving(claim) as (url, _):
        peer = Peer(url, http)
        await peer.put(A)
        assert (await peer.ask("PATCH", f"/v1/trees/{name(A)}", data=b"aaaabbbb", headers=headers))[0] == 400
        cut = Compressed().pack(b"aaaa")  # without the end of its frame
        assert (await peer.ask("PATCH", f"/v1/trees/{name(A)}", data=cut, headers=headers))[1]["offset"] == 4
        assert (await peer.patch(A, 4, b"bbbb"))[1]["offset"] == 8
        assert (await peer.commit(A))[0] == 200


async def test_second_upload_is_told_of_the_first(claim: Path, http: aiohttp.ClientSession) -> None:
    async with receiving(claim) as (url, _):
        peer = Peer(url, http)
        await peer.put(A)
        await peer.patch(A, 0, b"aaa")
        status, said = await peer.put(B)
        assert (status, said["code"]) == (409, "busy")
        assert said["message"] == f"another upload is under way (tree {name(A)[:12]}, 3 of 8 bytes)"
        assert (await peer.ask("DELETE", f"/v1/trees/{name(A)}"))[0] == 204
        assert (await peer.put(B))[0] == 200


async def test_silent_upload_gives_way(
    claim: Path, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchctl.workspace.receiver._SILENT_S", -1.0)
    async with receiving(claim) as (url, _):
        peer = Peer(url, http)
        await peer.put(A)
        assert (await peer.put(B))[0] == 200
        assert (await peer.patch(A, 0, b"aaaa"))[0] == 410


async def test_slow_sender_is_cut_and_resumes(
    claim: Path, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchctl.workspace.answers._IDLE_S", 0.05)

    async def slow() -> AsyncIterator[bytes]:
        yield b"aa"
        await asyncio.Event().wait()

    async with receiving(claim) as (url, _):
        peer = Peer(url, http)
        await peer.put(A)
        status, said = await peer.patch(A, 0, slow())
        assert (status, said["code"]) == (408, "idle")
        assert (await peer.ask("GET", f"/v1/trees/{name(A)}"))[1]["offset"] == 2


async def test_newer_connection_replaces_a_dead_one(claim: Path, http: aiohttp.ClientSession) -> None:
    """The first one never ends: its peer vanished, and nobody told the receiver."""
    begun = asyncio.Event()

    async def stuck() -> AsyncIterator[bytes]:
        yield b"aa"
        begun.set()
        await asyncio.Event().wait()

    async with receiving(claim) as (url, _):
        peer = Peer(url, http)
        await peer.put(A)
        first = asyncio.create_task(peer.patch(A, 0, stuck()))
        await begun.wait()
        while (await peer.ask("GET", f"/v1/trees/{name(A)}"))[1]["offset"] < 2:
            pass
        assert (await peer.patch(A, 2, b"aabbbb"))[1]["offset"] == 8
        with pytest.raises(aiohttp.ClientError):
            await first
        assert (await peer.commit(A))[0] == 200


async def test_two_senders_of_one_tree_both_end_well(claim: Path, http: aiohttp.ClientSession) -> None:
    """One that comes while another is answered cuts it; one that comes later finds what is there."""
    async with receiving(claim) as (url, _):
        peer = Peer(url, http)
        puts = await asyncio.gather(*(peer.put(A) for _ in range(4)), return_exceptions=True)
        assert {put[0] for put in puts if not isinstance(put, BaseException)} == {200}
        await peer.patch(A, 0, b"aaaabbbb")
        assert [status for status, _ in await asyncio.gather(*(peer.commit(A) for _ in range(4)))] == [200] * 4


async def test_another_revision_than_awaited_is_refused(claim: Path, http: aiohttp.ClientSession) -> None:
    async with receiving(claim, revision=f"sha256:{name(B)}") as (url, _):
        status, said = await Peer(url, http).put(A)
        assert (status, said["message"].split(",")[0]) == (422, f"the job waits for the revision {name(B)}")
        assert (await Peer(url, http).put(B))[0] == 200


async def test_files_of_others_are_left_alone(claim: Path, http: aiohttp.ClientSession) -> None:
    (claim / "mine").write_text("x")
    async with receiving(claim) as (url, _):
        status, said = await Peer(url, http).put(A)
        assert (status, "files that no sync put there ('mine')" in said["message"]) == (422, True)
    assert (claim / "mine").read_text() == "x"


async def test_full_volume_is_one_line(
    claim: Path, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Unpacker, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with receiving(claim) as (url, _):
        peer = Peer(url, http)
        await peer.put(A)
        monkeypatch.setattr(Unpacker, "write", full)
        status, said = await peer.patch(A, 0, b"aaaabbbb")
        assert (status, said["next_step"]) == (507, "Give volumes.workspace.size more room")
        assert "the volume is full" in said["message"]
    assert os.listdir(claim) == ["lost+found"]


async def test_new_revision_replaces_the_old_at_commit_only(claim: Path, http: aiohttp.ClientSession) -> None:
    async with receiving(claim) as (url, _):
        peer = Peer(url, http)
        await peer.put(A)
        await peer.patch(A, 0, b"aaaabbbb")
        await peer.commit(A)
        await peer.put(B)
        await peer.patch(B, 0, b"other")
        assert contents(claim) == {"a": (b"aaaa", False), "b": (b"bbbb", False)}
        await peer.commit(B)
    assert contents(claim) == {"b": (b"other", False)}
