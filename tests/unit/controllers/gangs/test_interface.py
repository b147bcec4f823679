"""Whichever gang scheduler a job has, its template says so, and the rest of the operator asks interfaces."""

import pytest
from specs import decoded
from world import World

from torchctl.api.kube import KAI_PODGROUP, POD, KaiPodGroup, Pod
from torchctl.controllers.gangs.groups import GROUP_KINDS, groups_of, kind_of, least_of
from torchctl.controllers.gangs.kai import FrozenKai
from torchctl.controllers.gangs.native import FrozenNative
from torchctl.controllers.gangs.none import NoGangScheduler
from torchctl.controllers.gangs.scheduler import Gang, GangScheduler, Marks, PodGroupScheduler
from torchctl.controllers.gangs.volcano import FrozenVolcano
from torchctl.controllers.job.template.frozen import FrozenTemplate
from torchctl.runtime.kinds import ObjectMeta

GANG = Gang(group="pg-demo", least=2, most=4, priority_class="train")


def frozen(world: type[World], queue: str) -> GangScheduler:
    """The gang scheduler of a job of such a queue, as it is read back from its ControllerRevision."""
    w = world("{jobQueue: research, numNodes: 2, command: a}", queue)
    w.settle()
    return FrozenTemplate.load(w.revision.data).gang_scheduler


@pytest.mark.parametrize(
    ("queue", "scheduler"),
    [
        ("{image: a:1}", NoGangScheduler()),
        ("{image: a:1, scheduling: {scheduler: mine}}", NoGangScheduler()),
        ("{image: a:1, kaiQueue: gpus}", FrozenKai(queue="gpus", gang=True)),
        ("{image: a:1, scheduling: {scheduler: kai-scheduler, gang: false}}", FrozenKai(gang=False)),
    ],
)
def test_frozen_template_names_the_gang_scheduler(world: type[World], queue: str, scheduler: GangScheduler) -> None:
    assert frozen(world, queue) == scheduler


def test_no_gang_scheduler_asks_for_nothing() -> None:
    none: GangScheduler = NoGangScheduler()
    assert (none.needs, none.admits_jobs, none.marks(GANG)) == (None, False, Marks())


def test_what_kai_is_told_is_the_smallest_gang() -> None:
    kai: PodGroupScheduler = FrozenKai(queue="gpus", gang=True)
    assert kai.spec(GANG) == {"minMember": 2, "queue": "gpus", "priorityClassName": "train"}
    assert kai.marks(GANG).job_annotations == {"kai.scheduler/batch-min-member": "2"}


def test_pod_group_that_was_read_tells_its_kind() -> None:
    """So one that an earlier attempt left can be deleted, whatever the job's scheduler is now."""
    assert kind_of(KaiPodGroup(ObjectMeta(name="pg"))) == KAI_PODGROUP
    assert {kind.kind for kind in GROUP_KINDS} == {"PodGroup"}


@pytest.mark.parametrize(("spec", "least"), [({}, 1), ({"minMember": None}, 1), ({"minMember": 3}, 3)])
def test_pod_group_without_a_minimum_is_no_gang(spec: dict[str, int], least: int) -> None:
    assert least_of(KaiPodGroup(ObjectMeta(name="pg"), spec)) == least


def test_pods_without_a_pod_group_are_in_none() -> None:
    assert groups_of([Pod(ObjectMeta(name="demo-0-x"))]) == frozenset()


IN_THREE: Pod = decoded(
    POD,
    {
        "metadata": {
            "name": "a",
            "annotations": {"pod-group-name": "kais", "scheduling.k8s.io/group-name": "volcanos"},
        },
        "spec": {"schedulingGroup": {"podGroupName": "natives"}},
    },
)


@pytest.mark.parametrize(
    ("scheduler", "name"),
    [
        (FrozenKai(queue="gpus", gang=True), "kais"),
        (FrozenVolcano(queue="train", gang=True), "volcanos"),
        (FrozenNative(gang=True), "natives"),
    ],
)
def test_each_scheduler_heeds_its_own_key_of_a_pod(scheduler: PodGroupScheduler, name: str) -> None:
    """The Job controller may add a group of Kubernetes' own to pods of KAI's or Volcano's (gate WorkloadWithJob)."""
    assert scheduler.group_of(IN_THREE) == name
    assert groups_of([IN_THREE]) == {"kais", "volcanos", "natives"}


def test_anothers_annotation_makes_no_member_of_a_native_gang() -> None:
    pod: Pod = decoded(POD, {"metadata": {"name": "a", "annotations": {"pod-group-name": "kais"}}})
    assert not FrozenNative(gang=True).has_member(pod)
