"""Another revision of the workspace: status names it, and the sync pod that is to bring it, before there is one."""

import pytest
from world import World

from torchctl.api.job import WorkspaceStatus

ZIP = "{jobQueue: research, numNodes: 1, command: python a.py, suspend: %s, volumes: {workspace: {source: zip}}}"
REPORT = '{"revision": "sha256:aa", "digest": "sha256:aa", "bytes": 12, "files": 3, "source": "zip"}'


def synced(world: type[World], *, suspended: bool) -> World:
    """A job whose workspace has been uploaded."""
    w = world(ZIP % str(suspended).lower())
    w.settle()
    w.sync_succeeds(message=REPORT)
    w.settle()
    assert w.workspace.revision == "sha256:aa"
    return w


def ask_for(w: World, revision: str) -> None:
    volumes = w.seen.job.spec.volumes
    workspace = w.source.model_copy(update={"revision": revision})
    w.edit(volumes=volumes.model_copy(update={"workspace": workspace}))
    w.step()


@pytest.mark.proves(
    "TorchrunJob.spec.volumes.workspace.revision",
    "TorchrunJob.status.workspace.requested",
    "TorchrunJob.status.workspace.pod",
)
def test_status_names_another_revision_with_its_sync_pod(world: type[World]) -> None:
    w = synced(world, suspended=True)
    ask_for(w, "bb")
    assert w.status.workspace == WorkspaceStatus(requested="bb", pod="demo-sync-1")
    assert w.condition("WorkspaceReady")[:2] == ("False", "Syncing")
    assert not w.has("Pod", "demo-sync-1")


def test_the_revision_that_is_there_is_not_brought_again(world: type[World]) -> None:
    w = synced(world, suspended=True)
    before = w.status.workspace
    for there in ("sha256:aa", "aa"):
        ask_for(w, there)
        assert w.status.workspace == before


def test_an_attempt_that_runs_keeps_the_revision_that_it_has(world: type[World]) -> None:
    w = synced(world, suspended=False)
    w.worker(0)
    w.settle()
    ask_for(w, "bb")
    assert (w.phase, w.workspace.revision) == ("Running", "sha256:aa")
    assert "revision bb follows with the next attempt" in w.message("WorkspaceReady")
