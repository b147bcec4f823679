"""Messages of errors: one line, what happened and what next."""

from torchctl.client import errors
from torchctl.client.errors import ClientError, one_line


def test_a_message_is_one_line_however_long() -> None:
    """A proxy's error page, colours, or a message of a webhook may hold anything."""
    said = str(ClientError("broken\n\x1b[31m" + "x" * 5000, "Try again."))
    assert len(said) <= errors.MAX_LINE
    assert said.isprintable()
    assert one_line(" a\r\n\tb ") == "a b"


def test_what_and_next_step_are_two_sentences() -> None:
    assert str(ClientError("the queue is gone", "Make it.")) == "the queue is gone. Make it."
    assert str(ClientError("the queue is gone.", "Make it.")) == "the queue is gone. Make it."
    assert str(ClientError("the queue is gone")) == "the queue is gone"
