"""The protocol of commands: every message means what the kubelet means by it."""

import pytest

from torchctl.runtime.client.channels import Channel, Ended, ExecMessages, Output
from torchctl.runtime.client.errors import Malformed, StreamFailed


def test_output_names_its_channel() -> None:
    messages = ExecMessages()
    assert messages.read(b"\x01out") == Output(Channel.STDOUT, b"out")
    assert messages.read(b"\x02err") == Output(Channel.STDERR, b"err")


def test_the_empty_message_of_an_open_command_says_nothing() -> None:
    assert ExecMessages().read(b"\x01") is None


def test_a_closed_channel_says_nothing() -> None:
    assert ExecMessages().read(b"\xff\x01") is None


def test_success_is_exit_code_zero() -> None:
    assert ExecMessages().read(b'\x03{"metadata":{},"status":"Success"}') == Ended(0)


def test_the_exit_code_is_read_from_the_causes() -> None:
    status = b'{"status":"Failure","message":"command terminated with non-zero exit code","reason":"NonZeroExitCode",'
    status += b'"details":{"causes":[{"reason":"ExitCode","message":"42"}]}}'
    assert ExecMessages().read(b"\x03" + status) == Ended(42)


def test_a_command_that_cannot_start_has_no_exit_code() -> None:
    status = b'{"status":"Failure","reason":"InternalError","message":"executable file not found in $PATH"}'
    with pytest.raises(StreamFailed, match="not found"):
        ExecMessages().read(b"\x03" + status)


@pytest.mark.parametrize("message", [b"\x03no JSON", b"\x00in", b"\x04{}"])
def test_a_command_answers_on_its_own_channels_only(message: bytes) -> None:
    with pytest.raises(Malformed):
        ExecMessages().read(message)


def test_input_is_written_ended_and_the_terminal_resized() -> None:
    messages = ExecMessages()
    assert messages.stdin(b"in") == b"\x00in"
    assert messages.end_stdin() == b"\xff\x00"
    assert messages.resize(80, 24) == b'\x04{"Width":80,"Height":24}'
