"""Which of the users' labels and annotations each child has, and that a Job keeps those that it was made with."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from world import World

JOB = (
    "{jobQueue: research, numNodes: 2, command: python t.py, labels: {team: vision, kueue.x-k8s.io/queue-name: lq},"
    " annotations: {example.com/cost: '7', k8s.v1.cni.cncf.io/networks: rdma},"
    " volumes: {workspace: {source: git, url: 'https://git.example.com/team/code.git'}}}"
)
QUEUE = (
    "{image: trainer:1, kaiQueue: team, podTemplate: {metadata: {labels: {mesh: 'off', kai.scheduler/node-pool: a},"
    " annotations: {container.apparmor.security.beta.kubernetes.io/trainer: unconfined}}}, storage: {workspace: {%s},"
    " checkpoints: {enabled: true}}}"
)
KUEUE = "kueue.x-k8s.io/queue-name"
COST, NETWORKS = "example.com/cost", "k8s.v1.cni.cncf.io/networks"
APPARMOR = "container.apparmor.security.beta.kubernetes.io/trainer"
ANNOTATED = {"PersistentVolumeClaim": {COST}, "Pod": {COST}, "Job": {COST}}


def children(world: type[World], sync_pod: str = "") -> dict[str, list[dict[str, Any]]]:
    """The metadata of all children, by kind."""
    w = world(JOB, QUEUE % sync_pod)
    w.settle()
    w.sync_serves()
    w.settle()
    found: dict[str, list[dict[str, Any]]] = {}
    for (kind, _), child in w.objects.items():
        found.setdefault(kind, []).append(child["metadata"])
    return found | {"worker": [w.spec("Job", "demo")["template"]["metadata"]]}


def keys(metadata: dict[str, Any]) -> set[str]:
    return {key for key in metadata.get("annotations", {}) if not key.startswith(("kai.scheduler/", "pod-group"))}


def test_every_child_has_the_users_labels(world: type[World]) -> None:
    found = children(world)
    kinds = {"ControllerRevision", "PersistentVolumeClaim", "Service", "Pod", "PodGroup", "Job", "worker"}
    assert found.keys() == kinds
    for kind, every in found.items():
        for meta in every:
            assert (meta["labels"]["team"], meta["labels"]["mesh"]) == ("vision", "off")
            assert meta["labels"]["torchrun.ai/job-name"] == "demo"
            assert ("kai.scheduler/node-pool" in meta["labels"]) == (kind == "worker")


def test_annotations_are_on_pods_job_and_claims_alone(world: type[World]) -> None:
    for kind, every in children(world).items():
        wanted = {COST, NETWORKS, APPARMOR} if kind == "worker" else ANNOTATED.get(kind, set())
        assert [keys(meta) for meta in every] == [wanted] * len(every), kind


def test_only_the_workers_are_queued_by_kueue(world: type[World]) -> None:
    queued = {kind for kind, every in children(world).items() for meta in every if KUEUE in meta["labels"]}
    assert queued == {"Job", "worker"}


def test_a_network_that_the_queue_gives_sync_pods_is_theirs(world: type[World]) -> None:
    own = "podTemplate: {metadata: {annotations: {k8s.v1.cni.cncf.io/networks: storage, kai.scheduler/x: a}}}"
    (pod,) = children(world, own)["Pod"]
    assert pod["annotations"] == {COST: "7", NETWORKS: "storage"}


OF_USERS = ("team", "mesh", "kueue.", "example.com/")


def users(metadata: dict[str, Any]) -> dict[str, str]:
    every = {**metadata["labels"], **metadata.get("annotations", {})}
    return {key: value for key, value in every.items() if key.startswith(OF_USERS)}


@pytest.mark.parametrize("labels", [{}, {"mesh": "off"}, {"mesh": "off", KUEUE: "another"}])
@pytest.mark.parametrize("stop", [False, True])
def test_a_job_keeps_the_users_keys_it_was_made_with(world: type[World], labels: dict[str, str], stop: bool) -> None:
    """Kueue refuses each later apply of a running Job if that would change its label."""
    w = world(JOB, QUEUE % "")
    w.settle()
    w.sync_serves()
    w.settle()
    assert users(w.objects["Job", "demo"]["metadata"]) == {"team": "vision", "mesh": "off", KUEUE: "lq", COST: "7"}
    made = w.seen.worker_job
    assert made is not None
    ours = {key: value for key, value in made.metadata.labels.items() if not key.startswith(OF_USERS)}
    meta = msgspec.structs.replace(made.metadata, labels=ours | labels, annotations={})
    w.seen = replace(w.seen, worker_job=msgspec.structs.replace(made, metadata=meta))
    if stop:
        w.edit(suspend=True)
    w.settle()
    assert ("activeDeadlineSeconds" in w.spec("Job", "demo")) == stop
    assert users(w.objects["Job", "demo"]["metadata"]) == labels
    assert w.objects["Job", "demo"]["metadata"]["labels"]["torchrun.ai/job-name"] == "demo"
