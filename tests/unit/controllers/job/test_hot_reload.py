"""Jobs whose workers take up new code while they run: what is made of them, and what status says of a reload."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from world import World

from torchctl.api.job import JobWorkspace, Volumes
from torchctl.controllers.job.children.command import plain_words
from torchctl.controllers.job.steps.reload import PROBED_S

JOB = "{jobQueue: research, numNodes: 2, command: python train.py, hotReload: Restart, volumes: {workspace: %s}%s}"
UPLOAD = "{source: zip}"
GIT = "{source: git, url: 'https://git.example.com/a.git'}"
SHARED = "{image: trainer:1, storage: {workspace: {accessModes: [ReadWriteMany], distribution: %s}}}"
FIRST, SECOND, THIRD = (f"sha256:{digit * 64}" for digit in "123")


def report(revision: str, digest: str = "") -> str:
    found = {"revision": revision, "digest": digest or revision, "bytes": 1, "files": 1, "source": "zip"}
    return json.dumps(found)


def running(world: type[World], source: str = UPLOAD, more: str = "", brought: str = "") -> World:
    """Its workers run with the first revision."""
    w = world(JOB % (source, more))
    w.settle()
    w.sync_serves(message=brought or report(FIRST))
    w.settle()
    return w.runs()


def sends(w: World, revision: str | None) -> None:
    """Somebody sends a tree to the companion, and writes its digest into the spec."""
    volumes: Volumes = w.seen.job.spec.volumes
    workspace = (volumes.workspace or JobWorkspace()).model_copy(update={"revision": revision})
    w.edit(volumes=volumes.model_copy(update={"workspace": workspace}))
    w.settle()
    if w.reason("WorkspaceReady") == "Reloading" and w.look_again_s():
        w.later(PROBED_S)
        w.settle()


def taken_up(w: World, number: int = 0, message: str = "") -> None:
    w.sync_serves(number, message=message or report(FIRST), ready=True)
    w.later(PROBED_S)
    w.settle()


def waits(w: World, number: int = 0, message: str = "") -> None:
    w.sync_serves(number, message=message or report(FIRST), ready=False)
    w.settle()


def companion_goes(w: World, number: int = 0) -> None:
    """Its pod is told to stop, and then it is gone."""
    w.play(
        f"demo-sync-{number}",
        phase="Running",
        metadata={"deletionTimestamp": w.now},
        initContainerStatuses=[{"name": "fetch", "state": {"terminated": {"exitCode": 0}}}],
    )
    w.settle()
    w.remove("Pod", f"demo-sync-{number}")
    w.settle()


def attempt_fails(w: World) -> None:
    """The attempt fails, and the next one begins."""
    w.worker_fails(0)
    for _ in range(2):
        w.settle()
        w.later(60)
    w.settle()
    w.remove_old_pods()
    w.settle()


def fetch_args(w: World, number: int) -> list[str]:
    (fetch,) = w.spec("Pod", f"demo-sync-{number}")["initContainers"]
    return list(fetch["args"])


# What status says.


def test_a_reload_is_told_until_every_worker_has_it(world: type[World]) -> None:
    """It restarts no attempt and makes no other sync pod."""
    w = running(world)
    before = dict(w.objects)
    waits(w)
    sends(w, SECOND)
    assert (w.workspace.requested, w.workspace.revision) == (SECOND, FIRST)
    assert w.condition("WorkspaceReady") == (
        "True",
        "Reloading",
        f"not every worker runs revision {SECOND} yet: `kubectl logs demo-sync-0 -c serve` says which, and why",
    )
    assert w.phase == "Running"
    taken_up(w)
    assert (w.workspace.requested, w.workspace.revision, w.workspace.digest) == (SECOND, SECOND, SECOND)
    assert w.condition("WorkspaceReady")[:2] == ("True", "WorkspaceReady")
    assert w.message("WorkspaceReady") == f"pod demo-sync-0 has brought the workspace at {SECOND}"
    assert (w.attempt, w.restarts.total, w.phase) == (0, 0, "Running")
    assert w.objects.keys() == before.keys()


def test_a_third_revision_and_the_way_back_are_told(world: type[World]) -> None:
    w = running(world)
    for revision in (SECOND, THIRD, FIRST):
        sends(w, revision)
        assert (w.workspace.requested, w.workspace.revision) == (revision, revision)
    assert w.workspace.files == 1  # what the sync pod said of the first one


def test_a_companion_that_was_ready_before_says_nothing(world: type[World]) -> None:
    """The kubelet may not have asked it since the revision was sent."""
    w = running(world)
    workspace = (w.seen.job.spec.volumes.workspace or JobWorkspace()).model_copy(update={"revision": SECOND})
    w.edit(volumes=w.seen.job.spec.volumes.model_copy(update={"workspace": workspace}))
    w.settle()
    assert (w.workspace.revision, w.reason("WorkspaceReady")) == (FIRST, "Reloading")
    assert w.waits() == PROBED_S
    w.settle()
    assert (w.workspace.revision, w.reason("WorkspaceReady")) == (SECOND, "WorkspaceReady")


def test_a_worker_that_falls_behind_later_is_told_too(world: type[World]) -> None:
    w = running(world)
    sends(w, SECOND)
    waits(w)
    assert w.condition("WorkspaceReady")[:2] == ("True", "Reloading")
    assert w.workspace.revision == SECOND


def test_a_revision_that_is_taken_back_leaves_what_runs(world: type[World]) -> None:
    w = running(world)
    sends(w, SECOND)
    sends(w, None)
    assert w.workspace.revision == SECOND


def annotated(w: World, **annotations: str) -> None:
    job = w.seen.job
    prefixed = {f"torchrun.ai/{key.replace('_', '-')}": value for key, value in annotations.items()}
    metadata = msgspec.structs.replace(job.metadata, annotations=prefixed)
    w.seen = replace(w.seen, job=msgspec.structs.replace(job, metadata=metadata))
    w.settle()


def test_workers_that_are_behind_are_named(world: type[World]) -> None:
    """Those that do not run by their pods, others by what the sender saw last, for the revision that was sent."""
    w = running(world)
    waits(w)
    sends(w, SECOND)
    w.worker(1, "Pending")
    w.settle()
    first = f"not every worker runs revision {SECOND} yet: worker 1 (pod demo-1-x is not up)"
    assert w.message("WorkspaceReady") == f"{first}; `kubectl logs demo-sync-0 -c serve` says why"
    annotated(w, behind=f"{SECOND} worker 0 (disk\nfull)")
    seen = "worker 0 (disk full) when `sync` looked last"
    assert w.message("WorkspaceReady") == f"{first}; {seen}; `kubectl logs demo-sync-0 -c serve` says why"
    w.pod_goes(1)
    w.settle()
    assert "worker 1 (it has no pod)" in w.message("WorkspaceReady")
    annotated(w, behind=f"{THIRD} worker 0 (disk full)")
    assert "disk full" not in w.message("WorkspaceReady")


def test_a_lost_companion_is_told_with_what_waits_for_it(world: type[World]) -> None:
    w = running(world)
    waits(w)
    sends(w, SECOND)
    companion_goes(w)
    waiting = f"; until then no worker may run revision {SECOND}, which was sent to them"
    assert w.message("WorkspaceReady").endswith(waiting)
    taken_up(w, 1, report(SECOND))
    assert w.message("WorkspaceReady") == f"pod demo-sync-1 has brought the workspace at {SECOND}"


def test_files_that_change_without_a_restart_are_told(world: type[World]) -> None:
    w = running(world)
    annotated(w, files_only=SECOND)
    assert "no-restart" not in w.message("WorkspaceReady")
    sends(w, SECOND)
    assert w.workspace.revision == SECOND
    assert w.message("WorkspaceReady").endswith("go on with what they had loaded (sync --no-restart)")
    sends(w, THIRD)
    assert "no-restart" not in w.message("WorkspaceReady")


@pytest.mark.parametrize("settled", [True, False])
def test_a_job_that_ends_first_claims_no_revision(world: type[World], settled: bool) -> None:
    """Nobody saw that its workers ran what was sent last."""
    w = running(world)
    waits(w) if not settled else None
    workspace = (w.seen.job.spec.volumes.workspace or JobWorkspace()).model_copy(update={"revision": SECOND})
    w.edit(volumes=w.seen.job.spec.volumes.model_copy(update={"workspace": workspace}))
    w.settle()
    assert w.reason("WorkspaceReady") == "Reloading"
    w.succeeds()
    w.settle()
    assert w.phase == "Succeeded"
    assert (w.workspace.requested, w.workspace.revision) == (SECOND, FIRST)
    assert w.condition("WorkspaceReady") == (
        "True",
        "WorkspaceReady",
        f"the last revision that all workers were seen to run is {FIRST}; the job ended before they were seen to run "
        f"{SECOND}, which was sent to them",
    )


def test_a_job_that_ends_is_not_left_reloading(world: type[World]) -> None:
    """A worker that fell behind, and a companion that was lost, are no news of a job that has ended."""
    w = running(world)
    sends(w, SECOND)
    waits(w)
    assert w.reason("WorkspaceReady") == "Reloading"
    w.succeeds()
    w.settle()
    said = w.condition("WorkspaceReady")
    assert said[:2] == ("True", "WorkspaceReady")
    assert said[2] == f"the last revision that all workers were seen to run is {SECOND}"


# The companion.


def test_a_lost_companion_is_replaced_while_workers_run(world: type[World]) -> None:
    """The next one leaves what the claim has, whatever the source is; it is no incident."""
    w = running(world, GIT)
    assert fetch_args(w, 0)[:2] == ["fetch", "--source=git"]
    sends(w, SECOND)
    companion_goes(w)
    assert fetch_args(w, 1) == ["receive", "--root=/workspace", "--timeout=inf", "--port=8081"]
    assert w.spec("Pod", "demo-sync-1")["containers"][0]["args"][0] == "companion"
    assert (w.phase, w.attempt, w.restarts.total) == ("Running", 0, 0)
    taken_up(w, 1, report(SECOND))
    assert w.workspace.revision == SECOND
    assert w.condition("WorkspaceReady")[:2] == ("True", "WorkspaceReady")
    sends(w, THIRD)
    assert w.workspace.revision == THIRD
    assert not w.step()
    assert not w.has("Pod", "demo-sync-2")


def test_a_companion_that_fails_is_replaced_and_told(world: type[World]) -> None:
    w = running(world)
    ended = {"terminated": {"exitCode": 0, "message": report(FIRST)}}
    failed = {"terminated": {"exitCode": 70, "reason": "Error", "message": "companion: a fault"}}
    w.play(
        "demo-sync-0",
        phase="Failed",
        initContainerStatuses=[{"name": "fetch", "state": ended}],
        containerStatuses=[{"name": "serve", "state": failed}],
    )
    w.settle()
    assert "which served the workspace, failed: companion: a fault" in w.events[-1][2]
    assert w.message("WorkspaceReady") == "pod demo-sync-1 takes over: it serves what the claim has once it is ready"
    assert w.has("Pod", "demo-sync-1")
    assert (w.phase, w.restarts.total) == ("Running", 0)


def test_the_next_attempt_has_what_was_sent_last(world: type[World]) -> None:
    """Nothing is brought anew for it."""
    w = running(world)
    sends(w, SECOND)
    attempt_fails(w)
    assert w.attempt == 1
    assert w.has("Job", "demo-r1")
    assert w.workspace.revision == SECOND
    assert not w.has("Pod", "demo-sync-1")


def test_a_tag_of_git_is_brought_for_the_next_attempt(world: type[World]) -> None:
    """It overwrites what was sent."""
    w = running(world, GIT, brought=report("c0ffee", FIRST))
    sends(w, SECOND)
    sends(w, "v2")
    assert w.message("WorkspaceReady").endswith("; revision v2 follows with the next attempt")
    attempt_fails(w)
    companion_goes(w)
    assert "--revision=v2" in fetch_args(w, 1)
    w.sync_serves(1, message=report("beef", THIRD))
    w.settle()
    assert (w.workspace.requested, w.workspace.revision) == ("v2", "beef")
    assert w.has("Job", "demo-r1")


def test_the_companion_stays_while_the_job_is_suspended(world: type[World]) -> None:
    w = running(world)
    w.edit(suspend=True)
    w.settle()
    w.remove_old_pods()
    for index in range(2):
        w.pod_goes(index)
    sends(w, SECOND)
    companion_goes(w)
    w.edit(suspend=False)
    w.settle()
    w.later(20)
    w.settle()
    assert fetch_args(w, 1)[0] == "receive"
    taken_up(w, 1, report(SECOND))
    assert w.workspace.revision == SECOND


# Files only, on a claim that all workers mount.

FILES = "{jobQueue: research, numNodes: 2, command: python train.py, hotReload: Files, volumes: {workspace: %s}}"


def mounted(world: type[World], source: str = UPLOAD) -> World:
    """Its workers run on the first revision, in a claim that they mount."""
    w = world(FILES % source, SHARED % "shared")
    w.settle()
    w.sync_serves(message=report(FIRST), ready=False)
    w.settle()
    assert not any(kind == "Job" for kind, _ in w.objects), "the companion has not noted what there is"
    w.sync_serves(message=report(FIRST))
    w.settle()
    return w.runs()


@pytest.mark.parametrize("distribution", ["auto", "copy", "serve", "shared"])
def test_files_are_mounted_without_launcher_or_service(world: type[World], distribution: str) -> None:
    """Whatever the queue says; and the companion has to change the claim in place."""
    w = world(FILES % UPLOAD, SHARED % distribution)
    w.settle()
    w.sync_serves(message=report(FIRST))
    w.settle()
    assert w.trainer()["command"] == ["sh", "-c", "exec torchrun train.py"]
    pod = w.spec("Job", "demo")["template"]["spec"]
    assert "initContainers" not in pod
    (volume,) = [one for one in pod["volumes"] if "workspace" in one["name"]]
    assert volume["persistentVolumeClaim"] == {"claimName": "demo-workspace"}
    assert not any(kind == "Service" and name == "demo-workspace" for kind, name in w.objects)
    (serve,) = w.spec("Pod", "demo-sync-0")["containers"]
    assert (serve["args"][0], serve["args"][-1]) == ("companion", "--in-place")


def test_files_that_were_sent_are_there_at_once(world: type[World]) -> None:
    """Nobody has to take them up, so nothing is reloading; not even while the companion is busy."""
    w = mounted(world)
    before = dict(w.objects)
    annotated(w, files_only=SECOND)
    sends(w, SECOND)
    assert (w.workspace.requested, w.workspace.revision, w.workspace.digest) == (SECOND, SECOND, SECOND)
    assert w.workspace.sent_time is not None
    assert w.condition("WorkspaceReady")[:2] == ("True", "WorkspaceReady")
    assert w.message("WorkspaceReady").endswith("go on with what they had loaded (sync --no-restart)")
    w.sync_serves(message=report(FIRST), ready=False)
    w.settle()
    assert w.condition("WorkspaceReady")[:2] == ("True", "WorkspaceReady")
    sends(w, FIRST)
    assert w.workspace.revision == FIRST
    assert (w.attempt, w.restarts.total, w.phase) == (0, 0, "Running")
    assert w.objects.keys() == before.keys()


def test_next_attempt_mounts_the_files_that_were_sent_last(world: type[World]) -> None:
    """No sync pod writes an older tree over them, also if the companion is lost."""
    w = mounted(world, GIT)
    sends(w, SECOND)
    companion_goes(w)
    w.later(20)
    w.settle()
    assert fetch_args(w, 1)[0] == "receive"
    w.sync_serves(1, message=report(SECOND))
    w.settle()
    attempt_fails(w)
    assert (w.attempt, w.workspace.revision) == (1, SECOND)
    assert [name for kind, name in w.objects if kind == "Pod" and name > "demo-sync-1"] == []


@pytest.mark.parametrize("modes", ["[ReadWriteOnce]", "[ReadWriteOncePod]", "[ReadOnlyMany]"])
def test_files_need_a_claim_for_many_nodes(world: type[World], modes: str) -> None:
    queue = "{image: trainer:1, storage: {workspace: {accessModes: %s, distribution: shared}}}"
    w = world(FILES % UPLOAD, queue % modes)
    w.settle()
    assert w.condition("Accepted")[:2] == ("False", "ImpossibleWorkspace")
    assert "hotReload Files needs a claim that workers and the sync pod can mount on any node" in w.message("Accepted")
    assert "set ReadWriteMany in the queue's storage.workspace" in w.message("Accepted")


# What becomes of such a job.


@pytest.mark.parametrize(
    ("distribution", "refused"), [("auto", False), ("copy", False), ("serve", False), ("shared", True)]
)
def test_its_workspace_is_served_or_the_job_refused(world: type[World], distribution: str, refused: bool) -> None:
    w = world(JOB % (UPLOAD, ""), SHARED % distribution)
    w.settle()
    if refused:
        assert w.condition("Accepted")[:2] == ("False", "ImpossibleWorkspace")
        assert "hotReload Restart does not go with distribution shared" in w.message("Accepted")
        return
    assert w.spec("Pod", "demo-sync-0")["containers"][0]["args"][0] == "companion"
    assert w.spec("Service", "demo-workspace")["publishNotReadyAddresses"] is True


def test_without_a_workspace_it_is_refused(world: type[World]) -> None:
    w = world("{jobQueue: research, numNodes: 1, command: python train.py, hotReload: WarmStart}")
    w.settle()
    assert w.condition("Accepted")[:2] == ("False", "ImpossibleWorkspace")
    assert "spec.hotReload needs a workspace" in w.message("Accepted")


def test_a_mount_over_the_launcher_is_refused(world: type[World]) -> None:
    more = (
        "volumes: {workspace: {source: zip}, additionalVolumes: [{name: v, emptyDir: {}}], "
        "additionalMounts: [{name: v, mountPath: /torchrun-launcher}]}"
    )
    w = world(f"{{jobQueue: research, numNodes: 2, command: python train.py, hotReload: Restart, {more}}}")
    w.settle()
    assert w.condition("Accepted")[:2] == ("False", "ConflictingVolumes")
    assert "the launcher" in w.message("Accepted")


def command(w: World) -> list[str]:
    words: list[str] = w.trainer()["command"]
    return words


def test_an_elastic_worker_knows_its_fewest_and_most_peers(world: type[World]) -> None:
    text = "{jobQueue: research, numNodes: 3, elastic: {minNodes: 2, maxNodes: 4}, nprocPerNode: 8, %s}"
    w = world(text % "args: [python, train.py], hotReload: WarmStart, volumes: {workspace: {source: zip}}")
    w.settle()
    w.sync_serves(message=report(FIRST))
    w.settle()
    words = command(w)
    assert words[4:] == [
        *("--index", "$(JOB_COMPLETION_INDEX)", "--nodes", "4", "--min", "2", "--expected", "3", "--nproc", "8"),
        *("--workdir", "/app", "--warm", "--", "torchrun", "train.py"),
    ]
    w.edit(num_nodes=4)
    w.settle()
    assert command(w) == words  # the Job is there, and its command cannot be changed


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("exec torchrun train.py --lr 1e-3", ["torchrun", "train.py", "--lr", "1e-3"]),
        ("torchrun -m pkg.train 'a b' \"c d\" e=f", ["torchrun", "-m", "pkg.train", "a b", "c d", "e=f"]),
        ("torchrun train.py ''", ["torchrun", "train.py", ""]),
        ("torchrun train.py '$HOME'", ["torchrun", "train.py", "$HOME"]),
        ("torchrun train.py $HOME", None),
        ('torchrun train.py "$HOME"', None),
        ("torchrun train.py > log", None),
        ("torchrun train.py ~/data *.txt", None),
        ("A=1 torchrun train.py", None),
        ("cd src && torchrun train.py", None),
        ("torchrun train.py; true", None),
        ("torchrun train.py {a,b}", None),
        ("echo a", None),
        ("", None),
    ],
)
def test_a_line_that_needs_no_shell_becomes_words(line: str, words: list[str] | None) -> None:
    assert plain_words(line) == words


@pytest.mark.parametrize("more", ["", ", setupCommand: pip install x"])
def test_a_line_that_needs_a_shell_runs_under_the_launcher(world: type[World], more: str) -> None:
    text = "{jobQueue: research, numNodes: 2, command: 'python train.py $EXTRA', hotReload: Restart, %s}"
    w = world(text % f"volumes: {{workspace: {{source: zip}}}}{more}")
    w.settle()
    w.sync_serves(message=report(FIRST))
    w.settle()
    words = command(w)
    assert words[:2] == ["python3", "/torchrun-launcher/launcher.py"]
    assert words[words.index("--") + 1 :][:2] == ["sh", "-c"]


def test_off_is_as_if_the_field_was_not_there(world: type[World]) -> None:
    def made(text: str) -> dict[tuple[str, str], Any]:
        w = world(text)
        w.settle()
        w.sync_serves()
        w.settle()
        return w.objects

    text = "{jobQueue: research, numNodes: 2, command: python train.py, volumes: {workspace: {source: zip}}%s}"
    assert made(text % "") == made(text % ", hotReload: 'Off'")


def test_an_image_without_python_is_named(world: type[World]) -> None:
    w = running(world)
    said = 'failed to create task: exec: "python3": executable file not found in $PATH: unknown'
    for index in range(2):
        ended = {"exitCode": 128, "reason": "StartError", "message": said}
        w.worker(index, "Failed", containerStatuses=[{"name": "trainer", "state": {"terminated": ended}}])
    w.incident_settles()
    assert w.failure.message.startswith("hotReload needs python3 in the image of trainer, which has none: ")
    assert w.failure.rank == 0
