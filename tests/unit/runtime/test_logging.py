"""Every line is structured, whoever logs it, and carries the reconcile that it belongs to."""

import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from torchctl.runtime.kinds import Key
from torchctl.runtime.logging import add_reconcile, configure, reconcile_context
from torchctl.runtime.settings import LogSettings


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, configured = list(root.handlers), root.level, structlog.get_config()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.configure(**configured)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_has_the_keys_of_controller_runtime() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    with reconcile_context("torchrunjob", Key("team", "train"), lambda: "r-1"):
        structlog.get_logger("torchctl.test").info("applied", kind="Job")
    (line,) = lines(stream)
    assert line.pop("ts").endswith("Z")
    assert line == {
        "msg": "applied",
        "level": "info",
        "logger": "torchctl.test",
        "controller": "torchrunjob",
        "namespace": "team",
        "name": "train",
        "reconcileID": "r-1",
        "kind": "Job",
    }


def test_lines_of_other_libraries_carry_the_reconcile_too() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    with reconcile_context("q", Key("", "gpu"), lambda: "r-2"):
        logging.getLogger("aiohttp.client").warning("slow %s", "answer")
    (line,) = lines(stream)
    assert (line["msg"], line["logger"], line["controller"]) == ("slow answer", "aiohttp.client", "q")
    assert "namespace" not in line


def test_all_lines_of_a_reconcile_have_one_id() -> None:
    stream, ids = io.StringIO(), iter(("r-1", "r-2"))
    configure(stream=stream)
    with reconcile_context("q", Key("", "gpu"), lambda: next(ids)):
        structlog.get_logger("t").info("first")
        structlog.get_logger("t").info("second")
    assert [line["reconcileID"] for line in lines(stream)] == ["r-1", "r-1"]


def test_a_program_with_its_own_processors_adds_the_reconcile() -> None:
    """A value that the line itself names stays."""
    context = reconcile_context("q", Key("team", "gpu"), lambda: "r-1")
    with structlog.testing.capture_logs(processors=[add_reconcile]) as captured, context:
        structlog.get_logger("t").info("moved", name="other")
    coordinates = {"controller": "q", "namespace": "team", "name": "other", "reconcileID": "r-1"}
    assert captured == [{"event": "moved", "log_level": "info", **coordinates}]


def test_the_reconcile_ends_with_its_context() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    with reconcile_context("q", Key("", "gpu"), lambda: "r-2"):
        pass
    structlog.get_logger("t").info("idle")
    assert "controller" not in lines(stream)[0]


def test_an_exception_is_one_line_without_local_variables() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    secret = "s3cr3t-" + "value"
    try:
        raise ValueError(len(secret))
    except ValueError:
        structlog.get_logger("t").exception("failed")
    (line,) = lines(stream)
    assert "ValueError: 12" in line["exception"]
    assert secret not in line["exception"]


def test_a_terminal_gets_text_without_local_variables() -> None:
    stream = Terminal()
    configure(stream=stream)
    secret = "s3cr3t-" + "value"
    try:
        raise ValueError(len(secret))
    except ValueError:
        structlog.get_logger("t").exception("failed", job="train")
    assert "train" in stream.getvalue()
    assert not stream.getvalue().startswith("{")
    assert secret not in stream.getvalue()


def test_a_format_can_be_forced() -> None:
    stream = Terminal()
    configure(LogSettings(format="json"), stream=stream)
    structlog.get_logger("t").info("hello")
    assert lines(stream)[0]["msg"] == "hello"


def test_levels_below_the_chosen_one_are_silent() -> None:
    stream = io.StringIO()
    configure(LogSettings(level="warning"), stream=stream)
    structlog.get_logger("t").info("quiet")
    logging.getLogger("library").info("quiet")
    assert lines(stream) == []


def test_a_python_warning_is_a_line() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old call", stacklevel=1)
    assert "old call" in lines(stream)[0]["msg"]


def test_configuring_twice_logs_once() -> None:
    stream = io.StringIO()
    configure(stream=io.StringIO())
    configure(stream=stream)
    structlog.get_logger("t").info("hello")
    assert len(lines(stream)) == 1
