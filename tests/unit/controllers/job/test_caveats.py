"""A job that is accepted and may not do what its user meant says so in `Accepted`."""

import pytest
from world import World


def accepted(world: type[World], job: str, queue: str = "image: a:1") -> tuple[str, str, str]:
    w = world(f"{{jobQueue: research, numNodes: 2, {job}}}", queue)
    w.settle()
    found: tuple[str, str, str] = w.condition("Accepted")
    return found


@pytest.mark.parametrize("job", ["command: python t.py | tee log", "args: [bash, train.sh]"])
def test_a_command_that_torchrun_does_not_get_is_told(world: type[World], job: str) -> None:
    status, reason, message = accepted(world, job)
    assert (status, reason) == ("True", "RunsAsWritten")
    assert message.startswith(
        f"the spec is valid; spec.{job.partition(':')[0]} runs as it is written, once in each pod"
    )
    assert "torchrun ..." in message


@pytest.mark.parametrize("job", ["command: cd src && python t.py", "command: ./train.sh, launcher: none"])
def test_a_command_that_does_what_was_meant_has_no_caveat(world: type[World], job: str) -> None:
    assert accepted(world, job) == ("True", "Accepted", "the spec is valid")


def test_several_caveats_are_told_together(world: type[World]) -> None:
    queue = "{image: a:1, storage: {checkpoints: {enabled: true}}}"
    _, reason, message = accepted(world, "command: ./train.sh", queue)
    assert reason == "CheckpointsOnOneNode"
    assert "will wait for the volume for ever" in message
    assert "spec.command runs as it is written" in message
