"""What a job becomes, whole, beside what a person wrote: see tests/golden/README.md."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from goldens import LEFT_OUT, is_regenerated, written
from world import World

JOBS = Path(__file__).parents[3] / "golden" / "jobs"
SHOWN_WHOLE = "cpu-single-node-zip"


def children_of(world: type[World], queue: dict[str, Any], job: dict[str, Any]) -> list[dict[str, Any]]:
    """Every object of a job whose workspace is brought, in the order of their making."""
    w = world(yaml.safe_dump(job["spec"]), yaml.safe_dump(queue["spec"]))
    if job["spec"].get("volumes", {}).get("workspace", {}).get("source") == "existing":
        w.has_claim("my-code", "ReadWriteOnce")
    w.settle()
    if w.seen.sync_pods:
        w.sync_succeeds()
        w.sync_serves()
        w.settle()
    return list(w.objects.values())


@pytest.mark.parametrize("path", sorted(JOBS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_job_becomes_exactly_these_objects(path: Path, world: type[World]) -> None:
    queue, job, *expected = yaml.safe_load_all(path.read_text())
    actual = json.loads(json.dumps(children_of(world, queue, job)))
    for child in actual:
        if child["kind"] == "ControllerRevision" and path.stem != SHOWN_WHOLE:
            child["data"] = LEFT_OUT
    if is_regenerated():
        inputs = "---\n".join(path.read_text().split("---\n")[:2])
        path.write_text(inputs.rstrip("\n") + "\n---\n" + written(actual))
        return
    assert [(child["kind"], child["metadata"]["name"]) for child in expected] == [
        (child["kind"], child["metadata"]["name"]) for child in actual
    ]
    for wanted, child in zip(expected, actual, strict=True):
        assert wanted == child
