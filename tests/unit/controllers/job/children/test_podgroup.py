"""What KAI is told of a job: one PodGroup for each attempt, its least size, and where its pods may be."""

from typing import Any

import pytest
from world import World

from torchctl.controllers.gangs.scheduler import Marks
from torchctl.controllers.job.children.owner import Owner
from torchctl.controllers.job.children.podgroup import gang_of, pod_group
from torchctl.controllers.job.template.frozen import (
    FrozenElastic,
    FrozenKai,
    FrozenRendezvous,
    FrozenTemplate,
    FrozenTopology,
)

OWNER = Owner("demo", "team", "0c5f", "research")
KAI = FrozenKai(queue="gpus", gang=True)


def template(kai: FrozenKai | None = KAI, *, elastic: FrozenElastic | None = None, **pod: Any) -> FrozenTemplate:
    return FrozenTemplate(
        queue="research",
        nodes=4,
        elastic=elastic,
        nproc_per_node=1,
        backend="gloo",
        rendezvous=FrozenRendezvous(backend="c10d", port=29500),
        cluster_domain="cluster.local",
        operator_image="torchctl:test",
        kai=kai,
        pod={"metadata": {}, "spec": pod},
    )


def job_annotations_of(given: FrozenTemplate) -> dict[str, str]:
    return given.gang_scheduler.marks(gang_of(OWNER, given, 0)).job_annotations


def pod_annotations_of(given: FrozenTemplate, attempt: int = 0) -> dict[str, str]:
    return given.gang_scheduler.marks(gang_of(OWNER, given, attempt)).pod_annotations


def test_a_gang_of_fixed_size_is_all_of_its_pods() -> None:
    body = pod_group(OWNER, template(), 0)
    assert body["spec"] == {"minMember": 4, "queue": "gpus"}
    assert body["metadata"]["labels"]["kai.scheduler/queue"] == "gpus"
    assert job_annotations_of(template()) == {"kai.scheduler/batch-min-member": "4"}


def test_an_elastic_gang_is_the_minimum_of_the_job() -> None:
    given = template(elastic=FrozenElastic(min_nodes=2, max_nodes=8))
    assert pod_group(OWNER, given, 0)["spec"]["minMember"] == 2
    assert job_annotations_of(given) == {"kai.scheduler/batch-min-member": "2"}


@pytest.mark.parametrize(("attempt", "name"), [(0, "pg-demo-0c5f"), (3, "pg-demo-r3-0c5f")])
def test_each_attempt_has_its_own_pod_group(attempt: int, name: str) -> None:
    """The pods of an attempt name the attempt's PodGroup."""
    assert pod_group(OWNER, template(), attempt)["metadata"]["name"] == name
    assert pod_annotations_of(template(), attempt) == {
        "pod-group-name": name,
        "kai.scheduler/skip-podgrouper": "true",
    }


def test_the_pods_priority_is_the_pod_groups() -> None:
    assert pod_group(OWNER, template(priorityClassName="train"), 0)["spec"]["priorityClassName"] == "train"


@pytest.mark.parametrize(
    ("topology", "constraint"),
    [
        (FrozenTopology(name="net", required="rack"), {"topology": "net", "requiredTopologyLevel": "rack"}),
        (FrozenTopology(name="net", preferred="rack"), {"topology": "net", "preferredTopologyLevel": "rack"}),
        (
            FrozenTopology(name="net", required="zone", preferred="rack"),
            {"topology": "net", "requiredTopologyLevel": "zone", "preferredTopologyLevel": "rack"},
        ),
    ],
)
def test_a_topology_is_the_pod_groups_constraint(topology: FrozenTopology, constraint: dict[str, str]) -> None:
    kai = FrozenKai(queue="gpus", gang=True, topology=topology)
    assert pod_group(OWNER, template(kai), 0)["spec"]["topologyConstraint"] == constraint


@pytest.mark.parametrize("kai", [None, FrozenKai(queue="gpus", gang=False), FrozenKai(queue="", gang=True)])
def test_pods_name_no_pod_group_without_a_gang(kai: FrozenKai | None) -> None:
    assert pod_annotations_of(template(kai)) == {}


def test_who_is_not_kais_says_nothing_to_it() -> None:
    given = template(None)
    assert given.gang_scheduler.marks(gang_of(OWNER, given, 0)) == Marks()


def test_a_gang_without_a_queue_is_in_kais_default_queue(world: type[World]) -> None:
    """A gang of KAI's whose queue nobody named has a PodGroup in KAI's default queue."""
    w = world("{jobQueue: research, numNodes: 2, command: a}", "{image: a:1, scheduling: {scheduler: kai-scheduler}}")
    w.settle()
    (group,) = (body for (kind, _), body in w.objects.items() if kind == "PodGroup")
    assert group["spec"] == {"minMember": 2, "queue": "default-queue"}
    pod = w.spec("Job", "demo")["template"]
    assert pod["metadata"]["annotations"]["pod-group-name"] == group["metadata"]["name"]
    assert pod["spec"]["schedulerName"] == "kai-scheduler"


def test_without_a_gang_kai_chooses_the_queue(world: type[World]) -> None:
    queue = "{image: a:1, scheduling: {scheduler: kai-scheduler, gang: false}}"
    w = world("{jobQueue: research, numNodes: 2, command: a}", queue)
    w.settle()
    assert not [kind for kind, _ in w.objects if kind == "PodGroup"]
    assert "kai.scheduler/queue" not in w.spec("Job", "demo")["template"]["metadata"]["labels"]


def test_the_queues_topology_is_what_the_job_is_frozen_with(world: type[World]) -> None:
    queue = "{image: a:1, kaiQueue: gpus, scheduling: {topology: {name: net, required: rack}}}"
    w = world("{jobQueue: research, numNodes: 2, command: a}", queue)
    w.settle()
    group = next(body for (kind, _), body in w.objects.items() if kind == "PodGroup")
    assert group["spec"]["topologyConstraint"] == {"topology": "net", "requiredTopologyLevel": "rack"}
