"""Stories that a job lives through, from its submission to its end, for tests that tell them many times.

What happens in a story happens because of what its user sees (`Act`), never because of time that passes: however long
an operator is away, the story waits. Only the first stories have workers that end by themselves: those tell what
becomes of a job whose operator was away at that moment.
"""

from typing import Any

from coordinatedstories import COORDINATED, FOREIGN, LEAVING
from gangstories import GANGS, GRACE_S, LINGER
from snapshots import AGE, COUNTS, READINESS
from story import Story
from users import (
    Act,
    asks_for,
    brought,
    deletes,
    deletes_worker,
    edits,
    edits_queue,
    ends,
    in_phase,
    ready,
    runs,
    runs_code,
)

from torchctl.api.labels import JOB_NAME, ROLE, ROLE_WORKER
from torchctl.api.phases import Phase
from torchctl.testing.nodekinds import Pod
from torchctl.testing.script import SYNC_MESSAGE, Part, Play, Script, named

__all__ = ["SCRIPT", "STORIES"]

Json = dict[str, Any]
GIT = {"workspace": {"source": "git", "url": "https://git.example.com/team/code.git", "ref": "main"}}
SHARED_CLAIM = {"enabled": True, "size": "1Gi", "accessModes": ["ReadWriteMany"]}
CODE = 42
SENT = "sha256:" + "5" * 64
"""The digest of a tree that was sent to a job while it ran."""


def _managed(namespace: str) -> Json:
    return {
        "kaiQueue": namespace,
        "nodeResources": {"gpus": 1},
        "storage": {"workspace": SHARED_CLAIM, "checkpoints": {**SHARED_CLAIM, "retain": True}},
    }


def _gangs(namespace: str) -> Json:
    return {"kaiQueue": namespace, "nodeResources": {"gpus": 1}}


def _own_volcano_queue(namespace: str) -> Json:
    return {"scheduling": {"volcanoQueue": namespace, "volcanoQueuePolicy": "Manage"}}


def _mounted(namespace: str) -> Json:
    """All workers mount the claim, so files can change in it while they run."""
    return {"storage": {"workspace": SHARED_CLAIM}}


def _served(namespace: str) -> Json:
    return {"storage": {"workspace": {**SHARED_CLAIM, "accessModes": ["ReadWriteOnce"]}}}


def _injected(namespace: str) -> Json:
    """A container that never ends beside `fetch`, as a mesh has it."""
    beside = {"spec": {"containers": [{"name": "proxy", "image": "proxy:1"}]}}
    return {"storage": {"workspace": {**SHARED_CLAIM, "podTemplate": beside}}}


def _retaining(namespace: str) -> Json:
    return {"storage": {"workspace": SHARED_CLAIM, "checkpoints": {**SHARED_CLAIM, "retain": True}}}


def _map(name: str, mode: str = "exact", value: str = "1") -> Json:
    template = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": value}}
    return {"name": name, "nameMode": mode, "template": template}


def _claim(name: str) -> Json:
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"name": name, "template": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec}}


def _stocked(namespace: str) -> Json:
    trainer = {"name": "trainer", "envFrom": [{"configMapRef": {"name": "settings"}}]}
    return {
        "resources": [_map("settings", "prefix"), _map("stock"), _map("left"), _claim("store")],
        "podTemplate": {"spec": {"containers": [trainer]}},
    }


BY_THEMSELVES = (
    Story("gang", _managed, {"volumes": GIT}, masked=READINESS),
    Story("plain", masked=READINESS),
    Story("fails", job_spec={"runPolicy": {"maxRestarts": 0}}, end=Phase.FAILED, masked=COUNTS | READINESS),
    Story("edited", edit={"image": "trainer:2"}, masked=READINESS),
    Story("served", _served, {"volumes": GIT}, masked=READINESS),
    Story("beside", _injected, {"volumes": GIT}, masked=READINESS | AGE),
)

FAILS_ONCE = (Act(runs(0), ends(1, CODE)), Act(runs(1), ends()))
ELASTIC = {"elastic": {"minNodes": 1, "maxNodes": 3}}

ON_CUE = (
    Story("restart", acts=FAILS_ONCE, workers=4),
    Story("restart-git", _served, {"volumes": GIT}, acts=FAILS_ONCE, workers=4),
    Story("restart-kai", _gangs, acts=FAILS_ONCE, workers=4),
    Story(
        "used-up",
        job_spec={"runPolicy": {"maxRestarts": 1}},
        end=Phase.FAILED,
        acts=(Act(runs(0), ends(1, CODE)), Act(runs(1), ends(1, CODE))),
        workers=4,
        masked=COUNTS,
    ),
    Story("saved", acts=(Act(runs(0), deletes_worker()), Act(runs(1), ends())), workers=None),
    Story(
        "later",
        _served,
        {"suspend": True, "volumes": GIT},
        acts=(Act(in_phase(Phase.SUSPENDED), edits(suspend=False)), Act(runs(0), ends())),
    ),
    Story(
        "pause",
        acts=(
            Act(runs(0), edits(suspend=True)),
            Act(in_phase(Phase.SUSPENDED), edits(suspend=False)),
            Act(runs(1), ends()),
        ),
        workers=4,
    ),
    Story(
        "scale",
        job_spec=ELASTIC,
        acts=(
            Act(ready(2), edits(numNodes=3)),
            Act(ready(3), edits(numNodes=1)),
            Act(ready(1), ends(0)),
        ),
        workers=3,
    ),
    Story(
        "host",
        job_spec=ELASTIC,
        acts=(Act(runs(0), deletes_worker(0)), Act(lambda status: status.attempt == 1 and ready(2)(status), ends(0))),
        workers=None,
    ),
    Story(
        "deadline",
        job_spec={"runPolicy": {"activeDeadlineSeconds": 1}},
        end=Phase.FAILED,
        workers=None,
        masked=COUNTS | READINESS,
    ),
    Story(
        "ttl",
        _retaining,
        {"volumes": GIT, "runPolicy": {"ttlSecondsAfterFinished": 1}},
        end=None,
        acts=(Act(runs(0), ends()),),
    ),
    Story("deleted", _retaining, {"volumes": GIT}, end=None, acts=(Act(runs(0), deletes()),)),
    Story(
        "deleted-restart",
        end=None,
        acts=(Act(runs(0), ends(1, CODE)), Act(lambda status: status.attempt == 1, deletes())),
        workers=None,
        races=True,
    ),
    Story("tidy", job_spec={"runPolicy": {"podRetention": "None"}}, acts=FAILS_ONCE, workers=4),
    Story(
        "next",
        job_spec={"queueUpdatePolicy": "NextAttempt"},
        acts=(Act(runs(0), edits_queue(image="trainer:2")), *FAILS_ONCE),
        workers=4,
    ),
    Story(
        "revised",
        _served,
        {"volumes": GIT},
        acts=(Act(runs(0), asks_for("v2")), *FAILS_ONCE),
        workers=4,
    ),
    Story(
        "revised-twice",
        _retaining,
        {"suspend": True, "volumes": GIT},
        acts=(
            Act(brought(""), asks_for("v2")),
            Act(brought("v2"), asks_for("v3")),
            Act(brought("v3"), edits(suspend=False)),
            Act(runs(0), ends()),
        ),
    ),
    Story(
        "reloaded",
        job_spec={"hotReload": "Restart", "volumes": GIT},
        acts=(Act(runs(0), asks_for(SENT)), Act(runs_code(0, SENT), ends(1, CODE)), Act(runs(1), ends())),
        workers=4,
    ),
    Story(
        "files",
        _mounted,
        {"hotReload": "Files", "volumes": GIT},
        acts=(Act(runs(0), asks_for(SENT)), Act(runs_code(0, SENT), ends(1, CODE)), Act(runs(1), ends())),
        workers=4,
    ),
    Story(
        "chain",
        job_spec={"dependsOn": [{"job": "upstream"}]},
        others={"upstream": {}},
        acts=(Act(runs(0), ends(), "upstream"), Act(runs(0), ends())),
        workers=4,
    ),
    Story(
        "stocked",
        _stocked,
        acts=(
            Act(
                runs(0),
                edits_queue(resources=[_map("settings", "prefix", "2"), _map("stock", value="2"), _claim("store")]),
            ),
            Act(runs(0), ends()),
        ),
    ),
    Story("handed", _gangs, acts=(Act(runs(0), edits_queue(kaiQueuePolicy="Reference")), Act(runs(0), ends()))),
    Story(
        "handed-volcano",
        _own_volcano_queue,
        acts=(
            Act(runs(0), edits_queue(scheduling={"volcanoQueuePolicy": "Reference"})),
            Act(runs(0), ends()),
        ),
    ),
    *COORDINATED,
    *GANGS,
)

STORIES = {story.name: story for story in (*BY_THEMSELVES, *ON_CUE)}

_CUED = {name for story in ON_CUE for name in (story.name, *story.others)}


def _is_cued(pod: Pod) -> bool:
    """Whether a pod is a worker that runs until it is told to end."""
    labels = pod.metadata.labels
    return labels.get(JOB_NAME) in _CUED and labels.get(ROLE) == ROLE_WORKER


SCRIPT = (
    Script()
    .when(named("^fails-0-"), Play(run_s=None))
    .when(named("^fails-1-"), Play(exit_code=1))
    .when(_is_cued, Play(run_s=None))
    .when(named("^beside-sync-"), Play(parts={"proxy": Part(run_s=None)}, messages={"fetch": SYNC_MESSAGE}))
    # Long enough for an operator that comes after one that was cut down at that moment: of pods that are gone it is
    # documented that nobody can say why they ended.
    .when(named("^saved-[01]-"), Play(run_s=None, stop_exit_code=0, stop_s=4.0))
    .when(named("^host-0-"), Play(run_s=None, stop_s=4.0))
    .when(named(f"{LINGER}|{LEAVING}"), Play(run_s=None, stop_s=GRACE_S))
    .when(named(f"^{FOREIGN}$"), Play(run_s=None))
)
"""How pods must be played for the stories to end as they say."""
