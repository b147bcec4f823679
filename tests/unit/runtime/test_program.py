"""What a program says when it ends by itself."""

from structlog.testing import capture_logs

from torchctl.runtime.program import MOST_CAUSES, tell_causes


def test_each_cause_of_the_end_has_its_own_log_line() -> None:
    inner = ExceptionGroup("leadership", [OSError("the port is taken"), RuntimeError("the watch died")])
    with capture_logs() as logs:
        tell_causes(ExceptionGroup("manager", [inner, ValueError("the certificate is none")]))
    said = ["the port is taken", "the watch died", "the certificate is none"]
    assert [line["error"] for line in logs] == said
    assert [line.get("causes") for line in logs] == [3, None, None]
    assert {line["log_level"] for line in logs} == {"critical"}
    assert isinstance(logs[0]["exc_info"], OSError)


def test_only_the_first_of_many_causes_are_logged() -> None:
    """The first line says how many there are in all."""
    with capture_logs() as logs:
        tell_causes(ExceptionGroup("manager", [ValueError(str(number)) for number in range(3 * MOST_CAUSES)]))
    assert (len(logs), logs[0]["causes"]) == (MOST_CAUSES, 3 * MOST_CAUSES)
