"""A forwarded port's frames: what the node reads is what was written, in whatever pieces it comes."""

import itertools
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchctl.runtime.client.errors import Malformed
from torchctl.runtime.client.spdy import MAX_FRAME, PortStreams

ERRORS, DATA = 1, 3
FIN = 1
SYN_REPLY, RST_STREAM, SETTINGS, PING, GOAWAY = 2, 3, 4, 6, 7


def control(kind: int, content: bytes, flags: int = 0) -> bytes:
    return b"\x80\x03" + kind.to_bytes(2, "big") + bytes([flags]) + len(content).to_bytes(3, "big") + content


def number(stream: int) -> bytes:
    return stream.to_bytes(4, "big")


def frame(stream: int, data: bytes, flags: int = 0) -> bytes:
    return number(stream) + bytes([flags]) + len(data).to_bytes(3, "big") + data


def pieces(stream: bytes, cuts: list[int]) -> Iterator[bytes]:
    places = sorted({cut % (len(stream) + 1) for cut in cuts} | {0, len(stream)})
    return (stream[start:end] for start, end in itertools.pairwise(places))


OPENED = b"".join(control(SYN_REPLY, number(stream) + b"\x78\x9c headers") for stream in (ERRORS, DATA))


def test_two_streams_ask_for_the_port() -> None:
    """The frames of SPDY's draft, field by field; the second block of headers continues the first one's compression."""
    asked, inflate = PortStreams().open(8081), zlib.decompressobj()
    for stream, kind, flags in ((ERRORS, b"error", FIN), (DATA, b"data", 0)):
        assert asked[:5] == b"\x80\x03\x00\x01" + bytes([flags])
        end = 8 + int.from_bytes(asked[5:8], "big")
        assert asked[8:18] == number(stream) + bytes(6)
        texts = (b"streamtype", kind, b"port", b"8081", b"requestid", b"0")
        assert inflate.decompress(asked[18:end]) == number(3) + b"".join(number(len(text)) + text for text in texts)
        asked = asked[end:]
    assert asked == b""


@given(st.binary(max_size=2**17 + 1))
def test_bytes_for_the_pod_go_on_the_second_stream(data: bytes) -> None:
    assert PortStreams().write(memoryview(data)) == frame(DATA, data)


@given(sent=st.lists(st.binary(max_size=100)), cuts=st.lists(st.integers(0, 10**6)), pings=st.integers(0, 3))
def test_data_arrives_in_whatever_pieces(sent: list[bytes], cuts: list[int], pings: int) -> None:
    """With pings, settings and a farewell in between, as a peer may send them at any time."""
    ping = control(PING, number(2))
    others = control(SETTINGS, bytes(4)) + control(GOAWAY, bytes(8)) + ping * pings
    streams, data, answer = PortStreams(), b"", b""
    for piece in pieces(OPENED + b"".join(frame(DATA, each) + others for each in sent) + frame(DATA, b"", FIN), cuts):
        assert not streams.ended
        received = streams.read(piece)
        data += received.data
        answer += received.answer
    assert data == b"".join(sent)
    assert answer == ping * (pings * len(sent))
    assert streams.opened
    assert streams.ended
    assert streams.failure is None


def test_answers_to_own_pings_are_not_answered() -> None:
    """Those of whoever opens the connection are odd; an answer to an answer would never end."""
    streams = PortStreams()
    pings = [streams.ping() for _ in range(2)]
    assert pings == [control(PING, number(1)), control(PING, number(3))]
    assert streams.read(b"".join(pings)).answer == b""


def test_connection_is_open_once_both_streams_are() -> None:
    streams, opened = PortStreams(), list[bool]()
    for reply in (OPENED[: len(OPENED) // 2], OPENED[len(OPENED) // 2 :]):
        streams.read(reply)
        opened.append(streams.opened)
    assert opened == [False, True]
    assert not streams.ended


@given(cuts=st.lists(st.integers(0, 200)))
def test_the_node_s_error_is_told_in_its_words(cuts: list[int]) -> None:
    """After what the pod had sent, even if both come at once: that may be the answer that explains it."""
    said = frame(ERRORS, b"error forwarding port 8081: ") + frame(ERRORS, b"connection refused\n")
    end = frame(ERRORS, b"", FIN) + frame(DATA, b"", FIN)
    streams, data = PortStreams(), b""
    for piece in pieces(OPENED + frame(DATA, b"422 Refused") + said + end, cuts):
        data += streams.read(piece).data
    assert data == b"422 Refused"
    assert str(streams.failure) == "error forwarding port 8081: connection refused"


@pytest.mark.parametrize("stream", [ERRORS, DATA])
def test_reset_tells_what_was_said_before(stream: int) -> None:
    for said, message in ((b"lost the sandbox", "lost the sandbox"), (b"", "has reset the connection")):
        streams = PortStreams()
        streams.read(OPENED + frame(ERRORS, said) + control(RST_STREAM, number(stream) + number(5)))
        assert message in str(streams.failure)


def test_stream_that_nobody_opened_says_nothing() -> None:
    assert PortStreams().read(OPENED + frame(5, b"else") + frame(DATA, b"data")).data == b"data"


def test_end_of_the_errors_is_no_end_of_the_data() -> None:
    streams = PortStreams()
    assert streams.read(OPENED + frame(ERRORS, b"", FIN) + frame(DATA, b"rest")).data == b"rest"
    assert not streams.ended


def test_endless_error_is_not_kept() -> None:
    streams = PortStreams()
    for _ in range(100):
        streams.read(frame(ERRORS, bytes(2**12)))
    streams.read(frame(ERRORS, b"", FIN))
    assert len(str(streams.failure)) <= 2**14


@pytest.mark.parametrize(
    "received",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\x80\x02\x00\x02\x00\x00\x00\x04" + bytes(4),
        control(SYN_REPLY, b"\x00\x00"),
        frame(DATA, bytes(MAX_FRAME)),
    ],
)
def test_peer_that_does_not_speak_spdy_is_malformed(received: bytes) -> None:
    with pytest.raises(Malformed):
        PortStreams().read(received)
