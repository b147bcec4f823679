"""Rows of tables from objects."""

from datetime import UTC, datetime, timedelta

import msgspec

from torchctl.client.tables import jobs_table, queues_table
from torchctl.client.views import JobView, QueueView

NOW = datetime(2030, 1, 2, tzinfo=UTC)
CREATED = (NOW - timedelta(minutes=5)).isoformat()


def job(name: str, namespace: str = "ml", **fields: object) -> JobView:
    body = {"metadata": {"name": name, "namespace": namespace, "creationTimestamp": CREATED}, **fields}
    return msgspec.convert(body, JobView)


def condition(type_: str, status: str, reason: str = "", message: str = "") -> dict[str, str]:
    return {"type": type_, "status": status, "reason": reason, "message": message}


RUNNING = job(
    "vit",
    spec={"jobQueue": "h100", "numNodes": 4, "command": "python train.py", "notYetKnown": {"to": "this client"}},
    status={
        "phase": "Running",
        "nodes": {"desired": 4, "ready": 4},
        "gpus": 32,
        "workersStatus": "4/4 running",
        "restarts": {"total": 1},
        "attempt": 1,
        "workspace": {"revision": "0123456789abcdef"},
        "conditions": [condition("Complete", "False")],
    },
)
QUEUED = job(
    "bert",
    spec={"jobQueue": "h100", "numGPUs": 8},
    status={"phase": "Queued", "conditions": [condition("Admitted", "False", "Waiting", "no\n node is free")]},
)
NEW = job("a", "zoo")


def test_a_job_is_a_row_by_namespace_and_name() -> None:
    table = jobs_table([NEW, RUNNING, QUEUED], NOW)
    assert table.headings == ("NAME", "QUEUE", "PHASE", "NODES", "GPUS", "WORKERS", "RESTARTS", "AGE")
    assert table.rows == (
        ("bert", "h100", "Queued", "-", "8", "-", "0", "5m"),
        ("vit", "h100", "Running", "4", "32", "4/4 running", "1", "5m"),
        ("a", "", "New", "-", "0", "-", "0", "5m"),
    )


def test_wide_says_what_a_job_waits_for_or_failed_of() -> None:
    failed = job("f", status={"phase": "Failed", "conditions": [condition("Failed", "True", "Error", "x" * 200)]})
    table = jobs_table([RUNNING, QUEUED, failed, NEW], NOW, namespaces=True, wide=True)
    assert table.headings[0] == "NAMESPACE"
    assert table.headings[-3:] == ("ATTEMPT", "REVISION", "WHY")
    assert {row[1]: row[-3:] for row in table.rows} == {
        "vit": ("1", "0123456789ab", ""),
        "bert": ("0", "-", "Waiting: no node is free"),
        "f": ("0", "-", f"Error: {'x' * 90}..."),
        "a": ("0", "-", ""),
    }


def test_control_characters_of_a_message_stay_out_of_a_table() -> None:
    said = condition("Admitted", "False", "Waiting", "no \x1b[2Jnode\u202e is\x00 free")
    table = jobs_table([job("a", status={"phase": "Queued", "conditions": [said]})], NOW, wide=True)
    assert table.rows[0][-1] == "Waiting: no [2Jnode is free"


def test_revision_of_a_tree_is_told_by_its_digits() -> None:
    digest = "sha256:0123456789abcdef"
    table = jobs_table([job("a", status={"workspace": {"revision": digest}})], NOW, wide=True)
    assert table.rows[0][-2] == "0123456789ab"


def test_a_queue_is_a_row_with_its_counts() -> None:
    queue = msgspec.convert(
        {
            "metadata": {"name": "h100", "namespace": "ml", "creationTimestamp": CREATED},
            "spec": {"kaiQueue": "gold", "nodeResources": {"gpus": 8, "gpuType": "H100"}, "image": "torch:2"},
            "status": {
                "jobs": {"running": 3, "queued": 2},
                "gpus": {"running": 24},
                "conditions": [condition("Ready", "False", "NotReady", "no parent")],
            },
        },
        QueueView,
    )
    bare = msgspec.convert({"metadata": {"name": "cpu", "namespace": "ml"}}, QueueView)
    assert queues_table([queue, bare], NOW).rows == (
        ("cpu", "Unknown", "0", "0", "0", "0", "-", "-"),
        ("h100", "False", "8", "3", "2", "24", "gold", "5m"),
    )
    wide = queues_table([queue], NOW, namespaces=True, wide=True)
    assert wide.rows[0][0] == "ml"
    assert wide.rows[0][-3:] == ("H100", "torch:2", "NotReady: no parent")


def test_no_objects_are_no_rows() -> None:
    assert (jobs_table([], NOW).rows, queues_table([], NOW).rows) == ((), ())
