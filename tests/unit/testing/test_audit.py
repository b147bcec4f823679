"""The audit log is read as requests that were answered."""

import json
from pathlib import Path
from typing import Any

from torchctl.testing.audit import read_audit_log


def line(stage: str = "ResponseComplete", verb: str = "get", **fields: Any) -> str:
    event = {"kind": "Event", "stage": stage, "verb": verb, "requestURI": "/x", **fields}
    return json.dumps(event) + "\n"


def test_only_answered_requests_and_whole_lines_are_read(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    reference = {"resource": "jobs", "namespace": "ns", "name": "a", "apiGroup": "batch"}
    log.write_text(
        line("ResponseStarted", "watch")
        + line(verb="create", objectRef=reference, user={"username": "ada"}, responseStatus={"code": 201})
        + line()
        + line()[:20]
    )
    create, get = read_audit_log(log)
    assert (create.verb, create.user.username, create.response_status.code) == ("create", "ada", 201)
    assert create.object_ref is not None
    assert create.object_ref.api_group == "batch"
    assert create.is_write
    assert not get.is_write


def test_reading_can_start_at_an_earlier_end(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_text(line())
    before = log.stat().st_size
    with log.open("a") as more:
        more.write(line(verb="patch"))
    assert [request.verb for request in read_audit_log(log, before)] == ["patch"]
