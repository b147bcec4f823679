"""Stories that a job lives through, from its submission to its end, for tests that tell them many times."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jobs import a_job, a_queue
from snapshots import COUNTS

from torchctl.api.phases import Phase
from torchctl.testing.script import Play, Script, named

__all__ = ["NODES", "SCRIPT", "STORIES", "Story"]

Json = dict[str, Any]
GIT = {"source": "git", "url": "https://git.example.com/team/code.git", "ref": "main"}
SHARED_CLAIM = {"enabled": True, "size": "1Gi", "accessModes": ["ReadWriteMany"]}
NODES = 2
"""Of a job that does not say how many."""


@dataclass(frozen=True, slots=True)
class Story:
    """A queue, a job in it, and how the job ends.

    Args:
        queue_spec: The queue's, given the name of the namespace; a cluster-scoped name needs it.
        job_spec: What the job says besides its queue, its two nodes and its command.
        edit: What the user does to the queue's spec while there is no operator, and in any case before the end.
        masked: Paths that differ between two undisturbed runs of this story.
    """

    name: str
    queue_spec: Callable[[str], Json]
    job_spec: Json
    end: Phase = Phase.SUCCEEDED
    edit: Json = field(default_factory=dict)
    masked: frozenset[str] = frozenset()

    def queue(self, namespace: str) -> Json:
        return a_queue(namespace, **self.queue_spec(namespace))

    def job(self, namespace: str) -> Json:
        return a_job(namespace, self.name, **self.job_spec)


def _managed(namespace: str) -> Json:
    return {
        "kaiQueue": namespace,
        "nodeResources": {"gpus": 8},
        "storage": {"workspace": SHARED_CLAIM, "checkpoints": {**SHARED_CLAIM, "retain": True}},
    }


def _served(namespace: str) -> Json:
    return {"storage": {"workspace": {**SHARED_CLAIM, "accessModes": ["ReadWriteOnce"]}}}


STORIES = {
    story.name: story
    for story in (
        Story("gang", _managed, {"volumes": {"workspace": GIT}}),
        Story("plain", lambda namespace: {}, {}),
        Story("fails", lambda namespace: {}, {}, Phase.FAILED, masked=COUNTS),
        Story("edited", lambda namespace: {}, {}, edit={"image": "trainer:2"}),
        Story("served", _served, {"volumes": {"workspace": GIT}}),
    )
}

SCRIPT = Script().when(named("^fails-0-"), Play(run_s=None)).when(named("^fails-1-"), Play(exit_code=1))
"""How pods must be played for the stories to end as they say."""
